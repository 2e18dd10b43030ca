"""The one writer of `objects` and `objects.index`: changes in, transactions out."""

import asyncio
import random
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

import msgspec

from kai_es.events.catalogue import OBJECTS, OBJECTS_INDEX, TOPICS
from kai_es.events.codec import pack
from kai_es.events.envelope import Envelope
from kai_es.events.objects import Alive, KindAlive, Listed, ObjectDeleted, ObjectSeen
from kai_es.intake import metrics
from kai_es.intake.history import History
from kai_es.ports.backoff import Backoff
from kai_es.ports.clock import Clock
from kai_es.ports.errors import UnavailableError
from kai_es.ports.eventlog import Epoch, EventLog, Lease, Out, check_lease

BATCH_RECORDS: Final = 500  # objects in a transaction; each is also a record of the index
BATCH_BYTES: Final = 4 * 2**20  # as a batch of `snapshot`
QUEUE_RECORDS: Final = 2_000  # four batches: enough that the next is ready when one is durable
ALIVE: Final = "Alive"  # key of these marks, in `objects.index` too
LISTED: Final = "Listed"

PARTITIONS: Final = TOPICS[OBJECTS].partitions


class Change(NamedTuple):
    """Something that happened at `at_ms`.

    rv:     position that its kind has reached with it, 0 = none: lists do not come in order.
    record: None = only the position moved.
    """

    kind: str
    incarnation: int
    rv: int
    at_ms: int
    record: ObjectSeen | ObjectDeleted | Listed | None


