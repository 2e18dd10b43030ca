"""What one pod adds to the status of its group.

Reference: pkg/podgroupcontroller (apis §3.7).
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

from kai_es.kube.conditions import TRUE
from kai_es.kube.labels import GPU, MEMORY, MIG_PREFIX, PODS
from kai_es.kube.objects import Node, Pod, PodSpec
from kai_es.status import sharing
from kai_es.status.amounts import MICRO, Amounts, count

_MILLI: Final = 1000
_WHOLE: Final = frozenset({MEMORY, "ephemeral-storage", "storage"})
"""Resources that `PodSpec.requests` has in units, as it has MIG profiles; others in thousandths."""

ACTIVE: Final = ("Pending", "Running")


class Share(NamedTuple):
    """What a pod asks for and what it holds. `problem`: why some of it is not counted."""

    requested: Amounts
    allocated: Amounts
    problem: str = ""


NOTHING: Final = Share({}, {})


def is_active(pod: Pod) -> bool:
    """Whether a pod asks for anything."""
    return pod.phase in ACTIVE


def is_allocated(pod: Pod) -> bool:
    """Whether a pod holds anything; deletion does not take it away before the pod has ended."""
    return pod.phase == "Running" or (pod.phase == "Pending" and pod.scheduled == TRUE)


def share_of(pod: Pod, node: Node | None, claimed: Mapping[str, int]) -> Share:
    """What a pod asks for and holds.

    Args:
        pod: of any group.
        node: its node, None = it has none or none that is known.
        claimed: devices by device class, from its resource claims.
    """
    if not is_active(pod):
        return NOTHING
    base = dict(containers(pod.spec))
    count(base, {name: devices * MICRO for name, devices in claimed.items()})
    requested = dict(base)
    count(requested, sharing.requested(pod))
    if not is_allocated(pod):
        return Share(requested, {})
    try:
        count(base, sharing.received(pod, node))
    except sharing.UnknownShareError as exc:
        return Share(requested, base, str(exc))
    return Share(requested, base)


def containers(spec: PodSpec) -> Amounts:
    """What regular containers ask for; init containers do not count, nor do sidecars."""
    found: dict[str, int] = {}
    if spec.containers:
        for one in spec.containers:
            if not one.kind:
                _count_in(found, one.requests)
    else:
        _count_in(found, spec.requests)
    for container in spec.extended:
        for name, _, devices in container.requests if not container.kind else ():
            if name.endswith(GPU):  # all others are counted already, under their own names
                count(found, {name: devices * MICRO})
    return found


def _count_in(total: dict[str, int], requests: Mapping[str, int]) -> None:
    for name, amount in requests.items():
        if name not in (GPU, PODS):
            count(total, {name: amount * _unit(name)})


def _unit(name: str) -> int:
    """Millionths per unit of `PodSpec.requests`."""
    return MICRO if name in _WHOLE or name.startswith(MIG_PREFIX) else MICRO // _MILLI
