"""EventLog on a Kafka cluster (4.0 or later, KRaft) through kafka-python.

All calls that block live in threads of their own; see `kafka_writer` for fencing.
"""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any, Final, TypeVar

from kafka import KafkaAdminClient, KafkaConsumer, TopicPartition
from kafka.errors import OffsetOutOfRangeError, for_code

from kai_es.eventlog.batch import code_batch, code_one
from kai_es.eventlog.kafka_client import REQUEST_MS, KafkaSettings, Worker
from kai_es.eventlog.kafka_errors import errors_mapped
from kai_es.eventlog.kafka_reader import Feed, Fetcher, a_consumer
from kai_es.eventlog.kafka_topics import provision
from kai_es.eventlog.kafka_writer import SingleWriter, TransactionWriter
from kai_es.eventlog.tail import IDLE_S
from kai_es.events.catalogue import SCHEMAS, TOPICS, Topic
from kai_es.events.envelope import Envelope
from kai_es.ports.errors import CorruptLogError, FencedError, GoneError, UnavailableError
from kai_es.ports.eventlog import Entry, Epoch, Out, Position

T = TypeVar("T")

Prepare = Callable[[KafkaAdminClient, KafkaSettings, Mapping[str, Topic]], None]

LOOK_S: Final = 30.0
"""Questions to the broker: several requests, each retried for `REQUEST_MS`."""

_LAST_WINDOW: Final = 4
"""How far before the end the last record is looked for first: its marker, and one to spare."""


