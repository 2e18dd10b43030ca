"""Following partitions of a Kafka topic: one consumer and one thread for many reads."""

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from kafka import KafkaConsumer, TopicPartition
from kafka.errors import CorruptRecordError, LogTruncationError, OffsetOutOfRangeError

from kai_es.eventlog.batch import MAX_MESSAGE_BYTES
from kai_es.eventlog.kafka_client import KafkaSettings
from kai_es.eventlog.kafka_errors import LIBRARY_ERRORS, mapped
from kai_es.ports.errors import CorruptLogError, UnavailableError
from kai_es.ports.eventlog import Entry, Position

CHUNK: Final = 2_000
"""Entries per chunk, as many as a snapshot batch holds rows."""

QUEUED_MAX: Final = 2 * CHUNK
QUEUED_BYTES_MAX: Final = 2 * MAX_MESSAGE_BYTES
"""What one read may have fetched ahead, entries or bytes; then its partition pauses."""

FETCH_WAIT_MS: Final = 100
"""How long the broker holds an empty fetch. A new read waits for the end of it."""

SILENCE_S: Final = 5.0
"""After this long without a record the broker is asked for a sign of life."""

_POLL_MS: Final = 50
_CONSUMER: Final[Mapping[str, Any]] = {
    "group_id": None,
    "metrics_enabled": False,
    "enable_auto_commit": False,
    "auto_offset_reset": "none",
    "isolation_level": "read_committed",
    "allow_auto_create_topics": False,
    "fetch_max_wait_ms": FETCH_WAIT_MS,
    "max_partition_fetch_bytes": 4 * 1024 * 1024,
    "max_poll_records": CHUNK,
}


def a_consumer(settings: KafkaSettings) -> KafkaConsumer:
    """A consumer of committed records, with partitions assigned by hand."""
    return KafkaConsumer(**settings.client(**_CONSUMER))


def an_entry(record: Any) -> Entry:
    """The stored record."""
    return Entry(Position(record.offset), (record.key or b"").decode(), record.value)


class Amount(NamedTuple):
    """Entries and the bytes of their values."""

    entries: int
    size: int

    def plus(self, chunk: Sequence[Entry]) -> "Amount":
        """This and a chunk."""
        size = sum(len(entry.value) for entry in chunk if entry.value is not None)
        return Amount(self.entries + len(chunk), self.size + size)


class Feed:
    """What one read has fetched and not yet taken. Filled by a thread, emptied by a coroutine."""

    def __init__(self, part: TopicPartition, start: int) -> None:
        self.part = part
        self.start = start
        self.error: Exception | None = None
        self._chunks: deque[list[Entry]] = deque()
        # Each counter is written by one side only.
        self._put = self._taken = Amount(0, 0)
        self._loop = asyncio.get_running_loop()
        self._filled = asyncio.Event()

    def put(self, entries: list[Entry]) -> None:
        """Add a chunk. Called by the thread."""
        self._put = self._put.plus(entries)
        self._chunks.append(entries)
        self._wake()

    def fail(self, error: Exception) -> None:
        """End the read with an error, after what was fetched. Called by the thread."""
        self.error = error
        self._wake()

    def _wake(self) -> None:
        try:
            self._loop.call_soon_threadsafe(self._filled.set)
        except RuntimeError:
            self.error = UnavailableError("the event loop has ended")

    async def take(self, timeout_s: float) -> Sequence[Entry]:
        """The next chunk, empty when none came in time.

        Raises:
            OffsetOutOfRangeError: the position is not there; the caller knows why.
            UnavailableError, CorruptLogError: see the port.
        """
        if not self._chunks and self.error is None:
            self._filled.clear()
            if not self._chunks and self.error is None:
                timer = self._loop.call_later(timeout_s, self._filled.set)
                await self._filled.wait()
                timer.cancel()
        if self._chunks:
            chunk = self._chunks.popleft()
            self._taken = self._taken.plus(chunk)
            return chunk
        if self.error is not None:
            raise self.error
        return ()

    def is_full(self) -> bool:
        """Whether the thread should pause."""
        put, taken = self._put, self._taken
        return (
            put.entries - taken.entries >= QUEUED_MAX or put.size - taken.size >= QUEUED_BYTES_MAX
        )


