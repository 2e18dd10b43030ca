"""What is to be written of one pod.

Reference: pkg/scheduler/cache/status_updater, pkg/binder/controllers (binder §6.4, apis §8.5).
"""

from collections.abc import Iterable
from typing import Any, Final, NamedTuple

from kai_es.events.requests import AttemptFailed, Bound, Refused
from kai_es.kube.conditions import TRUE, said_condition
from kai_es.kube.labels import AS_OF
from kai_es.kube.objects import Pod
from kai_es.kube.times import rfc3339
from kai_es.snapshot.lifecycle import ENDED_PHASES, Request
from kai_es.status.conditions import UNSCHEDULABLE
from kai_es.status.patch import PodConditions

POD_SCHEDULED: Final = "PodScheduled"
POD_BOUND: Final = "PodBound"
BOUND: Final = "Bound"
BINDING_ERROR: Final = "BindingError"

_NOT_AN_ERROR: Final = frozenset({"pod-gone", "bound-elsewhere"})
"""Refusals after which there is nothing to tell the pod."""


class PodCondition(NamedTuple):
    """A condition as it should be."""

    type: str
    status: str
    reason: str
    message: str

    def text(self) -> str:
        """As rows keep it (`kube.conditions.condition_text`)."""
        if self.status == TRUE:
            return TRUE
        return said_condition(self.status, self.reason, self.message)


def bound_text(node: str) -> str:
    """That a pod was bound."""
    return f"Pod bound successfully to node {node}"


def binding_error_text(pod: str, node: str, error: str) -> str:
    """That a pod (`namespace/name`) could not be bound."""
    return f"Failed to bind pod {pod} to node {node}: {error}"


def error_of(result: AttemptFailed | Refused) -> str:
    """What went wrong, in the API server's words if there are any."""
    return result.answer.message or result.code


def write_of(
    pod: Pod, unschedulable: str, requests: Iterable[Request], *, offset: int, now_ms: int
) -> PodConditions | None:
    """What is to be written, None = everything says so already.

    Args:
        pod: without an open request; a pod with one is left alone.
        unschedulable: why it cannot be scheduled, "" = nothing is said of it.
        requests: all known ones of the pod, by their order.
        offset: what it is computed from.
        now_ms: time of a transition.
    """
    if pod.phase in ENDED_PHASES or pod.deleted_ms:
        return None
    wanted = []
    if unschedulable and not pod.node and pod.scheduled != TRUE:
        wanted.append(PodCondition(POD_SCHEDULED, "False", UNSCHEDULABLE, unschedulable))
    bound = _bound(pod, requests)
    if bound is not None:
        wanted.append(bound)
    written = {POD_SCHEDULED: pod.scheduled, POD_BOUND: pod.bound}
    changed = [_raw(one, written[one.type], now_ms) for one in wanted if _is_news(one, written)]
    if not changed:
        return None
    return PodConditions(pod.namespace, pod.name, tuple(changed), {AS_OF: str(offset)})


def _is_news(one: PodCondition, written: dict[str, str]) -> bool:
    return written[one.type] != one.text()


def _bound(pod: Pod, requests: Iterable[Request]) -> PodCondition | None:
    """What the last bind request came to."""
    last = None
    for request in requests:
        if not request.evict:
            last = request
    final = last.outcome.final if last is not None else None
    if last is None or final is None:
        return None
    if isinstance(final, Bound) or pod.node == last.node:
        if pod.node != last.node:
            return None  # its row is still to come
        return PodCondition(POD_BOUND, TRUE, BOUND, bound_text(last.node))
    if pod.node or not isinstance(final, AttemptFailed | Refused) or final.code in _NOT_AN_ERROR:
        return None
    text = binding_error_text(f"{pod.namespace}/{pod.name}", last.node, error_of(final))
    return PodCondition(POD_BOUND, "False", BINDING_ERROR, text)


def _raw(one: PodCondition, written: str, now_ms: int) -> dict[str, Any]:
    """For a patch by type: the time stays where only the words changed."""
    raw: dict[str, Any] = {
        "type": one.type,
        "status": one.status,
        "reason": one.reason,
        "message": one.message,
    }
    if written.partition("\n")[0] != one.status:
        raw["lastTransitionTime"] = rfc3339(now_ms)
    return raw