class KafkaLog:
    """EventLog over the topics `<prefix>.<topic>`.

    Topics are made and checked at the first use; while they differ from the catalogue, or the
    broker is away, every use raises UnavailableError and the next one tries again.

    Args:
        settings: where it is.
        topics: the catalogue.
        prepare: `provision` makes topics that are missing; with `find` every use raises
            ConfigError while there are some.
    """

    def __init__(
        self,
        settings: KafkaSettings,
        *,
        topics: Mapping[str, Topic] = TOPICS,
        prepare: Prepare = provision,
    ) -> None:
        self.settings = settings
        self._topics = topics
        self._prepare = prepare
        self._prepared = False
        self._opening = asyncio.Lock()
        self._looker = _Looker(settings)
        self._single = SingleWriter(settings)
        self._writers: dict[str, tuple[Epoch, TransactionWriter]] = {}
        self._fetchers: list[Fetcher] = []
        self._closed = False

    async def open(self) -> None:
        """Make or find the topics and check them; done by every other use too."""
        if self._closed:
            raise UnavailableError("this log is closed")
        if self._prepared:
            return
        async with self._opening:
            if not self._prepared:
                await self._looker.prepare(self._prepare, self._topics)
                self._prepared = True

    async def take_over(self, producer_id: str) -> Epoch:
        """See the port."""
        await self.open()
        former = self._writers.pop(producer_id, None)
        if former is not None:
            await former[1].close()
        writer = TransactionWriter(self.settings, producer_id, self._written_by(producer_id))
        epoch = Epoch(producer_id, await writer.open())
        self._writers[producer_id] = (epoch, writer)
        return epoch

    async def append(self, epoch: Epoch, batch: Sequence[Out]) -> Sequence[Position]:
        """See the port."""
        await self.open()
        records = code_batch(batch, self._topics)
        newest, writer = self._writers.get(epoch.producer_id, (None, None))
        if newest != epoch or writer is None:
            raise FencedError(f"{epoch.producer_id}: epoch {epoch.number} is over")
        return await writer.append(records) if records else []

    async def append_one(self, topic: str, key: str, envelope: Envelope) -> Position:
        """See the port."""
        await self.open()
        return await self._single.append(code_one(topic, key, envelope, self._topics))

    async def read(
        self, topic: str, partition: int, start: Position, *, follow: bool
    ) -> AsyncIterator[Sequence[Entry]]:
        """See the port."""
        await self.open()
        part = TopicPartition(self.settings.topic(topic), partition)
        stop = None
        if not follow:
            stop = await self._looker.end_of(part)
            if start >= stop:
                await self._check_there(part, start)
                return
        feed = Feed(part, start)
        fetcher = self._fetcher_for(feed)
        position: int = start
        try:
            while stop is None or position < stop:
                chunk = await feed.take(IDLE_S)
                if self._closed:
                    if follow:
                        return
                    raise UnavailableError("this log was closed before its end was read")
                if chunk:
                    position = chunk[-1].position + 1
                if chunk or follow:
                    yield chunk
        except OffsetOutOfRangeError as exc:
            await self._check_there(part, position)
            raise UnavailableError(f"{part.topic}/{part.partition} has just changed") from exc
        finally:
            fetcher.remove(feed)

    def _fetcher_for(self, feed: Feed) -> Fetcher:
        for fetcher in self._fetchers:
            if fetcher.add(feed):
                return fetcher
        fetcher = Fetcher(self.settings)
        fetcher.add(feed)
        self._fetchers.append(fetcher)
        return fetcher

    async def _check_there(self, part: TopicPartition, position: int) -> None:
        """Raise why nothing can be read from there, if so."""
        begin, end = await self._looker.bounds(part)
        name = f"{part.topic}/{part.partition} on {self.settings.bootstrap}"
        if position < begin:
            raise GoneError(
                f"{name} is asked for from position {position} on, but entries below {begin} are "
                f"no longer kept"
            )
        if position > end:
            raise CorruptLogError(
                f"{name} ends at {end}, position {position} was never written; was the topic made "
                f"anew or restored from an older copy?"
            )

    async def begin(self, topic: str) -> Mapping[int, Position]:
        """See the port."""
        await self.open()
        return _by_partition(await self._looker.begins(self._parts(topic)))

    async def end(self, topic: str) -> Mapping[int, Position]:
        """See the port."""
        await self.open()
        return _by_partition(await self._looker.ends(self._parts(topic)))

    def _written_by(self, producer_id: str) -> list[TopicPartition]:
        """The partitions of what the owner of records of this name writes, e.g. `scheduler-a`."""
        owner = producer_id.partition("-")[0]
        topics = {t for schema in SCHEMAS.values() if schema.owner == owner for t in schema.topics}
        return [
            part for topic in sorted(topics & self._topics.keys()) for part in self._parts(topic)
        ]

    def _parts(self, topic: str) -> list[TopicPartition]:
        name = self.settings.topic(topic)
        return [TopicPartition(name, n) for n in range(self._topics[topic].partitions)]

    async def trim(self, topic: str, partition: int, before: Position) -> None:
        """See the port."""
        await self.open()
        part = TopicPartition(self.settings.topic(topic), partition)
        await self._looker.trim(part, min(before, await self._looker.end_of(part)))

    async def close(self) -> None:
        """See the port."""
        if self._closed:
            return
        self._closed = True
        for _, writer in self._writers.values():
            await writer.close()
        self._single.close()
        for fetcher in self._fetchers:
            fetcher.close()
        await self._looker.close()


def _by_partition(positions: Mapping[TopicPartition, int]) -> dict[int, Position]:
    return {part.partition: Position(position) for part, position in positions.items()}


