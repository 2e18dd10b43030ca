"""EventLog and Leadership in memory: for tests, simulation and what-if.

Nothing awaits between looking and storing, and all waiting goes by the event loop's clock, so a
simulation with virtual time is deterministic.
"""

import asyncio
from bisect import bisect_left
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from operator import attrgetter
from typing import Final, NamedTuple

from kai_es.eventlog.batch import Coded, code_batch, code_one
from kai_es.eventlog.faults import Fate, FaultPlan, LogFaults
from kai_es.eventlog.lease import LEASE_S, RETRY_S, RenewedLease
from kai_es.eventlog.tail import IDLE_S, Tail
from kai_es.events.catalogue import TOPICS, Topic
from kai_es.events.envelope import Envelope
from kai_es.ports.errors import CorruptLogError, FencedError, GoneError, UnavailableError
from kai_es.ports.eventlog import Entry, Epoch, Out, Position

CHUNK: Final = 2_000
"""Entries per chunk, as many as a snapshot batch holds rows."""

_HELD_POLL_S: Final = 0.01

Part = tuple[str, int]
_position = attrgetter("position")


class _Hold(NamedTuple):
    """Entries from `position` on are not visible before `until` (seconds of the loop's clock)."""

    position: int
    until: float
    producer_id: str


class _Partition:
    """Entries in order; `begin` is the first position kept, `next` the first one not given."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.latest: dict[str, int] = {}
        self.holds: list[_Hold] = []
        self.begin = 0
        self.next = 0

    def index(self, position: int) -> int:
        return bisect_left(self.entries, position, key=_position)

    def horizon(self, now: float) -> int:
        """Entries below it are visible at `now`."""
        self.holds = [hold for hold in self.holds if hold.until > now]
        return min((hold.position for hold in self.holds), default=self.next)

    def drop(self, position: int) -> None:
        found = self.index(position)
        if found < len(self.entries) and self.entries[found].position == position:
            del self.entries[found]


class MemoryStore:
    """What outlives its handles, as a broker outlives its clients.

    idle_s: how often a follower looks up; a simulation of long times may let it sleep longer.
    """

    def __init__(
        self,
        *,
        topics: Mapping[str, Topic] = TOPICS,
        faults: LogFaults | None = None,
        idle_s: float = IDLE_S,
    ) -> None:
        self.topics = topics
        self.idle_s = idle_s
        self.plan = FaultPlan(faults)
        self.epochs: dict[str, int] = {}
        self.tail: Tail[Part] = Tail()
        self.partitions: dict[Part, _Partition] = {
            (topic.name, number): _Partition()
            for topic in topics.values()
            for number in range(topic.partitions)
        }

    def store(
        self, records: Sequence[Coded], *, producer_id: str, delays_ms: Mapping[Part, int]
    ) -> list[Position]:
        """Append, hide what is to be seen late, and wake followers."""
        now = asyncio.get_running_loop().time()
        touched = _parts(records)
        for part, delay_ms in delays_ms.items():
            partition = self.partitions[part]
            until = now + delay_ms / 1000
            partition.holds.append(_Hold(partition.next, until, producer_id))
        positions = [self._store_one(record) for record in records]
        for part in touched:
            self.partitions[part].next += self.plan.gap()
        self.tail.moved({part: self.partitions[part].next for part in touched})
        return positions

    def _store_one(self, record: Coded) -> Position:
        partition = self.partitions[record.topic, record.partition]
        position = Position(partition.next + self.plan.gap())
        partition.next = position + 1
        if self.topics[record.topic].compacted:
            former = partition.latest.get(record.key)
            partition.latest[record.key] = position
            # As long as something is held back, the former entry is the one that readers see.
            if former is not None and not partition.holds:
                partition.drop(former)
        partition.entries.append(Entry(position, record.key, record.value))
        return position

    def release(self, producer_id: str) -> None:
        """Make all transactions of a producer visible, as a broker does before a take-over."""
        for partition in self.partitions.values():
            partition.holds = [h for h in partition.holds if h.producer_id != producer_id]
        self.tail.wake_all()


class MemoryLog:
    """EventLog over a `MemoryStore`; several logs on one store are several clients."""

    def __init__(
        self,
        *,
        store: MemoryStore | None = None,
        topics: Mapping[str, Topic] = TOPICS,
        faults: LogFaults | None = None,
    ) -> None:
        self.store = store or MemoryStore(topics=topics, faults=faults)
        self._closed = False

    async def take_over(self, producer_id: str) -> Epoch:
        """See the port."""
        self._check_open()
        number = self.store.epochs.get(producer_id, 0) + 1
        self.store.epochs[producer_id] = number
        self.store.release(producer_id)
        return Epoch(producer_id, number)

    async def append(self, epoch: Epoch, batch: Sequence[Out]) -> Sequence[Position]:
        """See the port."""
        self._check_open()
        records = code_batch(batch, self.store.topics)
        newest = self.store.epochs.get(epoch.producer_id)
        if newest != epoch.number:
            raise FencedError(f"{epoch.producer_id}: epoch {epoch.number} is over, {newest} reigns")
        positions = self.store.store(
            records,
            producer_id=epoch.producer_id,
            delays_ms=self.store.plan.delays_ms(_parts(records)),
        )
        self.store.plan.lose_answer(epoch.producer_id)
        return positions

    async def append_one(self, topic: str, key: str, envelope: Envelope) -> Position:
        """See the port."""
        self._check_open()
        record = code_one(topic, key, envelope, self.store.topics)
        fate = self.store.plan.fate()
        positions = self.store.store([record] * fate.copies(), producer_id="", delays_ms={})
        if fate is not Fate.ACKNOWLEDGED:
            raise UnavailableError(f"outcome of an append to {topic} unknown (injected)")
        return positions[0]

    async def read(
        self, topic: str, partition: int, start: Position, *, follow: bool
    ) -> AsyncIterator[Sequence[Entry]]:
        """See the port."""
        self._check_open()
        part = (topic, partition)
        source = self.store.partitions[part]
        now = asyncio.get_running_loop().time
        stop = None if follow else source.horizon(now())
        position: int = start
        while not (follow and self._closed):
            self._check_open()
            known = source.next
            _check_start(part, source, position)
            horizon = source.horizon(now()) if stop is None else stop
            first = source.index(position)
            chunk = source.entries[first : min(first + CHUNK, source.index(horizon))]
            if chunk:
                position = chunk[-1].position + 1
                yield chunk
            elif stop is not None:
                return
            else:
                yield ()
                idle_s = _HELD_POLL_S if source.holds else self.store.idle_s
                await self.store.tail.beyond(part, known, idle_s)

    async def begin(self, topic: str) -> Mapping[int, Position]:
        """See the port."""
        self._check_open()
        return {number: Position(part.begin) for number, part in self._of(topic)}

    async def end(self, topic: str) -> Mapping[int, Position]:
        """See the port."""
        self._check_open()
        now = asyncio.get_running_loop().time()
        ends = {}
        for number, part in self._of(topic):
            visible = part.index(part.horizon(now))
            last = part.entries[visible - 1].position if visible else -1
            ends[number] = Position(max(part.begin, last + 1))
        return ends

    async def trim(self, topic: str, partition: int, before: Position) -> None:
        """See the port."""
        self._check_open()
        part = self.store.partitions[topic, partition]
        before = min(before, (await self.end(topic))[partition])
        if before > part.begin:
            del part.entries[: part.index(before)]
            part.begin = before

    async def close(self) -> None:
        """See the port. Only this handle; the store stays."""
        self._closed = True
        self.store.tail.wake_all()

    def _of(self, topic: str) -> Iterable[tuple[int, _Partition]]:
        for number in range(self.store.topics[topic].partitions):
            yield number, self.store.partitions[topic, number]

    def _check_open(self) -> None:
        if self._closed:
            raise UnavailableError("this log is closed")


def _parts(records: Iterable[Coded]) -> list[Part]:
    return list(dict.fromkeys((record.topic, record.partition) for record in records))


def _check_start(part: Part, partition: _Partition, start: int) -> None:
    topic, number = part
    if start < partition.begin:
        raise GoneError(
            f"{topic}/{number}: entries from {start} on are asked for, but those below "
            f"{partition.begin} are no longer kept"
        )
    if start > partition.next:
        raise CorruptLogError(
            f"{topic}/{number}: position {start} was never written, the log ends at "
            f"{partition.next}; was it restored from an older copy?"
        )


class MemoryLeadership:
    """Leadership among the tasks of one event loop, with leases that run out as real ones do."""

    def __init__(self, *, lease_s: float = LEASE_S) -> None:
        self._lease_s = lease_s
        self._held: dict[str, tuple[int, float]] = {}
        self._given = 0
        self._leases: dict[str, list[RenewedLease]] = {}

    async def acquire(
        self, role: str, holder: str, waits: Callable[[], None] = lambda: None
    ) -> RenewedLease:
        """See the port."""
        loop = asyncio.get_running_loop()
        while role in self._held and self._held[role][1] > loop.time():
            waits()
            await asyncio.sleep(RETRY_S)
        self._given += 1
        number = self._given

        async def renew() -> bool:
            if self._held.get(role, (0, 0.0))[0] != number:
                return False
            self._held[role] = (number, loop.time() + self._lease_s)
            return True

        async def release() -> None:
            if self._held.get(role, (0, 0.0))[0] == number:
                del self._held[role]

        self._held[role] = (number, loop.time() + self._lease_s)
        lease = RenewedLease(role, renew, release, lease_s=self._lease_s)
        self._leases.setdefault(holder, []).append(lease)
        return lease

    def roles(self) -> list[str]:
        """Roles that are held, sorted."""
        return sorted(self._held)

    def forget(self, role: str) -> None:
        """Give the role to whoever asks next, though its holder has not let it go."""
        self._held.pop(role, None)

    def crash(self, holder: str) -> None:
        """The holder's process dies: its leases are neither renewed nor released."""
        for lease in self._leases.pop(holder, []):
            lease.abandon()