class Publisher:
    """Appends changes in the order they are put, as many at once as have gathered.

    A batch never waits for company: while one becomes durable, the next gathers.

    Args:
        cluster: name of the cluster, part of record ids.
        holder: who writes.
        history: whose incarnation `Alive` names.
        rvs: kind -> how far its history had come when this process took over.
    """

    def __init__(
        self,
        eventlog: EventLog,
        *,
        epoch: Epoch,
        lease: Lease,
        clock: Clock,
        cluster: str,
        holder: str,
        history: History,
        rvs: Mapping[str, int],
    ) -> None:
        self.seen_ms: dict[str, int] = {}
        """Kind -> time of its last event or bookmark; kept by whoever watches it."""
        self.others = 0
        """Open bind requests of another scheduler; kept by whoever looks for them."""
        self._rvs: dict[str, int] = {}
        self._before = dict(rvs)
        self._rvs_of = history.incarnation
        self._history = history
        self._eventlog = eventlog
        self._epoch = epoch
        self._lease = lease
        self._clock = clock
        self._cluster = cluster
        self._producer = f"informer/{holder}"
        self.rng = random.Random(self._producer)
        """Jitter of back-offs: another one in each process."""
        self._queue: deque[Change] = deque()
        self._put = 0
        self._done = 0
        self._alive_due = False
        self._wake = asyncio.Event()
        self._moved = asyncio.Condition()
        self.trouble = ""
        """Why the log does not take changes, "" = it does."""

    async def put(self, changes: Iterable[Change]) -> None:
        """Enqueue; waits while the queue is over its limit."""
        before = len(self._queue)
        self._queue.extend(changes)
        self._put += len(self._queue) - before
        metrics.QUEUE.set(len(self._queue))
        self._wake.set()
        if len(self._queue) > QUEUE_RECORDS:
            async with self._moved:
                await self._moved.wait_for(lambda: len(self._queue) <= QUEUE_RECORDS)

    async def flush(self) -> None:
        """Return when everything that has been put is durable."""
        target = self._put
        async with self._moved:
            await self._moved.wait_for(lambda: self._done >= target)

    def say_alive(self) -> None:
        """Put an `Alive` into the next batch."""
        self._alive_due = True
        self._wake.set()

    async def run(self) -> None:
        """Append for ever.

        Raises:
            FencedError: somebody else leads, or an outcome is unknown: the process ends.
        """
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._queue or self._alive_due:
                await self._append_some()

    async def _append_some(self) -> None:
        alive, self._alive_due = self._alive_due, False
        batch, changes, rvs = self._batch(alive=alive)
        await self._append(batch)
        self._rvs = rvs
        self._done += len(changes)
        for _ in changes:
            self._queue.popleft()
        metrics.QUEUE.set(len(self._queue))
        for change in changes:
            if change.record is not None:
                schema = str(change.record.__struct_config__.tag)
                metrics.RECORDS.labels(change.kind, schema).inc()
        async with self._moved:
            self._moved.notify_all()

    async def _append(self, batch: Sequence[Out]) -> None:
        """One transaction; an unavailable log has not taken it, so it is tried again."""
        backoff = Backoff(0.1, 5.0, self.rng)
        while batch:
            check_lease(self._lease, "the informer")
            try:
                await self._eventlog.append(self._epoch, batch)
            except UnavailableError as exc:
                self.trouble = str(exc)
                await self._clock.sleep(backoff.next_s())
            else:
                self.trouble = ""
                return

    def _batch(self, *, alive: bool) -> tuple[list[Out], list[Change], dict[str, int]]:
        """The next records, the changes at the head of the queue that they are made of, new rvs."""
        now_ms = self._clock.now_ms()
        out: list[Out] = []
        changes: list[Change] = []
        size = 0
        rvs = self._present_rvs()
        progress = alive
        for change in self._queue:
            if len(changes) >= BATCH_RECORDS or size >= BATCH_BYTES:
                break
            changes.append(change)
            record = change.record
            listed = isinstance(record, Listed)
            if (listed or change.kind in rvs) and change.incarnation == self._rvs_of:
                rvs[change.kind] = max(change.rv, rvs.get(change.kind, 0))
            if isinstance(record, Listed):
                out += self._marks(record, f"{LISTED}/{record.kind}", now_ms)
            elif record is not None:
                envelope = self._object(change, record, now_ms)
                size += len(envelope.data)
                out += _both_topics(record, envelope)
            progress = progress or listed or isinstance(record, ObjectDeleted)
        if progress:
            out += self._progress(rvs, now_ms, everywhere=alive)
        return out, changes, rvs

    def _present_rvs(self) -> dict[str, int]:
        """A copy of the listed kinds' positions; in a new incarnation there are none yet."""
        if self._rvs_of != self._history.incarnation:
            self._rvs_of = self._history.incarnation
            self._rvs, self._before = {}, {}
            metrics.INCARNATION.set(self._rvs_of)
        return dict(self._rvs)

    def _object(self, change: Change, record: ObjectSeen | ObjectDeleted, now_ms: int) -> Envelope:
        word = "deleted" if isinstance(record, ObjectDeleted) else "seen"
        history = f"{self._cluster}.{record.incarnation}"
        return pack(
            record,
            topic=OBJECTS,
            record_id=f"{history}/{record.kind}/{record.uid}/{record.rv}/{word}",
            event_time=change.at_ms,
            ingest_time=now_ms,
            producer=self._producer,
        )

    def _progress(self, rvs: Mapping[str, int], now_ms: int, *, everywhere: bool) -> list[Out]:
        """`Alive` for the index, and where it is due for every partition of `objects`.

        The index has it with every delete: a tombstone does not tell how far history had come.
        """
        out = self._marks(self._alive(rvs), ALIVE, now_ms) if everywhere else []
        index = self._alive({**self._before, **rvs})
        return [*out, Out(OBJECTS_INDEX, ALIVE, 0, self._mark(index, ALIVE, 0, now_ms))]

    def _alive(self, rvs: Mapping[str, int]) -> Alive:
        kinds = tuple(
            KindAlive(kind, rv, self.seen_ms.get(kind, 0)) for kind, rv in sorted(rvs.items())
        )
        return Alive(incarnation=self._rvs_of, kinds=kinds, others=self.others)

    def _marks(self, record: msgspec.Struct, key: str, now_ms: int) -> list[Out]:
        return [
            Out(OBJECTS, key, partition, self._mark(record, key, partition, now_ms))
            for partition in range(PARTITIONS)
        ]

    def _mark(self, record: msgspec.Struct, key: str, partition: int, now_ms: int) -> Envelope:
        return pack(
            record,
            topic=OBJECTS,
            record_id=f"{self._producer}/{partition}/{now_ms}/{key}",
            event_time=now_ms,
            ingest_time=now_ms,
            producer=self._producer,
        )


def _both_topics(record: ObjectSeen | ObjectDeleted, envelope: Envelope) -> tuple[Out, Out]:
    """The change for `objects`; for the index the last version, or a tombstone."""
    key = f"{record.kind}/{record.uid}"
    kept = envelope if isinstance(record, ObjectSeen) else None
    return Out(OBJECTS, key, None, envelope), Out(OBJECTS_INDEX, key, None, kept)
