"""The binder: reads requests, walks each to its final result, publishes it.

Where a restart begins is derived: a request whose final result stands in `bindresults` is done.
Stored marks only shorten the reading; without any it begins with what the topics still hold.
"""

import asyncio
import contextlib
import logging
import random
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from kai_es.binder import metrics
from kai_es.binder.assembly import built
from kai_es.binder.leased import LeasedCluster
from kai_es.binder.news import PodNews
from kai_es.binder.plugins import Plugin, defaults
from kai_es.binder.preparation import Preparations
from kai_es.binder.progress import Progress, Recovered
from kai_es.binder.reservation import ReservationSettings
from kai_es.binder.reservations import Reservations
from kai_es.binder.results import Results
from kai_es.binder.sharing import Reserving
from kai_es.binder.walk import Job, Walker
from kai_es.events.catalogue import BIND_REQUESTS, BIND_RESULTS, TOPICS
from kai_es.events.codec import decode, unpack
from kai_es.events.requests import Request, Result, is_final
from kai_es.ports.backoff import Backoff
from kai_es.ports.clock import Clock
from kai_es.ports.cluster import ClusterWrites
from kai_es.ports.errors import FencedError, GoneError, UnavailableError
from kai_es.ports.eventlog import (
    JOINS,
    Entry,
    EventLog,
    Leadership,
    Lease,
    Mark,
    Offsets,
    Position,
    lost_error,
)

ROLE: Final = "binder"
ALL: Final = tuple(range(TOPICS[BIND_REQUESTS].partitions))
OPEN_MAX: Final = 5_000  # requests taken up at once: a very large gang
AHEAD_MAX: Final = 50_000  # read and not taken up, about 1 KiB each; reading waits beyond
MARK_S: Final = 5.0  # between stored marks
READ_UP_S: Final = 0.3  # to come to the end of a partition, before what is read is not enough
READ_UP_POLL_S: Final = 0.01
LOG_BACKOFF_S: Final = (0.1, 5.0)  # between tries while the log is away

logger = logging.getLogger(__name__)


class Share(NamedTuple):
    """A part of the partitions of `bindrequests`, and the role under which it is executed.

    Several binders have shares without overlap, each under a role of its own.
    """

    role: str = ROLE
    partitions: tuple[int, ...] = ALL


WHOLE: Final = Share()


@dataclass(frozen=True, slots=True, kw_only=True)
class BinderSettings:
    """How pods are prepared.

    plugins: by name; see `binder.plugins`.
    """

    plugins: Mapping[str, Plugin] = field(default_factory=defaults)
    reservation: ReservationSettings = field(default_factory=ReservationSettings)


@dataclass(slots=True)
class _Partition:
    """A partition since this process has it.

    read_to: all requests below it are known.
    """

    progress: Progress
    recovered_end: Position
    read_to: Position
    finals: set[str] = field(default_factory=set)
    attempts: dict[str, int] = field(default_factory=dict)


