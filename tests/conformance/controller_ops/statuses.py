"""Statuses of pod groups and queues. Files `podgroup_controller` and `queue_controller`."""

from collections.abc import Mapping, Sequence
from typing import Any

from kai_es.kube.objects import Node, Pod
from kai_es.kube.parse import parse_priority_class
from kai_es.kube.parse_group import parse_group
from kai_es.kube.parse_node import parse_node
from kai_es.kube.parse_pod import parse_pod
from kai_es.kube.parse_queue import parse_queue
from kai_es.scheduler.columns.jobs import Priorities
from kai_es.scheduler.flags import Flags
from kai_es.status import sharing
from kai_es.status.amounts import MICRO, amounts_of, quantity
from kai_es.status.groups import is_fixed, resources_of, resources_patch
from kai_es.status.queues import child_names, totals_of
from kai_es.status.shares import is_active, is_allocated, share_of
from kai_es.status.tally import Place, Sums, Tally, with_children
from tests.conformance import build
from tests.conformance.controller_ops import Input, Result, Run

Raw = Mapping[str, Any]


def _named(raw: Raw, name: str = "x") -> dict[str, Any]:
    metadata = {"name": name, "uid": raw.get("metadata", {}).get("name", name)}
    return {**raw, "metadata": {**metadata, **raw.get("metadata", {})}}


def _pod(raw: Raw) -> Pod:
    return parse_pod(_named(build.raw_pod(raw)))


def _nodes(case: Input) -> dict[str, Node]:
    found = [_node(raw) for raw in case["clusterObjects"] if raw["kind"] == "Node"]
    return {node.name: node for node in found}


def _node(raw: Raw) -> Node:
    return parse_node(_named(raw, name="-"))


def _of_kind(case: Input, kind: str) -> list[Raw]:
    return [raw for raw in case["clusterObjects"] if raw["kind"] == kind]


class Quantity(str):
    """A quantity that equals any text of the same value."""

    def __eq__(self, other: object) -> bool:
        one, two = (amounts_of({"x": text}, what="case") for text in (str(self), str(other)))
        return one == two

    __hash__ = str.__hash__


def _status(raw: Any) -> Any:
    """Texts as quantities, at any depth."""
    if isinstance(raw, Mapping):
        return {name: _status(value) for name, value in raw.items()}
    return Quantity(raw) if isinstance(raw, str) else raw


# -- pod groups


def pod_group_status(case: Input, flags: Flags) -> Result:
    group = parse_group(build.raw_group(case["podGroup"]))
    priorities = _priorities(case)
    nodes, tally = _nodes(case), Tally()
    key = (group.namespace, group.name)
    for raw in _of_kind(case, "Pod"):
        pod = _pod(raw)
        is_own = (pod.namespace, pod.group) == key
        share = share_of(pod, nodes.get(pod.node), {})
        tally.set_pod(pod.uid, key if is_own else None, share)
    tally.place(key, Place(group.queue, fixed=is_fixed(group, priorities)))
    found = resources_of(tally.groups.get(key), fixed=is_fixed(group, priorities))
    return {"status": {"resourcesStatus": _status(found)} if found else {}}


def _priorities(case: Input) -> Priorities:
    return Priorities(parse_priority_class(_named(raw)) for raw in _of_kind(case, "PriorityClass"))


def pod_active(case: Input, flags: Flags) -> Result:
    return {"value": is_active(_pod(case["pod"]))}


def pod_allocated(case: Input, flags: Flags) -> Result:
    return {"value": is_allocated(_pod(case["pod"]))}


def group_preemptible(case: Input, flags: Flags) -> Result:
    group = parse_group(build.raw_group(case["podGroup"]))
    return {"preemptible": not is_fixed(group, _priorities(case))}


def _new_resources(case: Input) -> dict[str, Any]:
    given = case["metadata"]
    sums = Sums()
    sums.requested = amounts_of(given.get("requested", {}), what="case")
    sums.allocated = amounts_of(given.get("allocated", {}), what="case")
    return resources_of(sums, fixed=not given.get("preemptible", False))


def status_changed(case: Input, flags: Flags) -> Result:
    group = parse_group(build.raw_group(case["podGroup"]))
    return {"update": resources_patch(group.resources, _new_resources(case)) is not None}


def update_status(case: Input, flags: Flags) -> Result:
    raw = case["podGroup"]
    group = parse_group(build.raw_group(raw))
    patch = resources_patch(group.resources, _new_resources(case))
    status = {**raw.get("status", {})}
    if patch is not None:
        status["resourcesStatus"] = _status(patch)
    return {"status": status}


