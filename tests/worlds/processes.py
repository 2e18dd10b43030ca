"""The processes of a world: the real services, each behind its links, restarted when they end."""

import asyncio
import contextvars
from functools import partial

from kai_es.binder.service import Binder
from kai_es.cycle import Scheduler, Setting
from kai_es.cycle.usage import Pace, UsageFeed
from kai_es.eventlog.memory import MemoryLog
from kai_es.intake.service import Informer
from kai_es.ports.errors import FencedError, UnavailableError
from kai_es.reader import View
from kai_es.scheduler.config import Config
from kai_es.simulate.books import MemoryDecayedUsage
from kai_es.status.service import StatusWriter
from projectors.checkpoint import Cadence
from streams.books import Books
from streams.checkpointer import Checkpointer
from streams.local import LocalRunner
from streams.projection import history_projection, usage_projection
from streams.snapshot import SnapshotStream
from tests.worlds.jobs import shard_name
from tests.worlds.links import (
    Life,
    LifeClock,
    LinkedCluster,
    LinkedLeadership,
    LinkedLog,
    LinkedOffsets,
)
from tests.worlds.loop import PROCESS

CHECKPOINT_ROWS = 300
EXPECTED = (FencedError, UnavailableError)
"""What a process may end with: its supervisor starts it again."""


class Slot:
    """A place for a process: who runs there now, and what is the matter with its machine.

    zombie_s: with its next write it stops for so long between its last look and the sending.
    renewal_s: how long renewals of its leases take, beside the latency of a call.
    """

    def __init__(self, name, world, make):
        self.name = name
        self.away = set()
        self.slow_s = 0.0
        self.skew_ms = 0
        self.zombie_s = self.renewal_s = 0.0
        self.is_down = False
        self.part = None
        self.life = None
        self.n_starts = 0
        self._world = world
        self._make = make
        self._task = None

    async def run(self):
        """Run, and start again, for ever."""
        loop = asyncio.get_running_loop()
        chance = self._world.chance(f"{self.name}/restarts")
        while True:
            while self.is_down:
                await asyncio.sleep(0.1)
            self.n_starts += 1
            life = Life(f"{self.name}-{self.n_starts}", self._world.seed, self)
            self.life = life
            log = LinkedLog(life, MemoryLog(store=self._world.store), self._world.truth)
            context = contextvars.Context()
            context.run(PROCESS.set, life)
            self._task = context.run(loop.create_task, self._main(life, log))
            await asyncio.wait([self._task])
            self._judge(self._task)
            life.is_dead = True
            self._world.leadership.crash(life.holder)
            await log.close()
            await asyncio.sleep(chance.uniform(0.2, 2.0))

    async def _main(self, life, log):
        self.part = self._make(life, log)
        await self.part.run()

    def _judge(self, task):
        if task.cancelled():
            return
        error = task.exception()
        if error is None or isinstance(error, EXPECTED):
            return
        if isinstance(error, BaseExceptionGroup) and error.split(EXPECTED)[1] is None:
            return
        self._world.notes.append(f"{self.name}: {error!r}")
        self._world.failures.violated("died", f"{self.name} died of {error!r}")
        self._world.traceback = error

    def crash(self):
        """kill -9: what is under way arrives or not, nothing else is done."""
        if self._task is None or self._task.done():
            return
        life = self.life
        life.is_dead = True
        self._world.leadership.crash(life.holder)
        self.go_on(life)
        self._task.cancel()

    def end(self):
        """SIGTERM."""
        if self._task is not None and not self._task.done():
            self.go_on(self.life)
            stop = getattr(self.part, "stop", None)
            if stop is not None:
                stop()
            else:
                self._task.cancel()

    def pause(self):
        """SIGSTOP."""
        if self.life is not None:
            self.life.is_paused = True

    def resume(self):
        """SIGCONT."""
        if self.life is not None:
            self.go_on(self.life)

    def go_on(self, life):
        """Let one run of it go on, whoever runs here now."""
        life.is_paused = False
        asyncio.get_running_loop().resume(life)


def slots(world, copies, n_status):
    """All processes, `copies` of each, schedulers for each shard; one of the books."""
    found = []
    n_of = {"books": 1, "status": n_status}
    for name, make in MAKERS.items():
        n = n_of.get(name, copies)
        found += [Slot(f"{name}-{chr(97 + i)}", world, partial(make, world)) for i in range(n)]
    for number, pool in enumerate(world.users.pools):
        make = partial(scheduler, world, number)
        name = f"scheduler-{pool}" if pool else "scheduler"
        found += [Slot(f"{name}-{chr(97 + i)}", world, make) for i in range(copies)]
    return found


def _common(world, life, log):
    return {
        "leadership": LinkedLeadership(life, world.leadership),
        "clock": LifeClock(life),
        "holder": life.holder,
    }


def informer(world, life, log):
    return Informer(
        cluster=LinkedCluster(life, world.site, world.truth),
        eventlog=log,
        configs=[_config(pool) for pool in world.users.pools],
        **_common(world, life, log),
    )


def _config(pool):
    settings = Config(node_pool_value=pool).settings()
    return {"metadata": {"name": shard_name(pool)}, "settings": settings}


def snapshot(world, life, log):
    return SnapshotStream(log=log, **_common(world, life, log))


def scheduler(world, number, life, log):
    """Of the shard of a pool; its decisions have the partition of the same number."""
    clock, shard = LifeClock(life), shard_name(world.users.pools[number])
    setting = Setting(
        log,
        clock,
        View(log, clock),
        shard,
        partition=number,
        usage=UsageFeed(MemoryDecayedUsage(world.usage), clock, shard=shard, pace=Pace),
        offload=_inline,
    )
    common = _common(world, life, log)
    return Scheduler(setting, leadership=common["leadership"], holder=life.holder)


def binder(world, life, log):
    return Binder(
        cluster=LinkedCluster(life, world.site, world.truth),
        eventlog=log,
        offsets=LinkedOffsets(life, world.offsets),
        **_common(world, life, log),
    )


def status(world, life, log):
    clock = LifeClock(life)
    return StatusWriter(
        cluster=LinkedCluster(life, world.site, world.truth),
        view=View(log, clock),
        **_common(world, life, log),
    )


def books(world, life, log):
    return local_books(log, LifeClock(life), world.usage, world.history, world.checkpoints)


def local_books(log, clock, usage, history, checkpoints, *, takes=True):
    """A runner that keeps everything in these stores."""
    taker = Checkpointer(
        checkpoints, log, clock, cadence=Cadence(rows_max=CHECKPOINT_ROWS), offload=_inline_take
    )
    return LocalRunner(
        log,
        Books(
            log,
            clock,
            projections=[usage_projection(usage, clock), history_projection(history, clock)],
            checkpoints=checkpoints,
            checkpointer=taker if takes else None,
        ),
        clock,
    )


async def _inline(work):
    """Decide on the event loop, so that virtual time stays in order."""
    return work()


async def _inline_take(work, world):
    return work(world)


MAKERS = {
    "informer": informer,
    "snapshot": snapshot,
    "binder": binder,
    "status": status,
    "books": books,
}
