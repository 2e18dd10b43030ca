"""The informer: leadership, what the log already holds, one task per kind, signs of life."""

import asyncio
import contextlib
import logging
import random
from collections.abc import Mapping, Sequence
from typing import Any, Final

from kai_es.intake import metrics
from kai_es.intake.given import Given
from kai_es.intake.history import History
from kai_es.intake.index import IndexedObject, read_index
from kai_es.intake.kinds import SHARD_CONFIG, SOURCES, Source
from kai_es.intake.known import Known
from kai_es.intake.publisher import Publisher
from kai_es.intake.reflector import Reflector
from kai_es.intake.takeover import Takeover
from kai_es.kube.parse import KINDS
from kai_es.ports.backoff import Backoff
from kai_es.ports.clock import Clock
from kai_es.ports.cluster import ClusterWatch, Resource
from kai_es.ports.errors import FencedError, UnavailableError
from kai_es.ports.eventlog import JOINS, EventLog, Leadership, Lease, lost_error

ROLE: Final = "informer"
ALIVE_S: Final = 2.0  # the gate counts a pipeline of 5 s as late
LOG_BACKOFF_S: Final = (0.1, 5.0)  # between tries while the log is away

_FILE: Final = Source(
    SHARD_CONFIG, Resource(SHARD_CONFIG, KINDS[SHARD_CONFIG].api_version, ""), heartbeats=True
)
"""Configuration from a file; nothing is watched for it."""

logger = logging.getLogger(__name__)


class Informer:
    """Brings all kinds into `objects` while it leads.

    Args:
        sources: what is watched; `kinds.SOURCES`, with `kinds.shards(…)` for configuration.
        configs: raw ShardConfig objects (`metadata.name`, `settings`) instead of the latter.
        cluster_name: part of record ids.
        holder: this process, unique among those that run now.

    takeover: looks for open bind requests of an installed KAI, if it is set before `run`.
    """

    def __init__(
        self,
        *,
        cluster: ClusterWatch,
        eventlog: EventLog,
        leadership: Leadership,
        clock: Clock,
        holder: str,
        cluster_name: str = "default",
        sources: Sequence[Source] = SOURCES,
        configs: Sequence[dict[str, Any]] | None = None,
    ) -> None:
        assert configs is None or all(source.kind != SHARD_CONFIG for source in sources)
        self._cluster = cluster
        self._eventlog = eventlog
        self._leadership = leadership
        self._clock = clock
        self._holder = holder
        self._cluster_name = cluster_name
        self._sources = tuple(sources)
        self._configs = configs
        self.takeover: Takeover | None = None
        self._tasks: list[Reflector | Given] = []
        self._given: Given | None = None
        self._publisher: Publisher | None = None
        self._log_trouble = JOINS
        self._leads = False

    def problems(self) -> Mapping[str, str]:
        """Kind -> why it is not known completely; empty = ready. A standby has none."""
        found = {task.known.source.kind: task.problem for task in self._tasks if task.problem}
        if self._leads and self.takeover is not None and self.takeover.problem:
            found["BindRequest"] = self.takeover.problem
        return found

    def trouble(self) -> str:
        """Why the log takes nothing, "" = it does."""
        published = self._publisher.trouble if self._publisher is not None else ""
        return self._log_trouble or published

    def leads(self) -> bool:
        """Whether this process is the informer now, not a standby."""
        return self._leads

    def configure(self, configs: Sequence[dict[str, Any]]) -> None:
        """The file has changed: publish its configuration."""
        assert self._configs is not None, "configuration comes from the cluster"
        self._configs = configs
        if self._given is not None:
            self._given.give(configs)

    async def run(self) -> None:
        """Wait until this process leads, then inform until cancelled.

        Raises:
            FencedError: somebody else leads now: the process ends.
        """
        backoff = Backoff(*LOG_BACKOFF_S, random.Random(self._holder))
        while True:
            try:
                await self._take_turn()
            except UnavailableError as exc:  # before anything was appended
                self._log_trouble = str(exc)
                await self._clock.sleep(backoff.next_s())

    def _waits(self) -> None:
        self._log_trouble = ""  # a standby that has joined says nothing for hours

    async def _take_turn(self) -> None:
        lease = await self._leadership.acquire(ROLE, self._holder, self._waits)
        try:
            epoch = await self._eventlog.take_over(ROLE)
            known = {source.kind: Known(source) for source in self._all_sources()}
            progress = await read_index(
                self._eventlog,
                seen=lambda record: _restore(known, record),
                gone=lambda key: _forget(known, key),
            )
            for kind, one in known.items():
                one.proceed(progress.incarnation, progress.rvs.get(kind, 0))
            history = History(progress.incarnation)
            metrics.INCARNATION.set(history.incarnation)
            publisher = Publisher(
                self._eventlog,
                epoch=epoch,
                lease=lease,
                clock=self._clock,
                cluster=self._cluster_name,
                holder=self._holder,
                history=history,
                rvs=progress.rvs,
            )
            self._prepare(known, publisher, history)
            self._publisher, self._log_trouble = publisher, ""
            self._leads = True
            logger.info("leads", extra={"indexed": progress.objects})
            await self._inform(publisher, lease)
        finally:
            self._leads = False
            self._tasks, self._publisher = [], None
            await lease.release()

    def _all_sources(self) -> tuple[Source, ...]:
        return self._sources if self._configs is None else (*self._sources, _FILE)

    def _prepare(self, known: Mapping[str, Known], publisher: Publisher, history: History) -> None:
        self._tasks = [
            Reflector(
                known[source.kind],
                cluster=self._cluster,
                publisher=publisher,
                history=history,
                clock=self._clock,
            )
            for source in self._sources
        ]
        if self._configs is not None:
            self._given = Given(
                known[SHARD_CONFIG],
                self._configs,
                publisher=publisher,
                history=history,
                clock=self._clock,
            )
            self._tasks.append(self._given)

    async def _inform(self, publisher: Publisher, lease: Lease) -> None:
        if self.takeover is not None:  # the first sign of life says what there is
            await self.takeover.look()
            publisher.others = self.takeover.open
        try:
            async with asyncio.TaskGroup() as group:
                if self.takeover is not None:
                    looking = self._look_for_others(publisher, self.takeover)
                    group.create_task(looking, name="informer-takeover")
                group.create_task(publisher.run(), name="informer-publisher")
                group.create_task(self._say_alive(publisher), name="informer-alive")
                group.create_task(_watch_lease(lease), name="informer-lease")
                for task in self._tasks:
                    group.create_task(task.run(), name=f"informer-{task.known.source.kind}")
        except* FencedError as errors:
            raise FencedError(str(errors.exceptions[0])) from errors

    async def _look_for_others(self, publisher: Publisher, takeover: Takeover) -> None:
        while True:
            await self._clock.sleep(takeover.pause_s())
            with contextlib.suppress(UnavailableError):  # what was found last stays true
                await takeover.look()
                publisher.others = takeover.open

    async def _say_alive(self, publisher: Publisher) -> None:
        while True:
            await self._clock.sleep(ALIVE_S)
            if self._given is not None:
                publisher.seen_ms[SHARD_CONFIG] = self._clock.now_ms()
            publisher.say_alive()


async def _watch_lease(lease: Lease) -> None:
    await lease.lost()
    raise lost_error(ROLE)


def _restore(known: Mapping[str, Known], record: IndexedObject) -> None:
    if record.kind in known:
        known[record.kind].restore(record)


def _forget(known: Mapping[str, Known], key: str) -> None:
    kind, _, uid = key.partition("/")
    if kind in known:
        known[kind].versions.pop(uid, None)