# -- shared GPUs


def _or_error(run: Run) -> Run:
    def answered(case: Input, flags: Flags) -> Result:
        try:
            return run(case, flags)
        except sharing.UnknownShareError as exc:
            return {"error": str(exc)}

    return answered


def received_sharing(case: Input, flags: Flags) -> Result:
    pod = _pod(case["pod"])
    return {"resources": _quantities(sharing.received(pod, None))}


def requested_sharing(case: Input, flags: Flags) -> Result:
    return {"resources": _quantities(sharing.requested(_pod(case["pod"])))}


def _quantities(amounts: Mapping[str, int]) -> Result:
    return {name: Quantity(quantity(amount)) for name, amount in amounts.items()}


def allocated_fraction(case: Input, flags: Flags) -> Result:
    pod = _pod(case["pod"])
    found = sharing.allocated_fraction(pod, _nodes(case).get(pod.node))
    return {"fraction": Quantity(quantity(found))}


def fraction_from_memory(case: Input, flags: Flags) -> Result:
    name = case["nodeName"]
    memory = amounts_of({"x": case["gpuMemory"]}, what="case")["x"] // MICRO
    found = sharing.fraction_of_memory(memory, name, _nodes(case).get(name))
    return {"fraction": Quantity(quantity(found))}


def node_gpu_memory(case: Input, flags: Flags) -> Result:
    name = case["nodeName"]
    return {"memoryMiB": sharing.gpu_memory(name, _nodes(case).get(name or "-"))}


def nvidia_gpu_memory(case: Input, flags: Flags) -> Result:
    return {"memoryMiB": sharing.nvidia_memory(_node(case["node"]).labels)}


def amd_gpu_memory(case: Input, flags: Flags) -> Result:
    return {"memoryMiB": sharing.amd_memory(_node(case["node"]).labels)}


def pod_index_keys(case: Input, flags: Flags) -> Result:
    group = _pod(case["pod"]).group
    return {"keys": [group] if group else []}


# -- queues


def queue_resources(case: Input, flags: Flags) -> Result:
    queue = case["queue"]["metadata"]["name"]
    own: dict[str, Sums] = {}
    for raw in _of_kind(case, "PodGroup"):
        _count(own, raw["spec"]["queue"], raw.get("status", {}).get("resourcesStatus", {}))
    for raw in _of_kind(case, "Queue"):
        _count(own, raw["metadata"]["name"], raw.get("status", {}))
    parents = _parents(case, queue)
    return {"status": _status(totals_of(with_children(own, parents)[queue]))}


def _count(own: dict[str, Sums], queue: str, status: Raw) -> None:
    sums = own.setdefault(queue, Sums())
    more = Sums()
    more.requested = amounts_of(status.get("requested", {}), what="case")
    more.allocated = amounts_of(status.get("allocated", {}), what="case")
    more.fixed = amounts_of(status.get("allocatedNonPreemptible", {}), what="case")
    sums.add_all(more)


def _parents(case: Input, queue: str) -> dict[str, str]:
    raws = [*_of_kind(case, "Queue"), case["queue"]]
    return {q.name: q.parent for q in (parse_queue(build.raw_queue(raw)) for raw in raws)}


def child_queues(case: Input, flags: Flags) -> Result:
    queue = case["queue"]["metadata"]["name"]
    names: Sequence[str] = child_names(_parents(case, queue)).get(queue, ())
    return {"childQueues": sorted(names)}


OPS: dict[str, Run] = {
    "podGroupStatus": pod_group_status,
    "podActive": pod_active,
    "podAllocated": pod_allocated,
    "groupPreemptible": group_preemptible,
    "statusChanged": status_changed,
    "updateStatus": update_status,
    "receivedSharing": received_sharing,
    "requestedSharing": requested_sharing,
    "allocatedFraction": _or_error(allocated_fraction),
    "fractionFromMemory": _or_error(fraction_from_memory),
    "nodeGpuMemory": _or_error(node_gpu_memory),
    "nvidiaGpuMemory": _or_error(nvidia_gpu_memory),
    "amdGpuMemory": _or_error(amd_gpu_memory),
    "podIndexKeys": pod_index_keys,
    "queueResources": queue_resources,
    "childQueues": child_queues,
}
EXACT = ("podGroupStatus", "updateStatus", "queueResources", "receivedSharing", "requestedSharing")
"""Ops whose result may have nothing that a case does not name."""