class _Looker:
    """Questions and orders to the broker that are no reads or appends; one at a time."""

    def __init__(self, settings: KafkaSettings) -> None:
        self._settings = settings
        self._worker = Worker("log-looker")
        self._consumer: KafkaConsumer | None = None
        self._admin: KafkaAdminClient | None = None
        # The last record of a partition whose end offset has not moved is still the last.
        self._known_ends: dict[TopicPartition, tuple[int, int]] = {}

    async def prepare(self, prepare: Prepare, topics: Mapping[str, Topic]) -> None:
        await self._ask(
            "look at its topics", lambda: prepare(self._an_admin(), self._settings, topics)
        )

    async def begins(self, parts: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
        return await self._ask(
            f"look up {parts[0].topic}", lambda: self._a_consumer().beginning_offsets(parts)
        )

    async def bounds(self, part: TopicPartition) -> tuple[int, int]:
        """First position kept, and the one after everything, markers included."""
        consumer = self._a_consumer
        return await self._ask(
            f"look up {part.topic}",
            lambda: (
                consumer().beginning_offsets([part])[part],
                consumer().end_offsets([part])[part],
            ),
        )

    async def ends(self, parts: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
        """Positions after the last committed records."""
        return await self._ask(f"look up {parts[0].topic}", lambda: self._ends(parts))

    async def end_of(self, part: TopicPartition) -> int:
        return (await self.ends([part]))[part]

    async def trim(self, part: TopicPartition, before: int) -> None:
        await self._ask(f"trim {part.topic}", lambda: self._trim(part, before))

    async def close(self) -> None:
        if self._consumer is not None or self._admin is not None:
            with contextlib.suppress(TimeoutError):  # then its daemon thread is left to itself
                await self._worker.run(self._forget, timeout_s=self._settings.connect_s)
        self._worker.stop()

    async def _ask(self, doing: str, call: Callable[[], T]) -> T:
        doing = f"{doing} on {self._settings.bootstrap}"

        def guarded() -> T:
            with errors_mapped(doing):
                try:
                    return call()
                except BaseException:
                    self._forget()  # the next question begins with fresh connections
                    raise

        try:
            return await self._worker.run(guarded, timeout_s=LOOK_S)
        except TimeoutError as exc:
            raise UnavailableError(f"cannot {doing}: no answer in {LOOK_S:.0f} s") from exc

    # The rest runs in the worker's thread.

    def _ends(self, parts: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        consumer = self._a_consumer()
        begins, raw = consumer.beginning_offsets(parts), consumer.end_offsets(parts)
        ends = {}
        unknown = []
        for part in parts:
            known_raw, known_end = self._known_ends.get(part, (-1, -1))
            if raw[part] <= begins[part]:
                ends[part] = begins[part]
            elif known_raw == raw[part]:
                ends[part] = max(known_end, begins[part])
            else:
                unknown.append(part)
        window = _LAST_WINDOW
        while unknown:
            starts = {part: max(begins[part], raw[part] - window) for part in unknown}
            last = self._last_records(consumer, starts, raw)
            for part in [p for p in unknown if p in last or starts[p] == begins[p]]:
                ends[part] = last.get(part, begins[part] - 1) + 1
                self._known_ends[part] = (raw[part], ends[part])
                unknown.remove(part)
            window *= 16
        return {part: ends[part] for part in parts}

    def _last_records(
        self,
        consumer: KafkaConsumer,
        starts: Mapping[TopicPartition, int],
        stops: Mapping[TopicPartition, int],
    ) -> dict[TopicPartition, int]:
        """Position of the last record of [start, stop), where there is one."""
        last: dict[TopicPartition, int] = {}
        consumer.assign(list(starts))
        for part, start in starts.items():
            consumer.seek(part, start)
        deadline = time.monotonic() + REQUEST_MS / 1000
        while any(consumer.position(part) < stops[part] for part in starts):
            if time.monotonic() > deadline:
                raise UnavailableError(
                    f"cannot find the last record of {next(iter(starts)).topic} on "
                    f"{self._settings.bootstrap} in {REQUEST_MS} ms"
                )
            for part, records in consumer.poll(timeout_ms=20).items():
                below = [record.offset for record in records if record.offset < stops[part]]
                if below:
                    last[part] = below[-1]
        consumer.unsubscribe()
        return last

    def _trim(self, part: TopicPartition, before: int) -> None:
        begin = self._a_consumer().beginning_offsets([part])[part]
        if before <= begin:
            return
        result: Any = self._an_admin().delete_records({part: before})
        code = result[part]["error_code"]
        if code:
            raise for_code(code)(f"{part.topic}/{part.partition}")

    def _a_consumer(self) -> KafkaConsumer:
        if self._consumer is None:
            self._consumer = a_consumer(self._settings)
        return self._consumer

    def _an_admin(self) -> KafkaAdminClient:
        if self._admin is None:
            self._admin = KafkaAdminClient(**self._settings.client())
        return self._admin

    def _forget(self) -> None:
        consumer, admin = self._consumer, self._admin
        self._consumer = self._admin = None
        if consumer is not None:
            consumer.close(autocommit=False, timeout_ms=1000)
        if admin is not None:
            admin.close()
