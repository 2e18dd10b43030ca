"""What to do next about one request: the request life cycle of architecture §3. Pure.

A `Course` is told what happened and answers with the next step. Every course ends in `End` (a final
result) or `Stop` (somebody else answers). Times are given in, in milliseconds since the epoch.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final, TypeAlias

from kai_es.events.requests import (
    BUDGET,
    Answer,
    AttemptFailed,
    BindRequested,
    Bound,
    Evicted,
    EvictRequested,
    Refused,
    Request,
    Result,
)
from kai_es.kube.labels import BOUND_REQUEST, CLOSED_REQUEST
from kai_es.kube.sharing import is_group_label

RETRIES: Final = 5  # immediate ones after conflicts; with the first try they make one attempt
ATTEMPTS: Final = 3  # that end in conflicts; something else keeps writing to this pod
NOTED: Final = 5  # failed attempts of a request that are published; an outage may last hours
ENDED: Final = frozenset({"Succeeded", "Failed"})

EXPIRED: Final = "expired"
NODE_GONE: Final = "node-gone"
POD_GONE: Final = "pod-gone"
BOUND_ELSEWHERE: Final = "bound-elsewhere"

CONFLICT: Final = "conflict"
CLOSED: Final = "closed"
GATED: Final = "gated"
UNAVAILABLE: Final = "unavailable"
DENIED: Final[Mapping[int, str]] = MappingProxyType(
    {400: "invalid", 403: "forbidden", 413: "too-large", 422: "invalid"}
)
"""Codes of answers that will not change, by status; any other is `denied`."""


@dataclass(frozen=True, slots=True)
class FindNode:
    """Look up the uid of the request's node; then `Course.node`."""


@dataclass(frozen=True, slots=True)
class Write:
    """Bind or delete on this resourceVersion; then `accepted`, or what went wrong."""

    rv: int


@dataclass(frozen=True, slots=True)
class Look:
    """Fetch the pod; then `looked`."""


@dataclass(frozen=True, slots=True)
class Prepare:
    """Prepare the pod as last seen; then `prepared`, `waits`, or what went wrong."""


@dataclass(frozen=True, slots=True)
class Undo:
    """Take the preparations back, of the pod as last seen; then `undone`, or what went wrong.

    gone: there is no such pod any more.
    """

    gone: bool = False


