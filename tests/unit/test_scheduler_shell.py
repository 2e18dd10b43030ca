import asyncio
import contextlib
import itertools

import pytest

from kai_es.cycle import Pace, UsageFeed
from kai_es.eventlog.memory import MemoryLeadership, MemoryLog, MemoryStore
from kai_es.events.catalogue import BIND_REQUESTS, SNAPSHOT
from kai_es.events.codec import decode, unpack
from kai_es.events.decisions import (
    Cycle,
    CycleDecision,
    Evict,
    GateChange,
    Reign,
    ReignEnd,
    Verdict,
)
from kai_es.ports.errors import FencedError, UnavailableError
from kai_es.ports.stores import DecayedUsage
from kai_es.snapshot.status import TaskStatus
from streams.snapshot import SnapshotStream
from tests.histories.circle import (
    Binder,
    Informer,
    a_cluster,
    a_scheduler,
    first_fit,
    raw_group,
    raw_node,
    some_pods,
)
from tests.histories.logs import folded, records, running
from tests.histories.virtual import LoopClock, run_virtual


class Circle:
    """Stream, informer and binder on a memory log; schedulers come from the test."""

    def __init__(self, **binder):
        self.store = MemoryStore()
        self.clock = LoopClock()
        self.leadership = MemoryLeadership()
        self.log = self.client()
        self.informer = Informer(self.log, self.clock)
        self.binder = Binder(self.client(), self.informer, self.clock, **binder)

    def client(self):
        return MemoryLog(store=self.store)

    def scheduler(self, **rest):
        return a_scheduler(self.client(), self.leadership, self.clock, **rest)

    @contextlib.asynccontextmanager
    async def running(self, *more, binder=True, informer=True):
        stream = SnapshotStream(
            log=self.client(), leadership=self.leadership, clock=self.clock, holder="stream"
        )
        services = [stream.run(), *more]
        if informer:
            services.append(self.informer.run())
        if binder:
            services.append(self.binder.run())
        async with running(*services) as tasks:
            yield tasks

    async def rows(self, kind):
        _, accepted, _ = await folded(self.log)
        return [row for _, batch in accepted for row in batch.rows if isinstance(row, kind)]

    async def world(self):
        return (await folded(self.log))[0]


def test_pods_are_placed_once_and_cycles_are_dense():
    async def scenario():
        circle = Circle()
        scheduler = circle.scheduler()
        await a_cluster(circle.informer)
        async with circle.running(scheduler.run()):
            for n in range(5):
                await circle.informer.put("PodGroup", raw_group(f"g{n}", min_member=3))
                await circle.informer.put("Pod", *some_pods(f"g{n}", 3))
                await asyncio.sleep(0.3)
            await asyncio.sleep(2)
        world = await circle.world()
        states = {uid: row.state.status for uid, row in world.snapshot.pods.items()}
        assert len(states) == 15
        assert set(states.values()) == {TaskStatus.RUNNING}
        assert sorted(circle.binder.binds) == sorted(states)
        cycles = await circle.rows(Cycle)
        assert [cycle.cycle for cycle in cycles] == list(range(1, len(cycles) + 1))
        assert scheduler.status.n_binds == 15
        assert scheduler.status.state == "leading"
        assert list(world.open_requests()) == []

    run_virtual(scenario())


def test_no_cycle_sees_less_than_the_one_before_has_done():
    async def scenario():
        circle = Circle()
        seen = []

        def watching(snapshot, config, inputs):
            seen.append({u for u, r in snapshot.pods.items() if r.state.status != 0})
            return first_fit(snapshot, config, inputs)

        scheduler = circle.scheduler(decide=watching)
        await a_cluster(circle.informer)
        async with circle.running(scheduler.run(), binder=False):
            for n in range(4):
                await circle.informer.put("PodGroup", raw_group(f"g{n}"))
                await circle.informer.put("Pod", *some_pods(f"g{n}", 1))
                await asyncio.sleep(0.06)
            await asyncio.sleep(1)
        requests = [
            unpack(decode(entry.value))
            for partition in range(8)
            for entry in await records(circle.log, BIND_REQUESTS, partition)
        ]
        assert len({r.pod_uid for r in requests}) == len(requests) == 4
        assert all(a <= b for a, b in itertools.pairwise(seen))

    run_virtual(scenario())


