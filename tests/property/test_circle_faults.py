"""The whole circle while the log misbehaves and its parts die: what a log can show still holds."""

import asyncio
import random

from hypothesis import given, settings
from hypothesis import strategies as st

from kai_es.audit.cycles import recorded_cycles
from kai_es.audit.replay import replay
from kai_es.audit.verify import verify
from kai_es.eventlog.faults import LogFaults
from kai_es.eventlog.memory import MemoryLeadership, MemoryLog, MemoryStore
from kai_es.ports.errors import FencedError
from kai_es.snapshot.status import TaskStatus
from streams.snapshot import SnapshotStream
from tests.histories.circle import (
    Binder,
    Informer,
    a_cluster,
    a_scheduler,
    first_fit,
    raw_group,
    some_pods,
)
from tests.histories.logs import folded, running
from tests.histories.virtual import LoopClock, run_virtual


async def reborn(make, leadership, name, rng, *, healed):
    """A service that exits when fenced and dies now and then; a supervisor starts it again."""
    for life in range(10_000):
        holder = f"{name}-{life}"
        task = asyncio.ensure_future(make(holder).run())
        end_s = asyncio.get_running_loop().time() + rng.uniform(0.05, 3.0)
        try:
            while not task.done() and (healed.is_set() or _now() < end_s):
                await asyncio.wait([task], timeout=0.05)
        finally:
            leadership.crash(holder)
            task.cancel()
            (outcome,) = await asyncio.gather(task, return_exceptions=True)
        if isinstance(outcome, Exception) and not isinstance(outcome, FencedError):
            raise outcome
        await asyncio.sleep(rng.choice((0.0, 0.2)))


def _now():
    return asyncio.get_running_loop().time()


class Stubborn:
    """A log for the made-up informer and binder: their appends never fail, so they need not die."""

    def __init__(self, store):
        self.store = store
        self.log = MemoryLog(store=store)

    def __getattr__(self, name):
        return getattr(self.log, name)

    async def append(self, epoch, batch):
        try:
            return await self.log.append(epoch, batch)
        except FencedError:
            return []  # stored all the same, says the fault


async def world_with(seed, faults):
    store = MemoryStore(faults=faults)
    rng = random.Random(seed)
    leadership = MemoryLeadership(lease_s=0.4)
    clock = LoopClock()
    informer = Informer(Stubborn(store), clock)
    binder = Binder(Stubborn(store), informer, clock, seed=seed, trouble=0.1)
    healed = asyncio.Event()

    def a_stream(holder):
        return SnapshotStream(
            log=MemoryLog(store=store), leadership=leadership, clock=clock, holder=holder
        )

    def scheduler(holder):
        return a_scheduler(MemoryLog(store=store), leadership, clock, holder=holder)

    await a_cluster(informer, n_nodes=3, cpu=32)
    async with running(
        informer.run(),
        binder.run(),
        *(
            reborn(make, leadership, f"{name}{n}", random.Random(rng.random()), healed=healed)
            for make, name in ((a_stream, "stream"), (scheduler, "sched"))
            for n in range(2)
        ),
    ):
        for n in range(12):
            await informer.put("PodGroup", raw_group(f"g{n}", min_member=2))
            await informer.put("Pod", *some_pods(f"g{n}", 2))
            await asyncio.sleep(rng.uniform(0, 0.5))
        store.plan = type(store.plan)(None)
        healed.set()
        for _ in range(120):
            await asyncio.sleep(1)
            world, _, _ = await folded(MemoryLog(store=store))
            states = [row.state.status for row in world.snapshot.pods.values()]
            if len(states) == 24 and set(states) == {TaskStatus.RUNNING}:
                break
    return store, binder, states


@given(seed=st.integers(0, 2**32))
@settings(max_examples=12)
def test_invariants_hold_while_parts_die_and_all_is_placed_once_they_live(seed):
    faults = LogFaults(seed=seed, unknown_rate=0.2, fenced_rate=0.02)

    async def scenario():
        store, binder, states = await world_with(seed, faults)
        assert len(states) == 24
        assert set(states) == {TaskStatus.RUNNING}
        assert len(binder.binds) == len(set(binder.binds)) == 24
        log = MemoryLog(store=store)
        report = await verify(log)
        assert [v for v in report.violations if v.invariant != "3"] == []
        cycles = await recorded_cycles(log)
        results = [found async for found in replay(log, cycles, decide=first_fit)]
        assert len(results) == len(cycles)
        assert [r.difference for r in results if not r.is_identical] == []

    run_virtual(scenario())
