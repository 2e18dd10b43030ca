"""An embedded log that is full: the services say so, wait, and go on when there is room again."""

import asyncio
import contextlib
from functools import partial

from kai_es.eventlog.sqlite import SqliteLog
from kai_es.eventlog.sqlite_lease import SqliteLeadership
from kai_es.events.decisions import Cycle
from kai_es.ports.errors import UnavailableError
from streams.snapshot import SnapshotStream
from tests.clocks import HastyClock
from tests.histories.circle import Binder, Informer, a_cluster, a_scheduler, raw_group, some_pods
from tests.histories.logs import folded, running

ROOM_PAGES = 16
PATIENCE_S = 60
FILL = "CREATE TABLE more AS SELECT randomblob(1000000) AS room"


async def until(condition):
    async with asyncio.timeout(PATIENCE_S):
        while not condition():
            await asyncio.sleep(0.02)


async def limit(log, n_pages):
    """Let the file have so many pages more than it has."""

    def work(file):
        ((have,),) = file.db.execute("PRAGMA page_count")
        return file.db.execute(f"PRAGMA max_page_count = {have + n_pages}").fetchone()

    while True:
        # Works share one commit: this one fails with a batch beside it that finds no room.
        with contextlib.suppress(UnavailableError):
            return await log.write(work)


class Site:
    """A circle whose informer waits, as the real one does, while the log takes nothing."""

    def __init__(self, path):
        self.log = SqliteLog(path)
        self.clock = HastyClock()
        leadership = SqliteLeadership(self.log)
        self.informer = Informer(self.log, self.clock)
        self.stream = SnapshotStream(
            log=self.log, leadership=leadership, clock=self.clock, holder="stream"
        )
        self.scheduler = a_scheduler(self.log, leadership, self.clock)
        self.binder = Binder(self.log, self.informer, self.clock)

    async def live(self):
        while True:
            with contextlib.suppress(UnavailableError):
                await self.informer.alive()
            await self.clock.sleep(5)

    async def fill(self):
        """Until not even one more object fits."""
        for n in range(1_000):
            pods = some_pods(f"filler-{n}", 20)
            try:
                await self.informer.put("Pod", *pods)
            except UnavailableError as exc:
                return str(exc)
        raise AssertionError("never full")

    async def fill_for_all(self, *services):
        """Until services have something to write and no room: what just fits leaves them none."""
        n_pages = 0
        async with asyncio.timeout(PATIENCE_S):
            while not any("full" in service.trouble for service in services):
                n_pages += 1
                await limit(self.log, n_pages)
                with contextlib.suppress(UnavailableError):
                    await self.informer.put("Pod", *some_pods("last", 20))
                    n_pages = 0
                await asyncio.sleep(0.02)

    async def work(self, group):
        """A group that must be placed."""
        await self.informer.put("PodGroup", raw_group(group))
        await self.informer.put("Pod", *some_pods(group, 2))
        n_binds = len(self.binder.binds)
        world = self.scheduler.view.world
        await until(
            lambda: len(self.binder.binds) == n_binds + 2 and not any(world.open_requests())
        )


async def test_full_log_is_said_and_sat_out(tmp_path):
    site = Site(tmp_path / "log.db")
    stream, scheduler = site.stream.status, site.scheduler.status
    await a_cluster(site.informer)
    services = (site.stream.run(), site.scheduler.run(), site.binder.run(), site.live())
    async with running(*services) as tasks:
        await site.work("before")
        await limit(site.log, ROOM_PAGES)
        assert "free disk space or raise the log's size limit" in await site.fill()
        await site.fill_for_all(stream, scheduler)
        assert not any(task.done() for task in tasks)
        await limit(site.log, 100_000)
        await site.work("after")
        await until(lambda: not stream.trouble and not scheduler.trouble)
    world, accepted, _ = await folded(site.log)
    cycles = [row.cycle for _, batch in accepted for row in batch.rows if isinstance(row, Cycle)]
    assert cycles == list(range(1, len(cycles) + 1))
    assert not any(world.open_requests())
    await site.log.close()


async def test_a_role_is_given_up_though_the_log_takes_nothing(tmp_path):
    """An error there would hide from informer and binder that they were cancelled: they led on."""
    log = SqliteLog(tmp_path / "log.db")
    lease = await SqliteLeadership(log).acquire("binder", "me")
    await limit(log, 0)
    lease._release = partial(log.write, lambda file: file.db.execute(FILL))
    await asyncio.wait_for(lease.release(), PATIENCE_S)
    await asyncio.wait_for(lease.lost(), PATIENCE_S)
    await log.close()