def test_nothing_new_means_no_cycle_and_changes_mean_one_at_most_every_50_ms():
    async def scenario():
        circle = Circle()
        scheduler = circle.scheduler()
        await a_cluster(circle.informer)
        async with circle.running(scheduler.run()):
            await asyncio.sleep(1)
            before = scheduler.status.n_cycles
            await asyncio.sleep(20)
            assert scheduler.status.n_cycles == before  # `Alive` alone changes nothing
            for n in range(100):
                await circle.informer.put("Node", raw_node(f"n{n % 3}", cpu=16 + n))
                await asyncio.sleep(0.01)
            await asyncio.sleep(0.2)
        assert 10 <= scheduler.status.n_cycles - before <= 22
        times = [cycle.inputs.now_ms for cycle in await circle.rows(Cycle)]
        assert all(b - a >= 49 for a, b in itertools.pairwise(times))

    run_virtual(scenario())


@pytest.mark.parametrize(("took_s", "rest_s"), [(0.4, 0.4), (3.0, 1.0)])
def test_a_cycle_that_orders_nothing_is_followed_by_a_rest(took_s, rest_s):
    async def scenario():
        circle = Circle()
        spans = []

        async def slow(work):
            start_s = circle.clock.monotonic_s()
            await asyncio.sleep(took_s)
            cycle = work()
            spans.append((start_s, circle.clock.monotonic_s(), bool(cycle.decision.ops)))
            return cycle

        scheduler = circle.scheduler(offload=slow)
        await a_cluster(circle.informer)
        async with circle.running(scheduler.run()):
            for n in range(400):
                if n % 200 == 0:
                    await circle.informer.put("PodGroup", raw_group(f"g{n}"))
                    await circle.informer.put("Pod", *some_pods(f"g{n}", 1))
                await circle.informer.put("Node", raw_node(f"n{n % 3}", cpu=16 + n))
                await asyncio.sleep(0.05)
        rests = {True: [], False: []}
        for (_, end_s, ordered), (start_s, _, _) in itertools.pairwise(spans):
            rests[ordered].append(start_s - end_s)
        assert min(rests[False]) == pytest.approx(rest_s)
        assert max(rests[False]) < rest_s + 0.2
        assert max(rests[True]) < 0.2

    run_virtual(scenario())


def test_a_stop_does_not_wait_for_the_rest():
    async def scenario():
        circle = Circle()

        async def slow(work):
            await asyncio.sleep(0.9)
            return work()

        scheduler = circle.scheduler(offload=slow)
        await a_cluster(circle.informer)
        ran = asyncio.create_task(scheduler.run())
        async with circle.running():
            while not scheduler.status.n_cycles:
                await asyncio.sleep(0.05)
            scheduler.stop()
            start_s = circle.clock.monotonic_s()
            await ran
            assert circle.clock.monotonic_s() - start_s < 0.2

    run_virtual(scenario())


def test_a_silent_informer_closes_the_gate_and_it_is_recorded():
    async def scenario():
        circle = Circle()
        scheduler = circle.scheduler()
        await a_cluster(circle.informer)
        async with circle.running(scheduler.run(), informer=False):
            await circle.informer.alive()
            await asyncio.sleep(1)
            n_cycles = scheduler.status.n_cycles
            assert n_cycles >= 1
            await asyncio.sleep(40)
            changes = await circle.rows(GateChange)
            assert [c.gate.verdict for c in changes[-2:]] == [Verdict.NO_EVICT, Verdict.CLOSED]
            assert scheduler.status.gate.reasons == ("pipeline-age",)
            await circle.informer.put("Node", raw_node("n9"))
            await asyncio.sleep(1)
            assert scheduler.status.n_cycles == n_cycles
            await circle.informer.alive()
            await asyncio.sleep(1)
            assert scheduler.status.n_cycles == n_cycles + 1

    run_virtual(scenario())


