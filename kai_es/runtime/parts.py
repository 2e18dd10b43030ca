"""Which parts there are, and how each is made from the settings."""

import asyncio
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Collection,
    Coroutine,
    Mapping,
    Sequence,
)
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from sqlalchemy import Engine

from kai_es.binder.service import Binder
from kai_es.cluster.api import ApiServer
from kai_es.cycle.loop import Setting
from kai_es.cycle.scheduler import Scheduler
from kai_es.intake.service import Informer
from kai_es.intake.takeover import Takeover
from kai_es.ports.clock import Clock
from kai_es.ports.errors import ConfigError, UnavailableError
from kai_es.ports.eventlog import EventLog, Leadership, Offsets
from kai_es.ports.race import race
from kai_es.ports.stores import CheckpointStore, UsageStore
from kai_es.reader import View
from kai_es.runtime.binding import binder_settings
from kai_es.runtime.books import BOOKS, books_of, books_parts
from kai_es.runtime.checkpoints import LazyCheckpoints
from kai_es.runtime.clock import SystemClock
from kai_es.runtime.configuration import shard_configs
from kai_es.runtime.database import has_database, open_database
from kai_es.runtime.health import LOG_S, Health, asks_database, asks_log
from kai_es.runtime.pages import PluginPages
from kai_es.runtime.part import Gauges, Part
from kai_es.runtime.scheduling import Running, SchedulerPart
from kai_es.runtime.settings import Settings
from kai_es.runtime.statuses import StatusPart
from kai_es.runtime.usage import ShardUsage, WindowOf
from kai_es.runtime.wiring import holder, open_cluster, open_log
from kai_es.status.service import StatusWriter
from kai_es.storage.checkpoint import PostgresCheckpoints
from kai_es.storage.decayed import PostgresDecayedUsage
from streams.local import LocalRunner
from streams.snapshot import SnapshotStream


@dataclass(slots=True)
class Wiring:
    """What parts are made from. What costs a connection is opened when the first part asks."""

    settings: Settings
    log: EventLog
    leadership: Leadership
    offsets: Offsets
    clock: Clock
    holder: str
    stack: AsyncExitStack
    _cluster: ApiServer | None = None
    _engine: Engine | None = None
    _opening: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def cluster(self) -> ApiServer:
        """The API server of the settings."""
        if self._cluster is None:
            opening = open_cluster(self.settings)
            self._cluster = await self.stack.enter_async_context(opening)
        return self._cluster

    async def engine(self) -> Engine:
        """The database of the settings."""
        async with self._opening:
            if self._engine is None:
                self._engine = await self.stack.enter_async_context(open_database(self.settings))
            return self._engine

    def checkpoints(self) -> CheckpointStore | None:
        """The checkpoints of the database, None = there is none."""

        async def opening() -> CheckpointStore:
            return PostgresCheckpoints(await self.engine())

        return LazyCheckpoints(opening) if has_database(self.settings) else None


Maker = Callable[[Wiring], Awaitable[Part]]


async def _informer(wiring: Wiring) -> Part:
    cluster = await wiring.cluster()
    informer = Informer(
        cluster=cluster,
        eventlog=wiring.log,
        leadership=wiring.leadership,
        clock=wiring.clock,
        holder=wiring.holder,
        configs=shard_configs(wiring.settings),
    )
    informer.takeover = Takeover(cluster, wiring.clock)
    return Part(
        name="informer",
        run=informer.run,
        ready=lambda: [
            *_trouble(informer.trouble()),
            *(f"{kind}: {text}" for kind, text in sorted(informer.problems().items())),
        ],
        gauges=_leads(informer.leads),
    )


async def _snapshot(wiring: Wiring) -> Part:
    stream = SnapshotStream(
        log=wiring.log,
        leadership=wiring.leadership,
        clock=wiring.clock,
        holder=wiring.holder,
    )
    status = stream.status
    return Part(
        name="snapshot",
        run=stream.run,
        ready=lambda: _trouble(status.trouble),
        gauges={
            **_leads(lambda: status.state == "leading"),
            "lag_seconds": ("Age of the oldest record not in a batch", stream.lag_s),
            "batches": ("Batches written", lambda: status.n_batches),
            "rows": ("Rows written", lambda: status.n_rows),
            "parked": ("Versions parked", lambda: status.n_parked),
        },
    )


