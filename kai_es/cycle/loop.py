"""The loop of one reign: when a cycle starts, what it is given, and how it is published."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Final, NamedTuple

import msgspec

from kai_es.cycle.gate import config_problem, judge
from kai_es.cycle.machine import machine_note
from kai_es.cycle.records import Manner, gate_record, to_records
from kai_es.cycle.status import SchedulerStatus
from kai_es.cycle.takeover import Power
from kai_es.cycle.timers import Timers, durations_of
from kai_es.cycle.turn import Decide, turn
from kai_es.cycle.usage import UsageFeed
from kai_es.events.catalogue import DECISIONS
from kai_es.events.decisions import Bind, Cycle, CycleInputs, Evict, Gate, GateChange, Verdict
from kai_es.events.snapshot import Batch
from kai_es.ports.clock import Clock, wait_for
from kai_es.ports.errors import FencedError, UnavailableError
from kai_es.ports.eventlog import EventLog, Lease, Out, check_lease
from kai_es.ports.race import race
from kai_es.reader.view import View
from kai_es.scheduler import decide as real_decide
from kai_es.snapshot.reigns import Shard
from kai_es.snapshot.world import Applied, World

APART_S: Final = 0.050
"""Cycles start at least this far apart."""

REST_MAX_S: Final = 1.0
"""A cycle that orders nothing is followed by a rest as long as it took, at most this: the
reference's period of cycles. Its cost is taken from the parts that carry out the one before."""

TICK_S: Final = 0.2
"""How often gate and timers are looked at while nothing happens."""

RETRY_S: Final = 0.5

Offload = Callable[[Callable[[], Cycle]], Awaitable[Cycle]]
Listener = Callable[[Cycle], None]


class Setting(NamedTuple):
    """What a scheduler works with.

    log:       where `snapshot` is read and decisions go.
    clock:     for cycle times, the gate and leases.
    view:      on that log, not running yet.
    shard:     its name, also that of its configuration.
    partition: of `decisions`, the shard's own by configuration.
    usage:     decayed usage, None = no time-based fair share.
    flags:     rule flags in force, sorted.
    decide:    the decision function.
    offload:   runs a decision off the event loop.
    """

    log: EventLog
    clock: Clock
    view: View
    shard: str
    partition: int
    usage: UsageFeed | None = None
    flags: tuple[str, ...] = ()
    decide: Decide = real_decide
    offload: Offload = asyncio.to_thread


