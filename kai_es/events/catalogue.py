"""Every record type of the log: where it lives, who writes it, its version and its upcasters."""

import zlib
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final, NamedTuple

import msgspec

from kai_es.events import deadletter, decisions, objects, requests, snapshot

OBJECTS: Final = "objects"
OBJECTS_INDEX: Final = "objects.index"
DECISIONS: Final = "decisions"
BIND_REQUESTS: Final = "bindrequests"
BIND_RESULTS: Final = "bindresults"
SNAPSHOT: Final = "snapshot"
DEAD_LETTER: Final = "deadletter"

Upcaster = Callable[[dict[str, Any]], dict[str, Any]]


class Topic(NamedTuple):
    """A topic's shape (architecture §2). `retention_ms` −1 = kept until trimmed."""

    name: str
    partitions: int
    compacted: bool = False
    retention_ms: int = 7 * 24 * 3600 * 1000


class Schema(NamedTuple):
    """A record type.

    upcasters: version v -> function from the builtins of v to those of v + 1.
    """

    name: str
    topics: tuple[str, ...]
    owner: str
    type: type[msgspec.Struct]
    version: int = 1
    min_reader: int = 1
    upcasters: Mapping[int, Upcaster] = MappingProxyType({})


TOPICS: Final[Mapping[str, Topic]] = MappingProxyType(
    {
        topic.name: topic
        for topic in (
            Topic(OBJECTS, 8),
            Topic(OBJECTS_INDEX, 8, compacted=True),
            Topic(DECISIONS, 16),
            Topic(BIND_REQUESTS, 8),
            Topic(BIND_RESULTS, 8),
            Topic(SNAPSHOT, 1, retention_ms=-1),
            Topic(DEAD_LETTER, 1),
        )
    }
)


def partition_of(key: str, partitions: int) -> int:
    """The partition of a key, the same for ever and in every adapter."""
    return zlib.crc32(key.encode()) % partitions


def _schema(kind: type[msgspec.Struct], owner: str, *topics: str) -> Schema:
    return Schema(str(kind.__struct_config__.tag), topics, owner, kind)


SCHEMAS: Final[Mapping[str, Schema]] = MappingProxyType(
    {
        schema.name: schema
        for schema in (
            _schema(objects.ObjectSeen, "informer", OBJECTS, OBJECTS_INDEX),
            _schema(objects.ObjectDeleted, "informer", OBJECTS),
            _schema(objects.Listed, "informer", OBJECTS),
            _schema(objects.Alive, "informer", OBJECTS, OBJECTS_INDEX),
            _schema(objects.ParkedAction, "operator", OBJECTS),
            _schema(decisions.Reign, "scheduler", DECISIONS),
            _schema(decisions.ReignEnd, "scheduler", DECISIONS),
            _schema(decisions.GateChange, "scheduler", DECISIONS),
            _schema(decisions.CycleChunk, "scheduler", DECISIONS),
            _schema(requests.BindRequested, "scheduler", BIND_REQUESTS),
            _schema(requests.EvictRequested, "scheduler", BIND_REQUESTS),
            _schema(requests.Bound, "binder", BIND_RESULTS),
            _schema(requests.Evicted, "binder", BIND_RESULTS),
            _schema(requests.AttemptFailed, "binder", BIND_RESULTS),
            _schema(requests.Refused, "binder", BIND_RESULTS),
            _schema(snapshot.Batch, "snapshot", SNAPSHOT),
            _schema(deadletter.DeadLetter, "any consumer", DEAD_LETTER),
        )
    }
)