class Binder:
    """Executes the requests of some partitions while it has their role.

    Args:
        share: what of `bindrequests` is its own.
        holder: this process, unique among those that run now.
        rng: jitter of back-offs.
        settings: how pods are prepared.

    Raises:
        ConfigError: the settings cannot work.
    """

    def __init__(  # noqa: PLR0913 - its ports, each by name
        self,
        *,
        cluster: ClusterWrites,
        eventlog: EventLog,
        leadership: Leadership,
        offsets: Offsets,
        clock: Clock,
        holder: str,
        share: Share = WHOLE,
        rng: random.Random | None = None,
        settings: BinderSettings | None = None,
    ) -> None:
        self._settings = settings or BinderSettings()
        self._plugins = built(self._settings.plugins)
        self._cluster = cluster
        self._eventlog = eventlog
        self._leadership = leadership
        self._offsets = offsets
        self._clock = clock
        self._holder = holder
        self._role = share.role
        self._numbers = share.partitions
        self._rng = rng or random.Random(holder)  # another one in each process
        self._room = asyncio.Semaphore(OPEN_MAX)
        self._ahead: asyncio.Queue[Job] = asyncio.Queue(AHEAD_MAX)
        self._partitions: dict[int, _Partition] = {}
        self._waiting: dict[str, deque[Job]] = {}
        self._leads = False
        self._log_trouble = JOINS
        self._lease: Lease
        self._results: Results
        self._walker: Walker
        self._reservations: Reservations
        self._news: PodNews
        self._group: asyncio.TaskGroup

    def leads(self) -> bool:
        """Whether this process executes requests now, not a standby."""
        return self._leads

    def n_open(self) -> int:
        """Requests that were read and have no final result yet."""
        return sum(part.progress.n_open() for part in self._partitions.values())

    def trouble(self) -> str:
        """What keeps it from its work, "" = nothing; a standby has no trouble."""
        if self._leads and self._walker.trouble:
            return f"API server unavailable: {self._walker.trouble}"
        if self._leads and (denied := self._walker.denied()):
            return denied
        if self._leads and (kept := self._reservations.trouble()):
            return kept
        return self._log_trouble or (self._results.trouble if self._leads else "")

    async def run(self) -> None:
        """Wait until this process has the role, then bind until cancelled.

        Raises:
            FencedError: somebody else has the role now: the process ends.
            PoisonError: a request or result that this release cannot read.
            GoneError: requests were deleted from the log before they were read.
        """
        backoff = Backoff(*LOG_BACKOFF_S, self._rng)
        while True:
            try:
                await self._take_turn()
            except UnavailableError as exc:  # before anything was done: once it binds, it goes on
                self._log_trouble = str(exc)
                await self._clock.sleep(backoff.next_s())

    def _waits(self) -> None:
        self._log_trouble = ""  # a standby that has joined says nothing for hours

    async def _take_turn(self) -> None:
        self._lease = await self._leadership.acquire(self._role, self._holder, self._waits)
        try:
            epoch = await self._eventlog.take_over(self._role)
            self._results = Results(
                self._eventlog,
                epoch=epoch,
                lease=self._lease,
                clock=self._clock,
                binder=self._holder,
                rng=self._rng,
            )
            cluster = LeasedCluster(self._cluster, self._lease)
            self._news = PodNews(self._eventlog, self._clock, self._rng, self._moved)
            self._reservations = Reservations(
                cluster,
                self._clock,
                self._settings.reservation,
                partitions=self._numbers,
                read_up=self._read_up,
                watch=self._news.watch,
            )
            self._walker = Walker(
                cluster=cluster,
                results=self._results,
                clock=self._clock,
                binder=self._holder,
                rng=self._rng,
                preparations=Preparations([Reserving(self._reservations), *self._plugins]),
                observers=(self._reservations,),
            )
            await self._recover()
            self._log_trouble = ""
            self._leads = True
            await self._bind()
        finally:
            self._leads = False
            with contextlib.suppress(UnavailableError):
                await self._store_marks()
            await self._lease.release()

    # -- start

    async def _recover(self) -> None:
        """Learn which requests have final results; after the take-over nobody adds any."""
        marks = await self._offsets.load(self._role, BIND_REQUESTS)
        begins = await self._eventlog.begin(BIND_REQUESTS)
        ends = await self._eventlog.end(BIND_REQUESTS)
        results_begins = await self._eventlog.begin(BIND_RESULTS)
        results_ends = await self._eventlog.end(BIND_RESULTS)
        for number in self._numbers:
            mark = marks.get(number) or Mark(begins[number], str(results_begins[number]))
            if mark.position < begins[number]:
                raise GoneError(
                    f"bindrequests/{number} begins at {begins[number]}, the binder had come to "
                    f"{mark.position}: requests were deleted unread; look for pods that wait"
                )
            results_from = max(Position(int(mark.note)), results_begins[number])
            recovered = Recovered(mark.position, ends[number], results_from, results_ends[number])
            part = _Partition(Progress(recovered), ends[number], mark.position)
            async for entries in self._eventlog.read(
                BIND_RESULTS, number, results_from, follow=False
            ):
                for entry in entries:
                    _note_result(part, entry)
            self._partitions[number] = part

    # -- requests

    async def _bind(self) -> None:
        logger.info("leads", extra={"role": self._role, "partitions": len(self._numbers)})
        try:
            async with asyncio.TaskGroup() as group:
                self._group = group
                group.create_task(self._results.run(), name="binder-results")
                group.create_task(self._watch_lease(), name="binder-lease")
                group.create_task(self._keep_marks(), name="binder-marks")
                group.create_task(self._reservations.serve(), name="binder-reservations")
                group.create_task(self._news.run(), name="binder-news")
                group.create_task(self._feed(), name="binder-feed")
                for number in self._numbers:
                    group.create_task(self._read(number), name=f"binder-{number}")
        except* FencedError as errors:
            raise FencedError(str(errors.exceptions[0])) from errors

    def _moved(self, node: str, has_ended: bool) -> None:
        """A pod of the node has changed that reserves or shares GPUs."""
        self._reservations.moved(node, has_ended=has_ended)

    async def _read(self, number: int) -> None:
        part = self._partitions[number]
        start = part.progress.mark().position
        backoff = Backoff(*LOG_BACKOFF_S, self._rng)
        while True:
            try:
                async for entries in self._eventlog.read(BIND_REQUESTS, number, start, follow=True):
                    self._log_trouble = ""
                    for entry in entries:
                        await self._take(number, part, entry)
                        start = Position(entry.position + 1)
                    backoff.reset()
            except UnavailableError as exc:
                self._log_trouble = str(exc)
                await self._clock.sleep(backoff.next_s())

    async def _take(self, number: int, part: _Partition, entry: Entry) -> None:
        job = self._job(number, part, entry)
        if job is not None:
            self._walker.opened(job.request)
        part.read_to = Position(entry.position + 1)
        if job is None:
            part.progress.skipped(entry.position)
            return
        part.progress.read(entry.position)
        metrics.OPEN.inc()
        await self._ahead.put(job)

    async def _feed(self) -> None:
        """Take up what was read, as there is room."""
        while True:
            job = await self._ahead.get()
            await self._room.acquire()
            self._take_up(job)

    async def _read_up(self, number: int) -> bool:
        """Whether all requests of a partition are known that are in the log now; waits a little."""
        end = (await self._eventlog.end(BIND_REQUESTS))[number]
        part = self._partitions[number]
        until_s = self._clock.monotonic_s() + READ_UP_S
        while part.read_to < end:
            if self._clock.monotonic_s() > until_s:
                return False
            await self._clock.sleep(READ_UP_POLL_S)
        return True

    def _job(self, number: int, part: _Partition, entry: Entry) -> Job | None:
        if entry.value is None:
            return None
        envelope = decode(entry.value)
        request: Request = unpack(envelope)
        if request.request_id in part.finals:
            part.finals.discard(request.request_id)
            return None
        return Job(
            partition=number,
            position=entry.position,
            request=request,
            record_id=envelope.id,
            ingest_ms=envelope.ingest_time,
            recovered=entry.position < part.recovered_end,
            attempt=part.attempts.pop(request.request_id, 0) + 1,
        )

    def _take_up(self, job: Job) -> None:
        """Start a request, or put it behind the earlier ones of its pod."""
        waiting = self._waiting.get(job.request.pod_uid)
        if waiting is not None:
            waiting.append(job)
            return
        self._waiting[job.request.pod_uid] = deque()
        self._group.create_task(self._walk_pod(job), name=f"bind-{job.request.pod}")

    async def _walk_pod(self, job: Job) -> None:
        waiting = self._waiting[job.request.pod_uid]
        while True:
            await self._walker.walk(job, self._partitions[job.partition].progress)
            self._room.release()
            if not waiting:
                del self._waiting[job.request.pod_uid]
                return
            job = waiting.popleft()

    # -- marks and lease

    async def _keep_marks(self) -> None:
        while True:
            await self._clock.sleep(MARK_S)
            with contextlib.suppress(UnavailableError):
                await self._store_marks()

    async def _store_marks(self) -> None:
        marks = {number: part.progress.mark() for number, part in self._partitions.items()}
        if marks:
            await self._offsets.store(self._role, BIND_REQUESTS, marks)

    async def _watch_lease(self) -> None:
        await self._lease.lost()
        raise lost_error(self._role)


def _note_result(part: _Partition, entry: Entry) -> None:
    if entry.value is None:
        return
    result: Result = unpack(decode(entry.value))
    if is_final(result):
        part.finals.add(result.request_id)
        part.attempts.pop(result.request_id, None)
    elif result.request_id not in part.finals:
        known = part.attempts.get(result.request_id, 0)
        part.attempts[result.request_id] = max(known, result.attempt)
