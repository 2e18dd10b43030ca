"""From `Out` to checked bytes, the same in every adapter."""

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from kai_es.events.catalogue import Topic, partition_of
from kai_es.events.codec import encode
from kai_es.events.envelope import Envelope
from kai_es.ports.eventlog import Out

MAX_MESSAGE_BYTES: Final = 16 * 1024 * 1024
"""`max.message.bytes` of every topic: a cycle is cut at 8 MiB, an etcd object reaches 1.5 MiB."""

MAX_VALUE_BYTES: Final = MAX_MESSAGE_BYTES - 64 * 1024
"""Leaves room for the key and the batch header."""


class Coded(NamedTuple):
    """A record ready to be stored. `value` None = tombstone."""

    topic: str
    partition: int
    key: str
    value: bytes | None


def code_batch(batch: Iterable[Out], topics: Mapping[str, Topic]) -> list[Coded]:
    """Encoded records with their partitions, in the order of the batch.

    Raises:
        AssertionError: a record that the catalogue does not allow, or over the size limit.
    """
    return [_code(out, topics) for out in batch]


def code_one(topic: str, key: str, envelope: Envelope, topics: Mapping[str, Topic]) -> Coded:
    """The record of an `append_one`: partition 0."""
    return _code(Out(topic, key, 0, envelope), topics)


def _code(out: Out, topics: Mapping[str, Topic]) -> Coded:
    topic = topics.get(out.topic)
    assert topic is not None, f"unknown topic {out.topic!r}"
    partition = partition_of(out.key, topic.partitions) if out.partition is None else out.partition
    assert 0 <= partition < topic.partitions, f"{topic.name} has no partition {partition}"
    if out.envelope is None:
        assert topic.compacted, f"a tombstone belongs into a compacted topic, not {topic.name}"
        return Coded(topic.name, partition, out.key, None)
    value = encode(out.envelope, topic.name)
    assert len(value) <= MAX_VALUE_BYTES, (
        f"record {out.envelope.id} has {len(value)} bytes, the limit is {MAX_VALUE_BYTES}"
    )
    return Coded(topic.name, partition, out.key, value)