@dataclass(frozen=True, slots=True)
class Close:
    """Patch `closed-request` on this resourceVersion; then `closed`, or what went wrong.

    So a delayed write of a stopped predecessor can only fail.

    labels: of shared devices, taken away in the same write.
    """

    rv: int
    labels: Mapping[str, str | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Wait:
    """Publish the failed attempt, wait for the back-off, `after_s` at least, then `resumed`.

    result: None after many of them.
    """

    result: AttemptFailed | None
    after_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Pause:
    """A preparation takes its time: wait so long, then `resumed`. Nothing has failed."""

    after_s: float


@dataclass(frozen=True, slots=True)
class End:
    """Publish the final result."""

    result: Result


@dataclass(frozen=True, slots=True)
class Stop:
    """Leave the request alone and end: whoever has the role then answers it."""

    why: str


Step: TypeAlias = FindNode | Look | Prepare | Write | Undo | Close | Wait | Pause | End | Stop


@dataclass(frozen=True, slots=True)
class PodSeen:
    """What decides about a request in a pod as fetched.

    group_labels: keys of its labels that name shared devices.
    bound_request: that has bound it, "" = it is not bound, or not by a binder of this kind.
    """

    uid: str
    rv: int
    node: str
    phase: str
    deleting: bool
    gated: bool
    closed_request: str
    group_labels: tuple[str, ...] = ()
    bound_request: str = ""

    @classmethod
    def of(cls, raw: Mapping[str, Any]) -> "PodSeen":
        """Read a raw pod of the API server."""
        metadata, spec = raw["metadata"], raw.get("spec") or {}
        annotations = metadata.get("annotations") or {}
        return cls(
            uid=metadata["uid"],
            rv=int(metadata["resourceVersion"]),
            node=spec.get("nodeName") or "",
            phase=(raw.get("status") or {}).get("phase") or "",
            deleting=bool(metadata.get("deletionTimestamp")),
            gated=bool(spec.get("schedulingGates")),
            closed_request=annotations.get(CLOSED_REQUEST, ""),
            group_labels=tuple(filter(is_group_label, sorted(metadata.get("labels") or {}))),
            bound_request=annotations.get(BOUND_REQUEST, "") if spec.get("nodeName") else "",
        )

    def is_bound_by(self, request: BindRequested) -> bool:
        """Whether this request has bound the pod, or may have; a pod is bound only once.

        The name of the node is not enough: it may be another node than an earlier request had
        bound the pod to, made under the same name.
        """
        return self.node == request.node and self.bound_request in ("", request.request_id)


class Course:
    """The way of one request to its final result.

    Args:
        request: as read.
        binder: this binder, part of results.
        attempt: number of the next attempt, from 1; more after a restart.
        recovered: the request was there before this binder had its partition, so that a
            predecessor may have begun it, closed it, and died before it could say so.
        prepares: the pod has to be prepared before it is bound.
    """

    def __init__(
        self,
        request: Request,
        *,
        binder: str,
        attempt: int = 1,
        recovered: bool = False,
        prepares: bool = False,
    ) -> None:
        self.request = request
        self._binder = binder
        self._attempt = attempt
        self._first_attempt = attempt
        self._recovered = recovered
        self._rv = request.pod_rv
        self._retries = 0
        self._verdict: Result | None = None
        self._closing = False
        self._prepares = prepares
        self._to_undo = prepares and recovered
        self._pausing = False
        self._left: Result | None = None
        self._forbidden: Answer | None = None
        self._labels: tuple[str, ...] = ()
        """Of shared devices, as last seen."""

    # -- what happened

    def begin(self, now_ms: int) -> Step:
        """Take the request up, or again after a `Wait` or a `Pause`."""
        pausing, self._pausing = self._pausing, False
        if self._left is not None:
            return Undo(gone=True)
        if self._verdict is not None or now_ms > self.request.not_after_ms:
            return Look()
        if pausing:
            return self._prepare()
        return FindNode() if isinstance(self.request, BindRequested) else Write(self._rv)

    resumed = begin

    def node(self, uid: str | None) -> Step:
        """The node has this uid, None = there is no such node."""
        if uid == self.request.node_uid:
            return Look() if self._prepares else Write(self._rv)
        self._verdict = self._refused(NODE_GONE, Answer(message=f"node uid is {uid}"))
        return Look()

    def prepared(self, rv: int, now_ms: int) -> Step:
        """The pod is prepared, and has this resourceVersion now."""
        self._rv = rv
        return Look() if now_ms > self.request.not_after_ms else Write(rv)

    def waits(self, after_s: float) -> Step:
        """A preparation has begun and takes its time."""
        self._pausing = True
        return Pause(after_s)

    def unprepared(self, code: str, answer: Answer) -> Step:
        """The pod cannot be prepared."""
        self._verdict = self._failed(code, answer, final=True)
        return Look()

    def undone(self, rv: int) -> Step:
        """The preparations are taken back; `rv` is the pod's, of no meaning once it is gone."""
        self._to_undo = False
        return End(self._left) if self._left is not None else self._close(rv)

    def accepted(self, answer: Answer) -> Step:
        """The write was done."""
        return End(self._done(answer))

    def conflicted(self, answer: Answer) -> Step:
        """409 to a write, to closing, or to a change of the pod that prepares or undoes."""
        del answer
        self._retries += 1
        return Look()

    def missing(self, answer: Answer) -> Step:
        """404 of the pod: nothing of it can happen any more."""
        return self._leave(self._refused(POD_GONE, answer))

    def denied(self, answer: Answer) -> Step:
        """The server will never do it. If it does not even let us close, that is the end."""
        if self._verdict is not None:
            return End(self._verdict)
        self._verdict = self._failed(DENIED.get(answer.status, "denied"), answer, final=True)
        return Look()

    def over_budget(self, answer: Answer) -> Step:
        """A disruption budget does not allow the eviction now; it may, once other pods run."""
        self._forbidden = answer
        return self._next_attempt(BUDGET, answer)

    def unavailable(self, answer: Answer, *, after_s: float = 0.0) -> Step:
        """No answer, or one that may be another next time; the outcome of a write is unknown."""
        return self._next_attempt(UNAVAILABLE, answer, after_s=after_s)

    def looked(self, pod: PodSeen, now_ms: int) -> Step:
        """The pod of that name, as it is now."""
        if pod.uid != self.request.pod_uid:
            return self.missing(Answer(message=f"uid is {pod.uid}"))
        self._rv, self._labels = pod.rv, pod.group_labels
        if end := self._as_it_is(pod):
            return end
        if pod.closed_request == self.request.request_id:
            return self._found_closed(now_ms)
        self._verdict = self._verdict or self._hopeless(pod, now_ms)
        if self._retries > RETRIES:
            if self._verdict or self._attempt - self._first_attempt + 1 < ATTEMPTS:
                return self._next_attempt(CONFLICT, Answer(status=409))
            self._verdict = self._failed(CONFLICT, Answer(status=409), final=True)
        if self._verdict is not None:
            return self._take_back(pod)
        return self._prepare() if self._prepares else Write(pod.rv)

    def _take_back(self, pod: PodSeen) -> Step:
        """What comes before the final result of a request whose pod is not bound by it."""
        if pod.node:  # its labels and what else it was given are in use
            self._labels = ()
        elif self._to_undo:
            return Undo()
        return self._close(pod.rv)

    def closed(self) -> Step:
        """The pod carries our closing."""
        assert self._verdict is not None, "closed for a reason"
        return End(self._verdict)

    # -- what it means

    def _prepare(self) -> Step:
        self._to_undo = True
        return Prepare()

    def _close(self, rv: int) -> Step:
        """Close the pod; labels of shared devices that this request gave it go with it."""
        self._closing = True
        shares = isinstance(self.request, BindRequested) and bool(self.request.gpu_groups)
        return Close(rv, dict.fromkeys(self._labels) if shares else {})

    def _leave(self, result: Result) -> Step:
        """End without closing, the pod being past it."""
        self._left = result
        return Undo(gone=True) if self._to_undo else End(result)

    def _as_it_is(self, pod: PodSeen) -> Step | None:
        """Success that is there already, or a pod to which nothing can happen any more."""
        if isinstance(self.request, EvictRequested):
            return End(self._done(Answer(message="found going"))) if pod.deleting else None
        if pod.is_bound_by(self.request):
            return End(self._done(Answer(message="found bound here")))
        if pod.deleting and not pod.node:
            return self._leave(self._refused(POD_GONE, Answer(message="being deleted")))
        return None

    def _hopeless(self, pod: PodSeen, now_ms: int) -> Result | None:
        """Why the request cannot be executed on this pod, None = it can."""
        is_bind = isinstance(self.request, BindRequested)
        if pod.phase in ENDED:
            return self._refused(POD_GONE, Answer(message=f"phase is {pod.phase}"))
        if is_bind and pod.node:
            by = f" by {pod.bound_request}" if pod.bound_request else ""
            return self._refused(BOUND_ELSEWHERE, Answer(message=f"bound to {pod.node}{by}"))
        if now_ms > self.request.not_after_ms:
            if self._forbidden is not None:
                return self._failed(BUDGET, self._forbidden, final=True)
            return self._refused(EXPIRED, Answer())
        if is_bind and pod.gated:
            return self._failed(GATED, Answer(message="has scheduling gates"), final=True)
        return None

    def _found_closed(self, now_ms: int) -> Step:
        """By us, by a predecessor that died before it could say so, or by a successor."""
        if self._closing and self._verdict is not None:
            return End(self._verdict)
        if not self._recovered:
            return Stop("closed by another binder")
        if self._verdict is not None:
            return End(self._verdict)
        if now_ms > self.request.not_after_ms:
            return End(self._refused(EXPIRED, Answer(message="closed before a restart")))
        answer = Answer(message="closed before a restart")
        return End(self._failed(CLOSED, answer, final=True))

    def _next_attempt(self, code: str, answer: Answer, *, after_s: float = 0.0) -> Step:
        self._retries = 0
        if self._attempt - self._first_attempt >= NOTED:
            return Wait(None, after_s)
        result = self._failed(code, answer, final=False)
        self._attempt += 1
        return Wait(result, after_s)

    def _done(self, answer: Answer) -> Result:
        request = self.request
        if isinstance(request, EvictRequested):
            return Evicted(
                request_id=request.request_id,
                attempt=self._attempt,
                binder=self._binder,
                pod_uid=request.pod_uid,
                answer=answer,
            )
        return Bound(
            request_id=request.request_id,
            attempt=self._attempt,
            binder=self._binder,
            pod_uid=request.pod_uid,
            node=request.node,
            node_uid=request.node_uid,
            answer=answer,
        )

    def _failed(self, code: str, answer: Answer, *, final: bool) -> AttemptFailed:
        return AttemptFailed(
            request_id=self.request.request_id,
            attempt=self._attempt,
            binder=self._binder,
            pod_uid=self.request.pod_uid,
            group_uid=self.request.group_uid,
            code=code,
            answer=answer,
            final=final,
        )

    def _refused(self, code: str, answer: Answer) -> Refused:
        return Refused(
            request_id=self.request.request_id,
            attempt=self._attempt,
            binder=self._binder,
            pod_uid=self.request.pod_uid,
            code=code,
            answer=answer,
        )
