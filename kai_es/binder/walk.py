"""One request to its end: the steps of `plan.Course`, done."""

import asyncio
import random
from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from kai_es.binder import metrics
from kai_es.binder.nodes import Nodes
from kai_es.binder.plan import (
    Close,
    Course,
    End,
    FindNode,
    Look,
    Pause,
    PodSeen,
    Prepare,
    Step,
    Stop,
    Undo,
    Wait,
    Write,
)
from kai_es.binder.preparation import (
    Chain,
    NotReadyError,
    Observer,
    Order,
    PodLeftError,
    PodMovedError,
    PreparationError,
    Preparations,
)
from kai_es.binder.progress import Progress
from kai_es.binder.results import Results
from kai_es.events.requests import (
    BUDGET,
    Answer,
    BindRequested,
    EvictRequested,
    Refused,
    Request,
    Result,
)
from kai_es.kube.labels import (
    BOUND_REQUEST,
    CLOSED_REQUEST,
    NUMA_PREDICTED,
    RECEIVED_RESOURCE_TYPE,
)
from kai_es.kube.times import rfc3339
from kai_es.ports.backoff import Backoff
from kai_es.ports.clock import Clock, wait_for
from kai_es.ports.cluster import PODS, ClusterWrites
from kai_es.ports.errors import (
    AnswerError,
    BudgetError,
    ConflictError,
    DeniedError,
    FencedError,
    GoneError,
    RefusedError,
    UnavailableError,
)
from kai_es.ports.eventlog import Position

IN_FLIGHT: Final = 64  # calls at once; the API server does not get faster with more
FIRST_S: Final = 0.2  # back-off of an attempt
MOST_S: Final = 10.0


NOTHING: Final = Preparations(())
"""Of a binder that only binds."""


@dataclass(frozen=True, slots=True)
class Job:
    """A request as read.

    record_id, ingest_ms: of its envelope.
    recovered, attempt:   see `plan.Course`.
    """

    partition: int
    position: Position
    request: Request
    record_id: str
    ingest_ms: int
    recovered: bool
    attempt: int


@dataclass(frozen=True, slots=True)
class _Walk:
    """A request on its way.

    order: the request as preparations see it, None of an evict request.
    """

    job: Job
    course: Course
    chain: Chain
    order: Order | None


