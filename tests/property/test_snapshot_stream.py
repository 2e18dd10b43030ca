"""The snapshot stream against every fault of a log: everything once, in order, in one history."""

import asyncio
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kai_es.eventlog.faults import LogFaults
from kai_es.eventlog.memory import MemoryLeadership, MemoryLog, MemoryStore
from kai_es.events.catalogue import BIND_RESULTS, DECISIONS, OBJECTS
from kai_es.events.decisions import Cycle, Reason
from projectors.sources import SOURCES
from streams.snapshot import SnapshotStream
from tests.histories.builders import a_bind, a_cycle, a_node, a_pod, a_reign, bound
from tests.histories.logs import (
    answered,
    chunked,
    decided,
    folded,
    records,
    running,
    seen_pod,
    until_covered,
)
from tests.histories.virtual import LoopClock, run_virtual


class Anyone:
    """Leadership that lets everybody lead: the worst case of two leaders."""

    def __init__(self):
        self.leadership = MemoryLeadership()

    async def acquire(self, role, holder, waits):
        return await self.leadership.acquire(f"{role}-{holder}", holder, waits)


async def write_sources(log, rng, n_transactions):
    """Transactions over all sources; cycles in several chunks."""
    objects = await log.take_over("informer")
    scheduler = await log.take_over("scheduler")
    binder = await log.take_over("binder")
    await log.append(scheduler, [decided(a_reign())])
    cycle = 0
    for n in range(n_transactions):
        match rng.randrange(3):
            case 0:
                pods = [seen_pod(f"p{n}-{i}", rv=n * 10 + i) for i in range(rng.randint(1, 6))]
                await log.append(objects, pods)
            case 1:
                cycle += 1
                ops = [a_bind(a_pod(f"p{n}-{i}"), a_node()) for i in range(rng.choice((1, 3, 600)))]
                big = {"g": (Reason(code="x" * rng.choice((1, 700_000))),)}
                await log.append(scheduler, chunked(a_cycle(cycle, *ops, reasons=big)))
            case 2:
                result = bound(max(cycle, 1), a_pod(f"p{n}"), a_node())
                await log.append(binder, [answered(result, partition=rng.randrange(8))])
        if rng.random() < 0.5:
            await asyncio.sleep(rng.choice((0.0, 0.001, 0.02, 0.3)))


async def assert_all_once_in_order(log, accepted):
    """Every source record is in exactly one accepted batch, per partition in order."""
    covered = {part: [] for part in SOURCES}
    n_cycles = 0
    for _, batch in accepted:
        for row, origin in zip(batch.rows, batch.origins, strict=True):
            cursor = batch.cursors[origin.source]
            assert cursor.start <= origin.position < cursor.stop
            covered[cursor.topic, cursor.partition].append(origin.position)
            n_cycles += isinstance(row, Cycle)
    for part in SOURCES:
        written = [int(entry.position) for entry in await records(log, *part)]
        if part[0] == DECISIONS:
            assert set(covered[part]) <= set(written)  # a cycle's row stands at its last chunk
            assert covered[part] == sorted(set(covered[part]))
        else:
            assert covered[part] == written
    return n_cycles


@given(
    seed=st.integers(0, 2**32),
    n_writers=st.sampled_from((1, 2, 3)),
    unknown=st.sampled_from((0.0, 0.3)),
)
@settings(max_examples=25)
def test_every_source_record_is_accepted_once_whatever_the_log_does(seed, n_writers, unknown):
    async def scenario():
        faults = LogFaults(seed=seed, unknown_rate=unknown)
        store = MemoryStore(faults=faults)
        rng = random.Random(seed)
        streams = [
            SnapshotStream(
                log=MemoryLog(store=store),
                leadership=Anyone(),
                clock=LoopClock(skew_ms=rng.randint(-3000, 3000)),
                holder=f"s{n}",
            )
            for n in range(n_writers)
        ]
        log = MemoryLog(store=store)
        async with running(*(stream.run() for stream in streams)):
            await write_sources(log, rng, 30)
            await asyncio.sleep(0.5)
            world, accepted, _ = await until_covered(log)
        n_cycles = await assert_all_once_in_order(log, accepted)
        assert world.reigns.last_cycle("default") == n_cycles
        times = [batch.time for _, batch in accepted]
        assert times == sorted(times)

    run_virtual(scenario())


@given(seed=st.integers(0, 2**32))
@settings(max_examples=15)
def test_a_stream_that_dies_at_any_moment_leaves_nothing_out(seed):
    async def scenario():
        store = MemoryStore(faults=LogFaults(seed=seed, unknown_rate=0.2))
        rng = random.Random(seed)
        log = MemoryLog(store=store)
        leadership = MemoryLeadership(lease_s=0.5)

        async def lives():
            for life in range(1_000_000):
                stream = SnapshotStream(
                    log=MemoryLog(store=store),
                    leadership=leadership,
                    clock=LoopClock(),
                    holder=f"life-{life}",
                )
                async with running(stream.run()):
                    await asyncio.sleep(rng.choice((0.001, 0.05, 0.4, 2.0)))

        async with running(lives()):
            await write_sources(log, rng, 25)
            await asyncio.sleep(0.5)
            _, accepted, _ = await until_covered(log)
        await assert_all_once_in_order(log, accepted)

    run_virtual(scenario())


@pytest.mark.parametrize("n_standby", [1])
def test_a_standby_takes_over_within_its_lease(n_standby):
    async def scenario():
        store = MemoryStore()
        leadership = MemoryLeadership()
        log = MemoryLog(store=store)
        one, two = (
            SnapshotStream(
                log=MemoryLog(store=store), leadership=leadership, clock=LoopClock(), holder=name
            )
            for name in ("one", "two")
        )
        first = asyncio.ensure_future(one.run())
        await asyncio.sleep(0.1)
        second = asyncio.ensure_future(two.run())
        epoch = await log.take_over("informer")
        await log.append(epoch, [seen_pod("a")])
        await asyncio.sleep(1)
        assert (one.status.state, two.status.state) == ("leading", "standby")
        leadership.crash("one")
        first.cancel()
        await log.append(epoch, [seen_pod("b")])
        await asyncio.sleep(7)
        assert two.status.state == "leading"
        world, _, n_rejected = await folded(log)
        assert sorted(world.snapshot.pods) == ["pod-a", "pod-b"]
        assert n_rejected == 0
        second.cancel()
        await asyncio.gather(first, second, return_exceptions=True)

    run_virtual(scenario())


def test_topics_are_the_three_sources():
    assert {topic for topic, _ in SOURCES} == {OBJECTS, DECISIONS, BIND_RESULTS}
    assert len(SOURCES) == 8 + 16 + 8
