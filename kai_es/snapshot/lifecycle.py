"""Life cycle of a request: what it, its results and the pod's row together mean (architecture §3).

Everything here is a function of values, so the order in which they arrived has no say: a request is
open until the first of a final result, its pod seen bound (binds only: a pod to be evicted is
bound), ended or deleted, its node *uid* deleted. Its effect can last longer than it is open: a
`bound` result makes the pod bound until its row is seen bound, an `evicted` one makes it releasing
until its row shows a deletion timestamp.

A restore of etcd ends no request: the binder knows nothing of it and goes on. It ends the effect of
what was done before it. Whether something was done before it or after nobody says; what is told
after it is in doubt, and has its effect until the pod's watch would have shown it.
"""

from collections.abc import Iterable, Sequence
from typing import Final, TypeAlias

import msgspec

from kai_es.events.decisions import Bind, ClaimGrant, Cycle, Evict, ExtendedGrant, ZoneAmount
from kai_es.events.requests import (
    AttemptFailed,
    Bound,
    Evicted,
    Refused,
    Result,
    is_final,
    request_id,
)
from kai_es.kube.objects import Pod
from kai_es.snapshot.effective import TaskState
from kai_es.snapshot.status import TaskStatus

ENDED_PHASES: Final = frozenset({"Succeeded", "Failed"})

FinalResult: TypeAlias = Bound | Evicted | AttemptFailed | Refused

_RANK: Final = {Bound: 3, Evicted: 2, AttemptFailed: 1, Refused: 0}
"""Of several final results the highest counts: what the API server did beats what a binder gave up.
"""


class Outcome(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What is known of a request's end: its last attempt that was not the last, its final result.

    Results fold in any order: `with_result` is commutative, associative and idempotent.
    """

    failed: AttemptFailed | None = None
    final: FinalResult | None = None

    def with_result(self, result: Result) -> "Outcome":
        """This outcome with one more result known."""
        if is_final(result):
            if self.final is None or _final_key(result) > _final_key(self.final):
                return msgspec.structs.replace(self, final=result)
            return self
        assert isinstance(result, AttemptFailed)
        if self.failed is None or _failed_key(result) > _failed_key(self.failed):
            return msgspec.structs.replace(self, failed=result)
        return self


def _final_key(result: FinalResult) -> tuple[int, int, str, bytes]:
    """Ties go to the later attempt, then to some fixed order."""
    return (_RANK[type(result)], result.attempt, result.binder, msgspec.msgpack.encode(result))


def _failed_key(result: AttemptFailed) -> tuple[int, str, bytes]:
    return (result.attempt, result.binder, msgspec.msgpack.encode(result))


UNKNOWN: Final = Outcome()


class Request(msgspec.Struct, kw_only=True, omit_defaults=True, tag="request"):
    """One bind or evict request and what became of it.

    decided_ms:  time of its cycle.
    incarnation: of the cluster's state that its cycle saw; a row of a later incarnation (etcd was
                 restored) does not know what was done of it before.
    node_gone:   its node's uid is deleted; ends it if it had no final result.
    doubted_ms:  when it was told that it was done, if that was in a later incarnation: it may have
                 been done before the restore, and be forgotten; 0 = no doubt.
    """

    id: str
    shard: str
    cycle: int
    decided_ms: int
    evict: bool = False
    pod_uid: str
    group_uid: str
    node: str
    node_uid: str
    incarnation: int = 0
    received: str = ""
    gpu_count: int = 0
    gpu_portion: int = 0
    gpu_groups: tuple[str, ...] = ()
    node_gone: bool = False
    doubted_ms: int = 0
    outcome: Outcome = UNKNOWN
    claims: tuple[ClaimGrant, ...] = ()
    extended: ExtendedGrant | None = None
    zones: tuple[ZoneAmount, ...] = ()

    def order(self) -> tuple[int, str, int]:
        """Key by which one pod's requests follow each other."""
        return (self.decided_ms, self.shard, self.cycle)


def requests_of(cycle: Cycle, *, incarnation: int) -> Iterable[Request]:
    """The requests of a cycle, in commit order; a pipelined pod has none."""
    for op in cycle.decision.ops:
        if not isinstance(op, Bind | Evict):
            continue
        request = Request(
            id=request_id(shard=cycle.shard, cycle=cycle.cycle, pod_uid=op.pod_uid),
            shard=cycle.shard,
            cycle=cycle.cycle,
            decided_ms=cycle.inputs.now_ms,
            evict=isinstance(op, Evict),
            pod_uid=op.pod_uid,
            group_uid=op.group_uid,
            node=op.node,
            node_uid=op.node_uid,
            incarnation=incarnation,
        )
        if isinstance(op, Bind):
            request.received = op.received
            request.gpu_count = op.gpu_count
            request.gpu_portion = op.gpu_portion
            request.gpu_groups = op.gpu_groups
            request.claims = op.claims
            request.extended = op.extended
            request.zones = op.zones
        yield request


