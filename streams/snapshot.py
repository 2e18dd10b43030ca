"""The snapshot stream: folds objects, decisions and bind results into one ordered stream.

Own consumer loop on the EventLog port: every source partition is read from the cursors of the last
accepted batch, so the position is stored with the output. One writer is active by leadership; a
second one, a zombie or a repeated append does no harm, because readers accept one batch per `prev`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from kai_es.events.catalogue import DEAD_LETTER, SNAPSHOT
from kai_es.events.codec import pack
from kai_es.events.deadletter import DeadLetter
from kai_es.events.envelope import Envelope
from kai_es.ports.clock import Clock
from kai_es.ports.errors import UnavailableError
from kai_es.ports.eventlog import JOINS, EventLog, Leadership, Lease, check_lease
from kai_es.ports.race import race
from projectors.batching import batch_envelope, batch_of
from projectors.sources import SOURCES, Part, Unit
from streams.pump import Pump
from streams.tail import Tail

ROLE: Final = "snapshot"

BATCH_S: Final = 0.010
"""A batch is cut this long after the last one (architecture §2)."""

LINGER_S: Final = 0.002
"""The first record after a quiet time waits this long for those of its transaction."""

BACKOFF_FIRST_S: Final = 0.1
BACKOFF_MAX_S: Final = 5.0


@dataclass(slots=True)
class StreamStatus:
    """What health and metrics show.

    state:     standby | leading.
    trouble:   why it waits ("" = it does not).
    n_foreign: batches of another writer accepted while this one led.
    n_unknown: appends whose outcome had to be read back.
    """

    state: str = "standby"
    trouble: str = JOINS
    n_batches: int = 0
    n_rows: int = 0
    n_parked: int = 0
    n_foreign: int = 0
    n_unknown: int = 0
    n_retries: int = 0


class SnapshotStream:
    """The one service that writes `snapshot`.

    Args:
        log: where the sources are and the batches go.
        leadership: decides between this and its standby.
        clock: its wall clock becomes the log's.
        holder: name of this process, also the producer of its records.
    """

    def __init__(self, *, log: EventLog, leadership: Leadership, clock: Clock, holder: str) -> None:
        self.status = StreamStatus()
        self._log = log
        self._leadership = leadership
        self._clock = clock
        self._holder = holder
        self._tail = Tail(log, clock)
        self._pump: Pump | None = None
        self._in_flight_ms = 0
        self._cut_at = 0.0

    @property
    def n_rejected(self) -> int:
        """Batches that nobody accepts, seen since the start."""
        return self._tail.chain.n_rejected

    def lag_s(self) -> float:
        """Age of the oldest source record that is read but in no accepted batch, seconds."""
        waiting_ms = self._pump.oldest_ms() if self._pump is not None else 0
        oldest_ms = self._in_flight_ms or waiting_ms
        return max(self._clock.now_ms() - oldest_ms, 0) / 1000 if oldest_ms else 0.0

    async def run(self) -> None:
        """Follow, lead when it is this one's turn, until cancelled.

        Raises:
            FencedError: the lease is too old to go on: exit.
            PoisonError: a decision or result cannot be decoded, or needs a newer release.
            GoneError: a source no longer has what comes next.
            CorruptLogError, BrokenHistoryError: the log is damaged.
        """
        await race(self._tail.run(), self._take_turns())

    async def _take_turns(self) -> None:
        while True:
            try:
                lease = await self._leadership.acquire(ROLE, self._holder, self._waits)
            except UnavailableError as exc:
                self.status.trouble = str(exc)
                await self._clock.sleep(BACKOFF_MAX_S)
                continue
            self.status.state, self.status.trouble = "leading", ""
            try:
                await race(lease.lost(), self._lead(lease))
            finally:
                self.status.state = "standby"
                self._in_flight_ms = 0  # whoever leads now has it in hand
                await lease.release()

    def _waits(self) -> None:
        self.status.trouble = ""  # a standby that has joined says nothing for hours

    async def _lead(self, lease: Lease) -> None:
        """Write from wherever the history stands, again and again."""
        backoff_s = BACKOFF_FIRST_S
        while True:
            try:
                n_batches = self.status.n_batches
                await self._write(lease)
            except UnavailableError as exc:
                self.status.n_retries += 1
                self.status.trouble = str(exc)
                if self.status.n_batches > n_batches:
                    backoff_s = BACKOFF_FIRST_S
                await self._clock.sleep(backoff_s)
                backoff_s = min(backoff_s * 2, BACKOFF_MAX_S)

    async def _write(self, lease: Lease) -> None:
        """Write batches until one is not accepted."""
        end = await self._log.end(SNAPSHOT)
        await self._tail.reached(int(end[0]))
        place = self._place() if self._tail.chain.cursors else _Place(-1, await self._begin())
        pump = Pump(self._log, self._clock, place.cursors)
        self._pump, self._in_flight_ms = pump, 0
        try:
            await race(self._write_batches(lease, pump, place), *pump.readers())
        finally:
            self._pump = None

    def _place(self) -> "_Place":
        return _Place(self._tail.chain.offset, self._tail.chain.cursors)

    async def _begin(self) -> dict[Part, int]:
        """Where a history begins: at what the sources still have."""
        begins = {topic: await self._log.begin(topic) for topic in {topic for topic, _ in SOURCES}}
        return {(topic, partition): int(begins[topic][partition]) for topic, partition in SOURCES}

    async def _write_batches(self, lease: Lease, pump: Pump, place: "_Place") -> None:
        while True:
            await pump.ready()
            await pump.enough(max(LINGER_S, self._cut_at + BATCH_S - self._clock.monotonic_s()))
            self._cut_at = self._clock.monotonic_s()
            self._in_flight_ms = pump.oldest_ms()
            units = pump.take()
            for unit in units:
                for letter in unit.dead:
                    await self._bury(letter)
            if not await self._is_accepted(self._record(units, place), place, lease):
                self.status.n_foreign += 1
                return
            place = self._place()
            self._count(units)

    def _record(self, units: Sequence[Unit], place: "_Place") -> Envelope:
        """The batch that continues `place`, even if the history has gone on by now."""
        now_ms = self._clock.now_ms()
        batch = batch_of(
            units,
            prev=place.prev,
            time=max(self._tail.chain.time, now_ms),
            cursors=place.cursors,
        )
        return batch_envelope(batch, ingest_ms=now_ms, producer=self._holder)

    async def _is_accepted(self, record: Envelope, place: "_Place", lease: Lease) -> bool:
        """Append a batch and read it back; False = the history went on with another one.

        An append of unknown outcome is looked for, and repeated if nothing came: at most one of the
        copies is accepted.
        """
        while True:
            check_lease(lease, f"the {ROLE} stream")
            try:
                position = await self._log.append_one(SNAPSHOT, "", record)
                end = int(position) + 1
            except UnavailableError as exc:
                self.status.n_unknown += 1
                self.status.trouble = str(exc)
                await self._clock.sleep(BACKOFF_FIRST_S)
                end = int((await self._log.end(SNAPSHOT))[0])
            await self._tail.reached(end)
            if self._tail.chain.offset != place.prev:
                return self._tail.accepted_id == record.id

    async def _bury(self, letter: DeadLetter) -> None:
        """Keep the parked version where an operator finds it; repeats are harmless."""
        now_ms = self._clock.now_ms()
        envelope = pack(
            letter,
            topic=DEAD_LETTER,
            record_id=f"{letter.topic}/{letter.partition}/{letter.position}",
            event_time=now_ms,
            ingest_time=now_ms,
            producer=self._holder,
        )
        await self._log.append_one(DEAD_LETTER, letter.key, envelope)
        self.status.n_parked += 1

    def _count(self, units: Sequence[Unit]) -> None:
        self._in_flight_ms = 0
        self.status.trouble = ""
        self.status.n_batches += 1
        self.status.n_rows += sum(len(unit.rows) for unit in units)


class _Place(NamedTuple):
    """What the next batch continues: an accepted batch and the cursors it left, together."""

    prev: int
    cursors: Mapping[Part, int]