def test_the_first_verdict_is_recorded_before_anything_is_listed():
    async def scenario():
        circle = Circle()
        scheduler = circle.scheduler()
        await circle.informer.start()
        async with circle.running(scheduler.run()):
            await asyncio.sleep(1)
        (change,) = await circle.rows(GateChange)
        assert "kind-not-listed:Node" in change.gate.reasons
        assert scheduler.status.n_cycles == 0

    run_virtual(scenario())


def test_with_old_news_nobody_is_evicted():
    async def scenario():
        circle = Circle()
        scheduler = circle.scheduler()
        await a_cluster(circle.informer, n_nodes=1, cpu=2)
        async with circle.running(scheduler.run(), informer=False):
            await circle.informer.alive()
            await circle.informer.put("PodGroup", raw_group("v"))
            await circle.informer.put("Pod", *some_pods("v", 2, victim=True))
            await asyncio.sleep(8)
            await circle.informer.put("PodGroup", raw_group("a"))
            await circle.informer.put("Pod", *some_pods("a", 1))
            await asyncio.sleep(1)
            assert scheduler.status.gate.verdict is Verdict.NO_EVICT
            assert scheduler.status.n_evicts == 0
            await circle.informer.alive()
            await asyncio.sleep(3)
            assert scheduler.status.n_evicts == 1
        evicts = [op for c in await circle.rows(Cycle) for op in c.decision.ops]
        assert len([op for op in evicts if isinstance(op, Evict)]) == 1
        world = await circle.world()
        assert world.snapshot.pods["pod-a-0"].state.status is TaskStatus.RUNNING

    run_virtual(scenario())


def test_a_back_off_ends_by_itself():
    async def scenario():
        circle = Circle(trouble=1.0, seed=3)
        scheduler = circle.scheduler()
        await a_cluster(circle.informer)
        async with circle.running(scheduler.run()):
            await circle.informer.put("PodGroup", raw_group("g"))
            await circle.informer.put("Pod", *some_pods("g", 1))
            await asyncio.sleep(20)
            circle.binder.trouble = 0.0
            await asyncio.sleep(25)
        world = await circle.world()
        assert world.snapshot.pods["pod-g-0"].state.status is TaskStatus.RUNNING
        assert scheduler.status.n_binds < 20

    run_virtual(scenario())


def test_a_standby_takes_over_and_goes_on_with_the_numbers():
    async def scenario():
        circle = Circle()
        one, two = circle.scheduler(holder="one"), circle.scheduler(holder="two")
        await a_cluster(circle.informer)
        async with circle.running() as _:
            first = asyncio.ensure_future(one.run())
            await asyncio.sleep(0.2)
            second = asyncio.ensure_future(two.run())
            await circle.informer.put("PodGroup", raw_group("g"))
            await circle.informer.put("Pod", *some_pods("g", 2))
            await asyncio.sleep(2)
            assert (one.status.state, two.status.state) == ("leading", "standby")
            circle.leadership.crash("one")
            first.cancel()
            await circle.informer.put("Pod", *some_pods("g", 4)[2:])
            await asyncio.sleep(10)
            assert two.status.state == "leading"
            two.stop()
            await asyncio.wait_for(second, 5)
            await asyncio.sleep(0.1)
        reigns = await circle.rows(Reign)
        assert [(r.epoch, r.first_cycle) for r in reigns] == [(1, 1), (2, reigns[1].first_cycle)]
        cycles = await circle.rows(Cycle)
        assert [cycle.cycle for cycle in cycles] == list(range(1, len(cycles) + 1))
        assert {cycle.epoch for cycle in cycles} == {1, 2}
        assert await circle.rows(ReignEnd) == [ReignEnd(shard="default", epoch=2)]
        assert two.status.state == "stopped"

    run_virtual(scenario())


class Anyone:
    """Leadership that lets everybody lead."""

    def __init__(self):
        self.inner = MemoryLeadership()

    async def acquire(self, role, holder, waits):
        return await self.inner.acquire(f"{role}-{holder}", holder, waits)