class Sighting(msgspec.Struct, frozen=True):
    """What the log says of a pod: its valid row, and whether it was deleted.

    pod: None = no row (not yet, or no more; `deleted` tells).
    """

    pod: Pod | None = None
    incarnation: int = 0
    deleted: bool = False


def is_open(request: Request, seen: Sighting) -> bool:
    """Whether a request may still be executed."""
    if request.outcome.final is not None or request.node_gone or seen.deleted:
        return False
    pod = seen.pod
    if pod is None:
        return True
    if pod.phase in ENDED_PHASES:
        return False
    return request.evict or not pod.node


def is_in_effect(request: Request, seen: Sighting) -> bool:
    """Whether a request makes its pod something that its row does not show yet."""
    if is_open(request, seen):
        return True
    pod, final = seen.pod, request.outcome.final
    if pod is None or pod.phase in ENDED_PHASES:
        return False
    if seen.incarnation > request.incarnation and not request.doubted_ms:
        return False
    if isinstance(final, Bound):
        return not pod.node
    return isinstance(final, Evicted) and not pod.deleted_ms


def task_state(seen: Sighting, requests: Sequence[Request]) -> TaskState:
    """Where a pod stands.

    Args:
        seen: with its pod.
        requests: all known ones of the pod, by `order`.

    Reference: pkg/scheduler/api/pod_status/pod_status.go, pod_info.go (scheduler-core §5.3, §5.4);
    a bind request there is an open or `bound` one here.
    """
    pod = seen.pod
    assert pod is not None, "no pod to tell the state of"
    binding = _last(r for r in requests if not r.evict and is_in_effect(r, seen))
    evicting = any(r.evict and is_in_effect(r, seen) for r in requests)
    grant = (
        binding
        or _last(r for r in requests if _has_bound(r, seen))
        or _last(r for r in requests if _granted(r, pod))
    )
    groups = grant.gpu_groups if grant is not None else ()
    promised = grant if pod.phase == "Pending" else None
    return TaskState(
        status=_status(pod, binding, evicting=evicting),
        node=pod.node or (binding.node if binding is not None else ""),
        gpu_groups=groups or pod.gpu_groups,
        received=(grant.received if grant is not None else "") or pod.received,
        gpu_count=grant.gpu_count if grant is not None else 0,
        gpu_portion=grant.gpu_portion if grant is not None else 0,
        request_id=requests[-1].id if requests else "",
        claims=promised.claims if promised is not None else (),
        extended=promised.extended if promised is not None else None,
        zones=grant.zones if grant is not None else (),
    )


def needed(requests: Sequence[Request], seen: Sighting) -> list[Request]:
    """Those of one pod's requests (by `order`) that anything can still depend on.

    Of a pod without a row yet: all. Of a deleted one: those that wait for their final result. Else
    also the last one (the next names it), and the last bind (what it granted is not on the row);
    and the one that has bound it, which a later one may not know yet.
    """
    if seen.pod is None and not seen.deleted:
        return list(requests)
    last = requests[-1] if requests and not seen.deleted else None
    bind = _last(r for r in requests if not r.evict) if not seen.deleted else None
    return [
        r
        for r in requests
        if r is last
        or r is bind
        or r.outcome.final is None
        or is_in_effect(r, seen)
        or _has_bound(r, seen)
    ]


_BY_PHASE: Final = {
    "Succeeded": TaskStatus.SUCCEEDED,
    "Failed": TaskStatus.FAILED,
}


def _status(pod: Pod, binding: Request | None, *, evicting: bool) -> TaskStatus:
    if pod.phase not in ("Running", "Pending"):
        return _BY_PHASE.get(pod.phase, TaskStatus.UNKNOWN)
    if pod.deleted_ms or evicting:
        return TaskStatus.RELEASING
    if pod.phase == "Running":
        return TaskStatus.RUNNING
    if pod.node:
        return TaskStatus.BOUND
    if binding is not None:
        is_bound = isinstance(binding.outcome.final, Bound)
        return TaskStatus.BOUND if is_bound else TaskStatus.BINDING
    return TaskStatus.GATED if pod.gated else TaskStatus.PENDING


def _granted(request: Request, pod: Pod) -> bool:
    """Whether a bound pod got there by this request."""
    return (
        not request.evict
        and pod.node != ""
        and request.node == pod.node
        and not isinstance(request.outcome.final, AttemptFailed | Refused)
    )


def _has_bound(request: Request, seen: Sighting) -> bool:
    """Whether it is known that a pod, seen bound, got there by this request."""
    return (
        isinstance(request.outcome.final, Bound)
        and seen.pod is not None
        and seen.incarnation == request.incarnation
        and seen.pod.node == request.node
    )


def _last(requests: Iterable[Request]) -> Request | None:
    found = None
    for request in requests:
        found = request
    return found