class CycleLoop:
    """Runs cycles for one reign. Make it before the view runs, so that it misses no change."""

    def __init__(self, setting: Setting, status: SchedulerStatus) -> None:
        self._set = setting
        self._status = status
        self._timers = Timers(setting.view.world.snapshot)
        self._listeners: list[Listener] = []
        self._news = asyncio.Event()
        self._stopping = asyncio.Event()
        self._changed = True
        self._earliest_s = float("-inf")
        setting.view.listen(self._applied)

    def listen(self, listener: Listener) -> None:
        """Call this after each cycle is durable."""
        self._listeners.append(listener)

    def note_change(self) -> None:
        """Something that decisions depend on, other than rows, is new."""
        self._changed = True
        self._news.set()

    def stop(self) -> None:
        """Let `run` return when nothing is on its way any more."""
        self._stopping.set()
        self._news.set()

    async def run(self, power: Power, lease: Lease) -> None:
        """Decide until told to stop.

        Raises:
            FencedError: another leader reigns, or the lease is too old.
        """
        self.note_change()
        while not self._stopping.is_set():
            try:
                out, cycle = await self._turn(power)
                if out:
                    await self._publish(power, lease, out, cycle)
                self._status.trouble = ""
            except UnavailableError as exc:
                self._status.trouble = str(exc)
                self._changed = True
                await self._set.clock.sleep(RETRY_S)
            await self._wait()

    def _applied(self, applied: Applied, batch: Batch) -> None:
        del batch
        if applied.changed or any(shard != self._set.shard for shard in applied.decided):
            self.note_change()

    async def _wait(self) -> None:
        """Return when a cycle may be due."""
        clock = self._set.clock
        await wait_for(self._news, clock=clock, seconds=TICK_S)
        rest_s = self._earliest_s - clock.monotonic_s()
        if rest_s > 0:
            await race(clock.sleep(rest_s), self._stopping.wait())

    async def _turn(self, power: Power) -> tuple[Sequence[Out], Cycle | None]:
        """What is to be published now: a cycle, a change of the verdict, or nothing."""
        here = self._set
        async with here.view.still() as world:
            shard = world.reigns.shards[here.shard]
            if shard.epoch != power.reign.epoch:
                raise FencedError(
                    f"{here.shard}: reign {shard.epoch} has followed {power.reign.epoch}"
                )
            if not self._stopping.is_set():
                self._news.clear()
            clock_ms = here.clock.now_ms()
            gate = judge(world, shard=here.shard, now_ms=clock_ms, skew_ms=here.view.skew_ms())
            self._status.gate = gate
            self._status.config_problem = config_problem(world, here.shard)
            now_ms = max(clock_ms, world.time, shard.now_ms)
            if gate.verdict is Verdict.CLOSED or not self._is_due(world, shard, gate, now_ms):
                return self._gate_change(power, shard, gate, now_ms), None
            cycle = await self._decide(world, power, self._inputs(shard, gate, now_ms))
            config = world.snapshot.config(here.shard)
        settings = {} if config is None else config.settings
        records = to_records(
            cycle,
            partition=here.partition,
            ingest_ms=here.clock.now_ms(),
            manner=Manner.of(settings),
        )
        return records, cycle

    def _is_due(self, world: World, shard: Shard, gate: Gate, now_ms: int) -> bool:
        if self._changed or shard.resume or gate.verdict < shard.gate.verdict:
            return True
        config = world.snapshot.config(self._set.shard)
        if config is not None:
            self._timers.configure(durations_of(config))
        due_ms = self._timers.next_ms(shard.now_ms)
        return due_ms is not None and due_ms <= now_ms

    def _gate_change(self, power: Power, shard: Shard, gate: Gate, now_ms: int) -> Sequence[Out]:
        """A change of the verdict is recorded even when no cycle runs."""
        if gate == shard.gate:
            return ()
        here = self._set
        change = GateChange(shard=here.shard, epoch=power.reign.epoch, time=now_ms, gate=gate)
        return [gate_record(change, partition=here.partition, ingest_ms=here.clock.now_ms())]

    def _inputs(self, shard: Shard, gate: Gate, now_ms: int) -> CycleInputs:
        usage = self._set.usage
        if usage is None:
            return CycleInputs(
                shard=shard.name,
                cycle=shard.next_cycle,
                now_ms=now_ms,
                gate=gate,
                flags=self._set.flags,
            )
        return CycleInputs(
            shard=shard.name,
            cycle=shard.next_cycle,
            now_ms=now_ms,
            gate=gate,
            usage={queue: dict(of) for queue, of in usage.latest.by_queue.items()},
            usage_as_of=usage.latest.as_of,
            usage_stale=usage.is_stale(now_ms),
            flags=self._set.flags,
        )

    async def _decide(self, world: World, power: Power, inputs: CycleInputs) -> Cycle:
        here = self._set
        config = world.snapshot.config(here.shard)
        assert config is not None, "the gate is closed without a configuration"
        self._changed = False
        start_s = here.clock.monotonic_s()
        cycle = await here.offload(
            partial(turn, world, config, inputs, epoch=power.reign.epoch, decide=here.decide)
        )
        end_s = here.clock.monotonic_s()
        rest_s = 0.0 if cycle.decision.ops else min(end_s - start_s, REST_MAX_S)
        self._earliest_s = max(start_s + APART_S, end_s + rest_s)
        took_ms = (end_s - start_s) * 1000
        self._status.took_ms = took_ms
        return msgspec.structs.replace(
            cycle, took_ms={"decide": round(took_ms, 3)}, runtime=machine_note()
        )

    async def _publish(
        self, power: Power, lease: Lease, out: Sequence[Out], cycle: Cycle | None
    ) -> None:
        """All or nothing; then wait until it has come back through the log."""
        here = self._set
        check_lease(lease, f"the scheduler of {here.shard}")
        positions = await here.log.append(power.epoch, out)
        own = zip(out, positions, strict=True)
        last = max(int(at) for record, at in own if record.topic == DECISIONS)
        if cycle is None:
            self._status.n_gate_changes += 1
        else:
            self._count(cycle)
            for listener in self._listeners:
                listener(cycle)
        passed = here.view.passed(DECISIONS, here.partition, last + 1)
        await race(passed, self._stopping.wait())

    def _count(self, cycle: Cycle) -> None:
        status = self._status
        status.cycle = cycle.cycle
        status.n_cycles += 1
        status.n_binds += sum(isinstance(op, Bind) for op in cycle.decision.ops)
        status.n_evicts += sum(isinstance(op, Evict) for op in cycle.decision.ops)
