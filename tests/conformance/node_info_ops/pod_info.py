"""Cases of pods as tasks: what they ask for, what they have got, what state they are in."""

from typing import Any

from kai_es.events.decisions import ClaimGrant
from kai_es.kube.devices import Allocation
from kai_es.kube.objects import Pod
from kai_es.kube.times import duration_ms, time_ms
from kai_es.scheduler.columns.columns import Columns
from kai_es.scheduler.columns.lens import Lens
from kai_es.scheduler.flags import Flags
from kai_es.scheduler.jobs.select import should_allocate
from kai_es.scheduler.jobs.signature import pod_signature
from kai_es.snapshot.effective import TaskState
from kai_es.snapshot.lifecycle import Request, Sighting, task_state
from kai_es.snapshot.shapes import Shape
from kai_es.snapshot.snapshot import Snapshot
from kai_es.snapshot.status import TaskStatus
from tests.conformance.node_info_ops import Input
from tests.conformance.node_info_ops.amounts import shown_request, spec_of
from tests.conformance.node_info_ops.objects import claim_of, node_of, pod_of
from tests.conformance.node_info_ops.stage import status_name

NS_PER_MS = 1_000_000


def _bind_request(pod: Pod, raw: Any) -> list[Request]:
    """The open request that stands for a BindRequest object."""
    if not raw:
        return []
    spec = {} if raw is True else raw["spec"]
    grants = tuple(
        ClaimGrant(one["name"], one["name"], "", _allocation(one["allocation"]))
        for one in spec.get("resourceClaimAllocations", ())
    )
    return [
        Request(
            id="s/1/p",
            shard="s",
            cycle=1,
            decided_ms=1,
            pod_uid=pod.uid,
            group_uid="g",
            node=spec.get("selectedNode", ""),
            node_uid="n",
            received=spec.get("receivedResourceType", ""),
            gpu_groups=tuple(spec.get("selectedGPUGroups", ())),
            claims=grants,
        )
    ]


def _allocation(raw: Any) -> Allocation:
    found = claim_of({"status": {"allocation": raw}}).allocation
    assert found is not None
    return found


def _task(case: Input) -> tuple[Pod, TaskState, Snapshot]:
    """The pod with its GPUs of claims, as the rows have it."""
    snapshot, pod = Snapshot(), pod_of(case["pod"])
    for raw in case.get("resourceClaims") or ():
        snapshot.set_claim(claim_of(raw), rv=1)
    state = task_state(Sighting(pod), _bind_request(pod, case.get("bindRequest")))
    snapshot.set_pod(pod, rv=1, task=state)
    row = snapshot.pods[pod.uid]
    return row.pod, row.state, snapshot


def request(case: Input, flags: Flags) -> dict[str, Any]:
    return {"resReq": shown_request(pod_of(case["pod"]).spec)}


def request_kind(case: Input, flags: Flags) -> dict[str, Any]:
    pod, state, _ = _task(case)
    return {
        "requestType": pod.spec.request_type,
        "receivedType": state.received,
        "resReq": shown_request(pod.spec),
        "gpuGroups": list(state.gpu_groups),
        "legacyMig": pod.spec.legacy_mig,
    }


def task_from_pod(case: Input, flags: Flags) -> dict[str, Any]:
    pod, state, snapshot = _task(case)
    claims = {
        name: {"name": name, "allocation": _shown(allocation)}
        for name, allocation in snapshot.devices.known(pod, state).items()
    }
    return {
        "status": status_name(state.status),
        "requestType": pod.spec.request_type,
        "resReq": shown_request(pod.spec),
        "nodeName": state.node,
        "resourceClaims": claims,
    }


def _shown(allocation: Allocation) -> dict[str, Any]:
    results = [
        {"request": one.request, "driver": one.driver, "pool": one.pool, "device": one.device}
        for one in allocation.devices
    ]
    return {"devices": {"results": results}}


def status(case: Input, flags: Flags) -> dict[str, Any]:
    """The status of a task at a time; by the clock alone it may be stuck."""
    raw = case["pod"]
    pod = pod_of({**raw, "spec": {**raw.get("spec", {}), "nodeName": "node"}})
    threshold = duration_ms(case["stuckInReleasingThreshold"], what="case", field="threshold")
    snapshot = Snapshot()
    snapshot.set_node(node_of({"metadata": {"name": "node"}}), rv=1)
    requests = _bind_request(pod, case["bindRequest"])
    snapshot.set_pod(pod, rv=1, task=task_state(Sighting(pod), requests))
    columns = Columns(snapshot, Lens(stuck_after_ms=threshold))
    columns.refresh(time_ms(case["now"], what="case", field="now"))
    return {"status": status_name(columns.status_of(snapshot.pods[pod.uid]))}


def same_signature(case: Input, flags: Flags) -> dict[str, Any]:
    left, right = (pod_signature(pod_of(case[side]).spec) for side in ("left", "right"))
    return {"same": left == right}


def allocate(case: Input, flags: Flags) -> dict[str, Any]:
    status = next(one for one in TaskStatus if status_name(one) == case["status"])
    real = case["realAllocation"]
    return {"shouldAllocate": should_allocate(status, virtual=case["virtualStatus"], real=real)}


def _shape(case: Input) -> Shape:
    return Shape(spec_of(case["resReq"]), 0)


def needs_gpu(case: Input, flags: Flags) -> dict[str, Any]:
    return {"value": _shape(case).needs_gpu}


def cpu_only(case: Input, flags: Flags) -> dict[str, Any]:
    return {"value": not _shape(case).needs_gpu}


OPS = {
    "podResourceRequest": request,
    "podResourceWithoutInit": request,
    "podRequestKind": request_kind,
    "taskFromPod": task_from_pod,
    "podTaskStatus": status,
    "sameSignature": same_signature,
    "shouldAllocate": allocate,
    "requiresAnyGpu": needs_gpu,
    "cpuOnlyRequest": cpu_only,
}