class Fetcher:
    """A thread that fetches for the feeds it is given, at most one per partition."""

    def __init__(self, settings: KafkaSettings) -> None:
        self._settings = settings
        self._feeds: dict[TopicPartition, Feed] = {}
        self._changed = threading.Condition()
        self._closed = False
        self._heard = 0.0
        threading.Thread(target=self._run, name="log-reader", daemon=True).start()

    def add(self, feed: Feed) -> bool:
        """Fetch for this feed from now on; False when its partition is taken."""
        with self._changed:
            if feed.part in self._feeds:
                return False
            self._feeds[feed.part] = feed
            self._changed.notify()
            return True

    def remove(self, feed: Feed) -> None:
        """Fetch for it no more."""
        with self._changed:
            if self._feeds.get(feed.part) is feed:
                del self._feeds[feed.part]

    def close(self) -> None:
        """End the thread; what it has fetched stays in the feeds."""
        with self._changed:
            self._closed = True
            self._changed.notify()

    def _run(self) -> None:
        consumer: KafkaConsumer | None = None
        seen: dict[TopicPartition, Feed] = {}
        while feeds := self._wanted():
            try:
                if consumer is None:
                    seen = {}
                    self._heard = time.monotonic()
                    consumer = a_consumer(self._settings)
                seen = _assign(consumer, seen, feeds)
                self._turn(consumer, feeds)
            except OffsetOutOfRangeError as exc:
                for part in exc.args[0]:
                    self._fail(feeds[part], exc)
            except LIBRARY_ERRORS as exc:
                self._fail_all(feeds, exc)
                _close(consumer)
                consumer = None
        _close(consumer)

    def _wanted(self) -> dict[TopicPartition, Feed]:
        """The feeds to fetch for; waits for one; empty = the end."""
        with self._changed:
            while not self._feeds and not self._closed:
                self._changed.wait()
            return {} if self._closed else dict(self._feeds)

    def _turn(self, consumer: KafkaConsumer, feeds: Mapping[TopicPartition, Feed]) -> None:
        full = {part for part, feed in feeds.items() if feed.is_full()}
        paused = consumer.paused()
        consumer.pause(*(full - paused))
        consumer.resume(*(paused - full))
        polled = consumer.poll(timeout_ms=_POLL_MS)
        for part, records in polled.items():
            feeds[part].put([an_entry(record) for record in records])
        now = time.monotonic()
        if polled:
            self._heard = now
        elif now - self._heard > SILENCE_S:
            # A consumer whose broker is away looks like one that has nothing to read.
            consumer.end_offsets([next(iter(feeds))])
            self._heard = time.monotonic()

    def _fail(self, feed: Feed, error: Exception) -> None:
        self.remove(feed)
        feed.fail(error)

    def _fail_all(self, feeds: Mapping[TopicPartition, Feed], exc: Exception) -> None:
        """End the reads: for good where a record is damaged, else until their next try."""
        damaged = isinstance(exc, CorruptRecordError | LogTruncationError)
        for part, feed in feeds.items():
            error = mapped(exc, f"read {part.topic}/{part.partition} on {self._settings.bootstrap}")
            if damaged and repr(part) not in str(exc) and isinstance(error, CorruptLogError):
                error = UnavailableError(f"{error} (met while reading another partition)")
            self._fail(feed, error)


def _assign(
    consumer: KafkaConsumer,
    seen: Mapping[TopicPartition, Feed],
    feeds: dict[TopicPartition, Feed],
) -> dict[TopicPartition, Feed]:
    """Make the consumer read for these feeds; the position of those it knows stays."""
    if seen == feeds:
        return feeds
    consumer.assign(list(feeds))
    for part, feed in feeds.items():
        if seen.get(part) is not feed:
            consumer.seek(part, feed.start)
    return feeds


def _close(consumer: KafkaConsumer | None) -> None:
    if consumer is not None:
        close: Callable[..., None] = consumer.close
        close(autocommit=False, timeout_ms=1000)