class Walker:
    """Walks requests, any number at once.

    Args:
        cluster: that writes nothing under a lease that is too old.
        binder: name of this process in results.
        preparations: what pods need before they are bound.
        observers: are told of bind requests.
    """

    trouble: str
    """Why the API server did not answer last, "" = it did."""

    def __init__(
        self,
        *,
        cluster: ClusterWrites,
        results: Results,
        clock: Clock,
        binder: str,
        rng: random.Random,
        preparations: Preparations = NOTHING,
        observers: Sequence[Observer] = (),
    ) -> None:
        self._preparations = preparations
        self._observers = observers
        self._cluster = cluster
        self._results = results
        self._clock = clock
        self._binder = binder
        self._rng = rng
        self._nodes = Nodes(cluster, clock)
        self._calls = asyncio.Semaphore(IN_FLIGHT)
        self.trouble = ""
        self._denied: dict[str, str] = {}

    def denied(self) -> str:
        """What our role does not allow us, by the last answer to each call; "" = nothing."""
        return "; ".join(sorted(set(self._denied.values())))

    def opened(self, request: Request) -> None:
        """A request was read that has no final result."""
        if isinstance(request, BindRequested):
            for observer in self._observers:
                observer.opened(request)

    async def walk(self, job: Job, progress: Progress) -> None:
        """Walk a request to its final result.

        Raises:
            FencedError: somebody else may have the role, so this process ends.
        """
        result = None
        try:
            result = await self._walk(job, progress)
        finally:
            if isinstance(job.request, BindRequested):
                for observer in self._observers:
                    observer.closed(job.request, result)

    async def _walk(self, job: Job, progress: Progress) -> Result:
        started_s = self._clock.monotonic_s()
        backoff = Backoff(FIRST_S, MOST_S, self._rng)
        walk = self._begin(job)
        course = walk.course
        step = course.begin(self._clock.now_ms())
        while True:
            match step:
                case Wait(failed, after_s):
                    if failed is not None:
                        await self._publish(job, failed, progress, started_s)
                    await self._clock.sleep(backoff.next_s(at_least_s=after_s))
                    step = course.resumed(self._clock.now_ms())
                case Pause(after_s):
                    await self._pause(walk, after_s)
                    step = course.resumed(self._clock.now_ms())
                case End(result):
                    await self._publish(job, result, progress, started_s)
                    progress.done(job.position)
                    metrics.OPEN.dec()
                    metrics.SECONDS.observe((self._clock.now_ms() - job.ingest_ms) / 1000)
                    return result
                case Stop(why):
                    # Nobody would answer it if this process went on: its lease may be renewed yet,
                    # or the other binder may be the one that has lost the role.
                    raise FencedError(f"request {job.request.request_id} is left: {why}")
                case _:
                    step = await self._do(walk, step)

    async def _pause(self, walk: _Walk, after_s: float) -> None:
        assert walk.order is not None, "evictions are not prepared"
        wake, walk.order.wake = walk.order.wake, None
        if wake is None:
            await self._clock.sleep(after_s)
        else:
            await wait_for(wake, clock=self._clock, seconds=after_s)

    def _begin(self, job: Job) -> _Walk:
        request, chain, order = job.request, Chain(()), None
        if isinstance(request, BindRequested):
            chain = self._preparations.concern(request)
            order = Order(request, self._cluster, self._clock, self._nodes)
        course = Course(
            request,
            binder=self._binder,
            attempt=job.attempt,
            recovered=job.recovered,
            prepares=bool(chain),
        )
        return _Walk(job, course, chain, order)

    async def _publish(
        self, job: Job, result: Result, progress: Progress, started_s: float
    ) -> None:
        if not isinstance(result, Refused):
            took_ms = round((self._clock.monotonic_s() - started_s) * 1000)
            result = msgspec.structs.replace(result, duration_ms=took_ms)
        position = await self._results.put(job.partition, result, cause=job.record_id)
        progress.published(position)

    async def _do(self, walk: _Walk, step: Step) -> Step:
        """Make the call of a step."""
        async with self._calls:
            call = type(step).__name__
            try:
                following = await self._call(walk, step)
                answer = "ok"
                self._denied.pop(call, None)
            except _SAYS_NO as exc:
                answer, following = _after(walk.course, exc)
                for said in (exc, exc.__cause__):
                    if isinstance(said, DeniedError):
                        self._denied[call] = said.message
            except UnavailableError as exc:
                metrics.CALLS.labels(call, "unavailable").inc()
                self.trouble = exc.message
                return walk.course.unavailable(_said(exc), after_s=exc.retry_after_s)
            self.trouble = ""
            metrics.CALLS.labels(call, answer).inc()
            return following

    async def _call(self, walk: _Walk, step: Step) -> Step:
        course, request, order = walk.course, walk.job.request, walk.order
        match step:
            case FindNode():
                node = await self._nodes.node(request.node, uid=request.node_uid)
                return course.node(None if node is None else node.uid)
            case Look():
                raw = await self._cluster.get(PODS, request.namespace, request.pod)
                if order is not None:
                    order.pod = raw
                return course.looked(PodSeen.of(raw), self._clock.now_ms())
            case Prepare():
                assert order is not None, "evictions are not prepared"
                await walk.chain.prepare(order)
                return course.prepared(order.rv, self._clock.now_ms())
            case Undo(gone):
                assert order is not None, "evictions are not prepared"
                order.pod = None if gone else order.pod
                await walk.chain.undo(order, recovered=walk.job.recovered)
                return course.undone(0 if order.pod is None else order.rv)
            case Write(rv):
                return course.accepted(await self._write(request, rv))
            case Close(rv, labels):
                closing = {CLOSED_REQUEST: request.request_id}
                await self._patch(request, rv, labels=labels, annotations=closing)
                return course.closed()
            case _:
                raise AssertionError(f"{step} is no call")

    def _patch(
        self, request: Request, rv: int, **metadata: Mapping[str, str | None]
    ) -> Awaitable[dict[str, Any]]:
        changes = {"metadata": {key: value for key, value in metadata.items() if value}}
        return self._cluster.patch(
            PODS, request.namespace, request.pod, changes, uid=request.pod_uid, rv=rv
        )

    def _write(self, request: Request, rv: int) -> Awaitable[Answer]:
        if isinstance(request, BindRequested):
            return self._cluster.bind(
                request.namespace,
                request.pod,
                uid=request.pod_uid,
                rv=rv,
                node=request.node,
                annotations=_annotations(request),
            )
        if request.eviction == BUDGET:
            return self._cluster.evict(request.namespace, request.pod, uid=request.pod_uid, rv=rv)
        return self._delete(request, rv)

    async def _delete(self, request: EvictRequested, rv: int) -> Answer:
        """Delete a pod, marked if it is to be; both can be done twice."""
        namespace, pod, uid = request.namespace, request.pod, request.pod_uid
        if request.marks:
            condition = {
                "type": "DisruptionTarget",
                "status": "True",
                "reason": "PreemptionByScheduler",
                "message": request.message,
                "lastTransitionTime": rfc3339(self._clock.now_ms()),
            }
            raw = await self._cluster.set_conditions(
                namespace, pod, [condition], annotations={}, uid=uid, rv=rv
            )
            rv = int(raw["metadata"]["resourceVersion"])
        return await self._cluster.delete(PODS, namespace, pod, uid=uid, rv=rv)


_SAYS_NO: Final = (
    NotReadyError,
    PreparationError,
    PodMovedError,
    PodLeftError,
    BudgetError,
    ConflictError,
    GoneError,
    RefusedError,
)


def _after(course: Course, exc: Exception) -> tuple[str, Step]:
    """What a call that did not do it was, in one word, and what comes after it."""
    match exc:
        case NotReadyError():
            found = "wait", course.waits(exc.after_s)
        case PreparationError():
            found = "failed", course.unprepared(exc.code, exc.answer)
        case PodMovedError():
            found = "conflict", course.conflicted(exc.answer)
        case PodLeftError():
            found = "missing", course.missing(exc.answer)
        case ConflictError():
            found = "conflict", course.conflicted(_said(exc))
        case BudgetError():
            found = "budget", course.over_budget(_said(exc))
        case GoneError():
            found = "missing", course.missing(_said(exc))
        case RefusedError():
            found = "denied", course.denied(_said(exc))
        case _:
            raise AssertionError(f"{type(exc)} says no")
    return found


def _annotations(request: BindRequested) -> dict[str, str]:
    """What a bound pod tells of its devices and zones, and of who has bound it."""
    found = {RECEIVED_RESOURCE_TYPE: request.received, BOUND_REQUEST: request.request_id}
    if request.zones:
        found[NUMA_PREDICTED] = msgspec.json.encode(request.zones, order="deterministic").decode()
    return found


def _said(exc: AnswerError | UnavailableError) -> Answer:
    return Answer(status=exc.status, reason=exc.reason, message=exc.message)
