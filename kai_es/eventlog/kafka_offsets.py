"""Consumers' marks as committed offsets of a group, the note as their metadata."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Final, TypeVar

from kafka import KafkaConsumer, TopicPartition
from kafka.structs import OffsetAndMetadata

from kai_es.eventlog.kafka_client import KafkaSettings, Worker
from kai_es.eventlog.kafka_errors import errors_mapped
from kai_es.events.catalogue import TOPICS
from kai_es.ports.errors import UnavailableError
from kai_es.ports.eventlog import Mark, Position

T = TypeVar("T")

TIMEOUT_MS: Final = 5_000
_GROUP_SUFFIX: Final = "marks"  # not the group of the role: that one's members read something else


class KafkaOffsets:
    """Offsets of consumers that assign their partitions by hand.

    The broker drops them a week after the last commit (`offsets.retention.minutes`); a consumer
    must live without them anyway.
    """

    def __init__(self, settings: KafkaSettings) -> None:
        self._settings = settings
        self._worker = Worker("offsets")
        self._consumers: dict[str, KafkaConsumer] = {}

    async def load(self, consumer: str, topic: str) -> Mapping[int, Mark]:
        """See the port."""
        return await self._run(f"read marks of {consumer}", partial(self._load, consumer, topic))

    async def store(self, consumer: str, topic: str, marks: Mapping[int, Mark]) -> None:
        """See the port."""
        await self._run(f"store marks of {consumer}", partial(self._store, consumer, topic, marks))

    async def close(self) -> None:
        """Close the connections."""
        await self._worker.run(self._forget, timeout_s=TIMEOUT_MS / 1000)
        self._worker.stop()

    async def _run(self, doing: str, call: Callable[[], T]) -> T:
        def guarded() -> T:
            with errors_mapped(f"{doing} on {self._settings.bootstrap}"):
                try:
                    return call()
                except BaseException:
                    self._forget()
                    raise

        try:
            return await self._worker.run(guarded, timeout_s=2 * TIMEOUT_MS / 1000)
        except TimeoutError as exc:
            raise UnavailableError(f"cannot {doing}: no answer in time") from exc

    def _load(self, consumer: str, topic: str) -> Mapping[int, Mark]:
        name = self._settings.topic(topic)
        marks = {}
        for number in range(TOPICS[topic].partitions):
            found = self._client(consumer).committed(
                TopicPartition(name, number), metadata=True, timeout_ms=TIMEOUT_MS
            )
            if found is not None:
                marks[number] = Mark(Position(found.offset), found.metadata or "")
        return marks

    def _store(self, consumer: str, topic: str, marks: Mapping[int, Mark]) -> None:
        name = self._settings.topic(topic)
        self._client(consumer).commit(
            {
                TopicPartition(name, number): OffsetAndMetadata(mark.position, mark.note, -1)
                for number, mark in marks.items()
            },
            timeout_ms=TIMEOUT_MS,
        )

    def _client(self, consumer: str) -> KafkaConsumer:
        client = self._consumers.get(consumer)
        if client is None:
            client = KafkaConsumer(
                **self._settings.client(
                    group_id=f"{self._settings.prefix}.{consumer}.{_GROUP_SUFFIX}",
                    enable_auto_commit=False,
                    metrics_enabled=False,
                    allow_auto_create_topics=False,
                )
            )
            self._consumers[consumer] = client
        return client

    def _forget(self) -> None:
        clients, self._consumers = self._consumers, {}
        for client in clients.values():
            client.close(autocommit=False, timeout_ms=TIMEOUT_MS)