def test_of_two_leaders_the_older_one_ends_and_nothing_is_decided_twice():
    async def scenario():
        circle = Circle()
        anyone = Anyone()
        await a_cluster(circle.informer)
        async with circle.running():
            schedulers = [
                a_scheduler(circle.client(), anyone, circle.clock, holder=name)
                for name in ("one", "two")
            ]
            tasks = [asyncio.ensure_future(schedulers[0].run())]
            await asyncio.sleep(0.5)
            tasks.append(asyncio.ensure_future(schedulers[1].run()))
            await circle.informer.put("PodGroup", raw_group("g"))
            await circle.informer.put("Pod", *some_pods("g", 3))
            await asyncio.sleep(2)
            assert isinstance(tasks[0].exception(), FencedError)
            assert not tasks[1].done()
            tasks[1].cancel()
        assert len(circle.binder.binds) == 3
        await circle.rows(Cycle)  # folding it checks epochs and numbers

    run_virtual(scenario())


def test_a_leader_whose_lease_is_too_old_exits_without_a_word():
    class OldLease:
        def age_s(self):
            return 10.1

        async def lost(self):
            await asyncio.Event().wait()

        async def release(self):
            pass

    class OldLeases:
        async def acquire(self, role, holder, waits):
            return OldLease()

    async def scenario():
        circle = Circle()
        scheduler = a_scheduler(circle.client(), OldLeases(), circle.clock)
        await a_cluster(circle.informer)
        async with circle.running():
            with pytest.raises(FencedError, match="10"):
                await asyncio.wait_for(scheduler.run(), 5)
        assert await circle.rows(Cycle) == []
        assert await circle.rows(GateChange) == []

    run_virtual(scenario())


class Usage:
    def __init__(self):
        self.share = 0.25
        self.away = False

    async def decayed(self, *, shard, now_ms):
        if self.away:
            raise UnavailableError("no database")
        return DecayedUsage(by_queue={"q": {"gpu": self.share}}, as_of=7)


def test_usage_is_an_input_and_new_usage_starts_a_cycle():
    async def scenario():
        circle = Circle()
        store = Usage()
        feed = UsageFeed(store, circle.clock, shard="default", pace=lambda: Pace(10))
        scheduler = circle.scheduler(usage=feed)
        await a_cluster(circle.informer)
        async with circle.running(scheduler.run()):
            await asyncio.sleep(5)
            n_cycles = scheduler.status.n_cycles
            store.share = 0.5
            await asyncio.sleep(10)
            assert scheduler.status.n_cycles == n_cycles + 1
            store.away = True
            await asyncio.sleep(10)
            circle.clock.skew_ms += 310_000
            await asyncio.sleep(3)
            await circle.informer.put("Node", raw_node("n8"))
            await asyncio.sleep(1)
            assert feed.trouble == "no database"
        cycles = await circle.rows(Cycle)
        fresh = cycles[n_cycles].inputs
        assert fresh.usage == cycles[-1].inputs.usage == {"q": {"gpu": 0.5}}
        assert (fresh.usage_as_of, fresh.usage_stale) == (7, False)
        assert cycles[-1].inputs.usage_stale

    run_virtual(scenario())


def test_a_cut_decision_goes_on_at_once():
    async def scenario():
        circle = Circle()
        cuts = iter(["group-a", "group-b", ""])
        resumed = []

        def cutting(snapshot, config, inputs):
            resumed.append(snapshot.resume["default"])
            return CycleDecision(resume=next(cuts, ""))

        scheduler = circle.scheduler(decide=cutting)
        await a_cluster(circle.informer)
        async with circle.running(scheduler.run()):
            await asyncio.sleep(1)
        assert resumed[:3] == ["", "group-a", "group-b"]
        assert scheduler.status.n_cycles == 3

    run_virtual(scenario())


def test_offsets_of_cycles_are_those_of_accepted_batches():
    async def scenario():
        circle = Circle()
        scheduler = circle.scheduler()
        await a_cluster(circle.informer)
        async with circle.running(scheduler.run()):
            await asyncio.sleep(1)
        offsets = {offset for offset, _ in (await folded(circle.log))[1]}
        cycles = await circle.rows(Cycle)
        assert cycles
        assert {cycle.offset for cycle in cycles} <= offsets
        assert len(await records(circle.log, SNAPSHOT)) == len(offsets)

    run_virtual(scenario())