async def _scheduler(wiring: Wiring) -> Part:
    settings = wiring.settings

    async def books(window: WindowOf) -> UsageStore:
        if not has_database(settings):
            raise UnavailableError("no books are kept here: run the part usage, too")
        return PostgresDecayedUsage(await wiring.engine(), window)

    def make(view: View) -> Running:
        history = ShardUsage(view, settings.shard, books)
        feed = history.feed(wiring.clock)
        setting = Setting(wiring.log, wiring.clock, view, settings.shard, partition=0, usage=feed)
        scheduler = Scheduler(setting, leadership=wiring.leadership, holder=wiring.holder)
        return Running(
            scheduler,
            lambda: _trouble(history.problem or feed.problem()),
            PluginPages(
                wiring.log, wiring.clock, view, settings.shard, lambda: feed.latest.by_queue
            ).pages(),
        )

    return SchedulerPart(
        wiring.log,
        wiring.clock,
        checkpoints=wiring.checkpoints(),
        make=make,
    ).part()


async def _binder(wiring: Wiring) -> Part:
    binder = Binder(
        cluster=await wiring.cluster(),
        eventlog=wiring.log,
        leadership=wiring.leadership,
        offsets=wiring.offsets,
        clock=wiring.clock,
        holder=wiring.holder,
        settings=binder_settings(wiring.settings.binder),
    )
    return Part(
        name="binder",
        run=binder.run,
        ready=lambda: _trouble(binder.trouble()),
        gauges=_leads(binder.leads),
    )


async def _status(wiring: Wiring) -> Part:
    settings = wiring.settings
    cluster = await wiring.cluster()

    def make(view: View) -> StatusWriter:
        return StatusWriter(
            cluster=cluster,
            view=view,
            leadership=wiring.leadership,
            clock=wiring.clock,
            holder=wiring.holder,
            mirror=settings.mirror_bind_requests,
        )

    return StatusPart(
        wiring.log,
        wiring.clock,
        checkpoints=wiring.checkpoints(),
        make=make,
    ).part()


def _leads(leads: Callable[[], bool]) -> Gauges:
    return {"leading": ("1 = at work, 0 = standby", lambda: float(leads()))}


def _trouble(text: str) -> list[str]:
    return [text] if text else []


async def catch_up(settings: Settings, engine: Engine) -> None:
    """Bring the books of an instance, whose parts are stopped, to the end of its log."""
    async with open_log(settings) as opened:
        clock = SystemClock()
        await LocalRunner(opened.log, books_of(opened.log, engine, clock, BOOKS), clock).catch_up()


MAKERS: Final[Mapping[str, Maker]] = MappingProxyType(
    {
        "scheduler": _scheduler,
        "binder": _binder,
        "status": _status,
        "informer": _informer,
        "snapshot": _snapshot,
    }
)
"""In the order in which they are stopped: who decides first, who writes down last."""

NAMES: Final = (*MAKERS, *BOOKS)


class Made(NamedTuple):
    """What a process runs.

    parts:    to be started once the log is in order; the health of the servers is among them.
    in_order: returns once it is; until then it keeps looking at the other servers.
    """

    parts: Sequence[Part]
    in_order: Callable[[], Coroutine[Any, Any, None]]


@asynccontextmanager
async def made(names: Collection[str], settings: Settings) -> AsyncIterator[Made]:
    """The named parts, ready to run; what they use is closed at the end.

    Raises:
        ConfigError: an unknown part, or settings that cannot work.
        UnavailableError: the database does not come up.
    """
    unknown = sorted(set(names) - set(NAMES))
    if unknown:
        raise ConfigError(f"unknown part {unknown[0]!r}, known: {', '.join(NAMES)}")
    async with AsyncExitStack() as stack:
        opened = await stack.enter_async_context(open_log(settings))
        wiring = Wiring(
            settings=settings,
            log=opened.log,
            leadership=opened.leadership,
            offsets=opened.offsets,
            clock=SystemClock(),
            holder=holder(),
            stack=stack,
        )
        parts = [await maker(wiring) for name, maker in MAKERS.items() if name in names]
        asking, others = asks_log(opened.log), list[Health]()
        log = Health(asking, wiring.clock, every_s=LOG_S, unreachable=opened.unreachable)
        watches = [_watch("log", log)]
        if books := [name for name in BOOKS if name in names]:
            engine = await wiring.engine()
            parts += books_parts(settings, opened.log, engine, wiring.clock, books)
            others.append(Health(asks_database(engine), wiring.clock))
            watches.append(_watch("database", others[0]))

        async def in_order() -> None:
            await race(log.in_order(), *(health.run() for health in others))

        yield Made([*parts, *watches], in_order)


def _watch(name: str, health: Health) -> Part:
    return Part(name=name, run=health.run, ready=lambda: _trouble(health.trouble))
