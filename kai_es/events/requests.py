"""Records of the topics `bindrequests` (owner: scheduler) and `bindresults` (owner: binder).

Key: pod uid. Ids of requests are `<shard>/<cycle>/<pod uid>`.
"""

from typing import Final

import msgspec

from kai_es.events.decisions import ClaimGrant, ExtendedGrant, ZoneAmount

DELETE: Final = "delete"
BUDGET: Final = "budget"
"""Of evictions: whether disruption budgets are heeded. Also the code of one that they forbade."""


def request_id(*, shard: str, cycle: int, pod_uid: str) -> str:
    """The deterministic id of a request."""
    return f"{shard}/{cycle}/{pod_uid}"


def cycle_of(request: str) -> tuple[str, int]:
    """Shard and cycle of a request id."""
    shard, cycle, _ = request.rsplit("/", 2)
    return shard, int(cycle)


class BindRequested(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="bind"):
    """Order to bind one pod to one node. Reference: BindRequest (binder.md §3.1).

    pod_rv:     resourceVersion of the pod that the decision saw.
    not_after_ms: the binder refuses it later than this.
    supersedes: id of the previous request for this pod, "" = none; history only.
    gpu_portion: share of each device with two decimals, in hundredths (50 = 0.50).
    claims, extended: devices of the pod's claims and of its extended resources.
    zones:      NUMA zones that the pod is expected to get.
    volumes:    names of its claims of volumes that are bound on the node before it.
    reservation_app: of a pod that shares GPUs: label `app` by which the scheduler knows reservation
                pods, "" = a request of an earlier release, which did not say.
    """

    request_id: str
    shard: str
    cycle: int
    epoch: int
    namespace: str
    pod: str
    pod_uid: str
    pod_rv: int
    node: str
    node_uid: str
    group_uid: str
    not_after_ms: int
    supersedes: str = ""
    received: str = "Regular"
    gpu_count: int = 0
    gpu_portion: int = 0
    gpu_groups: tuple[str, ...] = ()
    claims: tuple[ClaimGrant, ...] = ()
    extended: ExtendedGrant | None = None
    zones: tuple[ZoneAmount, ...] = ()
    volumes: tuple[str, ...] = ()
    reservation_app: str = ""


class EvictRequested(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="evict"):
    """Order to evict one pod. Reference: scheduler-core §11.2.

    eviction: `delete`, or `budget`: within disruption budgets, waiting for them to `not_after_ms`.
    marks:    of `delete`: the pod gets the condition `DisruptionTarget` first, as the Eviction API
              gives it one by itself.
    """

    request_id: str
    shard: str
    cycle: int
    epoch: int
    namespace: str
    pod: str
    pod_uid: str
    pod_rv: int
    node: str
    node_uid: str
    group_uid: str
    not_after_ms: int
    supersedes: str = ""
    action: str
    message: str = ""
    gang_size: int = 1
    beneficiary: str = ""
    eviction: str = DELETE
    marks: bool = False


Request = BindRequested | EvictRequested


class Answer(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What the API server said: HTTP status (0 = no call was needed), reason and message."""

    status: int = 0
    reason: str = ""
    message: str = ""


class Bound(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="bound"):
    """The API server accepted a binding, or the pod was found bound to this node by it. Final."""

    request_id: str
    attempt: int
    binder: str
    pod_uid: str
    node: str
    node_uid: str
    answer: Answer = Answer()
    duration_ms: int = 0


class Evicted(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="evicted"):
    """The API server accepted the deletion, or the pod was found going. Final."""

    request_id: str
    attempt: int
    binder: str
    pod_uid: str
    answer: Answer = Answer()
    duration_ms: int = 0


class AttemptFailed(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="failed"):
    """One attempt failed. `final`: the last one; feeds the back-off of (pod group, code)."""

    request_id: str
    attempt: int
    binder: str
    pod_uid: str
    group_uid: str
    code: str
    answer: Answer = Answer()
    final: bool = True
    duration_ms: int = 0


class Refused(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="refused"):
    """The request was not or no longer to be executed. Final.

    code: expired | node-gone | pod-gone | bound-elsewhere (to another node, or by another request).
    """

    request_id: str
    attempt: int
    binder: str
    pod_uid: str
    code: str
    answer: Answer = Answer()


Result = Bound | Evicted | AttemptFailed | Refused


def is_final(result: Result) -> bool:
    """Whether a result ends its request."""
    return not isinstance(result, AttemptFailed) or result.final
