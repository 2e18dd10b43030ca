"""Where a scheduler takes up the history: a checkpoint, or the beginning, or nothing yet."""

import asyncio
import contextlib

from kai_es.eventlog.memory import MemoryLeadership, MemoryLog, MemoryStore
from kai_es.events.catalogue import SNAPSHOT
from kai_es.events.decisions import Cycle
from kai_es.ports.eventlog import Position
from kai_es.reader.restore import stored
from kai_es.runtime.checkpoints import LazyCheckpoints
from kai_es.runtime.scheduling import Running, SchedulerPart
from streams.snapshot import SnapshotStream
from tests.books.stores import MemoryCheckpoints
from tests.histories.circle import (
    Binder,
    Informer,
    a_cluster,
    a_scheduler,
    raw_group,
    some_pods,
)
from tests.histories.logs import folded, running
from tests.histories.virtual import LoopClock, run_virtual


class Site:
    """A circle without its scheduler, and a store of checkpoints."""

    def __init__(self):
        self.store = MemoryStore()
        self.clock = LoopClock()
        self.leadership = MemoryLeadership()
        self.log = MemoryLog(store=self.store)
        self.informer = Informer(self.log, self.clock)
        self.checkpoints = MemoryCheckpoints()
        self.starts = []

    def part(self):
        def make(view):
            self.starts.append(view.world.offset)
            scheduler = a_scheduler(view._log, self.leadership, self.clock, world=view.world)
            return Running(scheduler)

        async def opening():
            return self.checkpoints

        return SchedulerPart(
            MemoryLog(store=self.store),
            self.clock,
            checkpoints=LazyCheckpoints(opening),
            make=make,
        )

    @contextlib.asynccontextmanager
    async def running(self):
        await a_cluster(self.informer)
        stream = SnapshotStream(
            log=MemoryLog(store=self.store),
            leadership=self.leadership,
            clock=self.clock,
            holder="stream",
        )
        binder = Binder(MemoryLog(store=self.store), self.informer, self.clock)
        async with running(stream.run(), self.informer.run(), binder.run()):
            yield

    async def reign(self, group, part):
        """Let a scheduler place two pods, then stop it."""
        running_part = asyncio.ensure_future(part.run())
        await self.informer.put("PodGroup", raw_group(group))
        await self.informer.put("Pod", *some_pods(group, 2))
        await asyncio.sleep(20)
        part.stop()
        await asyncio.wait_for(running_part, 5)

    async def take_checkpoint(self):
        world, _, _ = await folded(self.log)
        await self.checkpoints.put(stored(world))
        return world.offset

    async def cycles(self):
        _, accepted, _ = await folded(self.log)
        return [row.cycle for _, batch in accepted for row in batch.rows if isinstance(row, Cycle)]


def test_it_starts_from_the_newest_checkpoint_and_goes_on_with_the_numbers():
    async def scenario():
        site = Site()
        async with site.running():
            await site.reign("g", site.part())
            offset = await site.take_checkpoint()
            await site.reign("h", site.part())
        assert site.starts == [-1, offset]
        cycles = await site.cycles()
        assert cycles == list(range(1, len(cycles) + 1))

    run_virtual(scenario())


def test_with_the_database_away_it_starts_from_the_beginning_of_the_log():
    async def scenario():
        site = Site()
        async with site.running():
            await site.reign("g", site.part())
            await site.take_checkpoint()
            site.checkpoints.database.away = True
            await site.reign("h", site.part())
        assert site.starts == [-1, -1]

    run_virtual(scenario())


def test_with_the_log_trimmed_too_it_waits_and_says_so_until_the_database_is_back():
    async def scenario():
        site = Site()
        async with site.running():
            await site.reign("g", site.part())
            offset = await site.take_checkpoint()
            await site.log.trim(SNAPSHOT, 0, Position(offset + 1))
            site.checkpoints.database.away = True
            part = site.part()
            waiting = asyncio.ensure_future(part.run())
            await asyncio.sleep(60)
            assert part.problems() == ["no history to start from: the database is away (simulated)"]
            assert len(site.starts) == 1
            page = await part.part().pages["/get-snapshot"]()
            assert (page.status, page.body) == (503, f"{part.problems()[0]}\n".encode())
            site.checkpoints.database.away = False
            await asyncio.sleep(30)
            assert part.problems() == []
            part.stop()
            await asyncio.wait_for(waiting, 5)
        assert site.starts == [-1, offset]

    run_virtual(scenario())


def test_stopped_while_it_waits_it_ends():
    async def scenario():
        site = Site()
        site.checkpoints.database.away = True
        await site.log.take_over("x")
        part = site.part()
        part.stop()
        await asyncio.wait_for(part.run(), 5)
        assert site.starts == []

    run_virtual(scenario())


def test_a_checkpoint_that_this_log_never_reached_is_left_aside():
    async def scenario():
        other = Site()
        async with other.running():
            await other.reign("g", other.part())
            await other.take_checkpoint()
        site = Site()
        site.checkpoints = other.checkpoints
        async with site.running():
            await site.reign("g", site.part())
        assert site.starts == [-1]
        assert await site.cycles()

    run_virtual(scenario())


def test_a_leader_without_a_snapshot_stream_says_what_it_waits_for():
    async def story():
        site = Site()
        scheduler = a_scheduler(site.log, site.leadership, site.clock)
        stream = SnapshotStream(
            log=MemoryLog(store=site.store),
            leadership=site.leadership,
            clock=site.clock,
            holder="stream",
        )
        async with running(scheduler.run()):
            await asyncio.sleep(4)
            early = scheduler.status.trouble
            await asyncio.sleep(60)
            alone = scheduler.status.state, scheduler.status.trouble
            async with running(stream.run()):
                await asyncio.sleep(20)
                return early, alone, (scheduler.status.state, scheduler.status.trouble)

    early, alone, together = run_virtual(story())
    assert early == "takes over the role"
    assert alone == (
        "taking-over",
        "has the role and cannot decide: `snapshot` has not come to decisions/0/1; "
        "does a snapshot stream run?",
    )
    assert together == ("leading", "")
