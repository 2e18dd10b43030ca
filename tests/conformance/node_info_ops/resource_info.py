"""Cases of amounts and requests as such, and of which claims belong to which pod."""

from typing import Any

from kai_es.kube.devices import ResourceClaim
from kai_es.kube.labels import CPU, GPU, GPU_MICRO
from kai_es.kube.resources import offered
from kai_es.scheduler.columns.resources import Demand, ResourceIndex
from kai_es.scheduler.flags import Flags
from kai_es.snapshot.shapes import Shape
from kai_es.snapshot.snapshot import Snapshot
from tests.conformance.diff import first_difference
from tests.conformance.node_info_ops import Input
from tests.conformance.node_info_ops.amounts import shown, shown_request, spec_of
from tests.conformance.node_info_ops.objects import claim_of, pod_of


def requirements(case: Input, flags: Flags) -> dict[str, Any]:
    """As requests of a pod, where no amount is negative, so sizes are read."""
    given = case["resourceList"]
    sizes = {name: str(value).lstrip("-") for name, value in given.items()}
    pod = pod_of({"spec": {"containers": [{"name": "c", "resources": {"requests": sizes}}]}})
    found = shown_request(pod.spec)
    found["scalars"].pop("pods", None)
    if str(given.get(CPU, "")).startswith("-"):
        found["milliCpu"] = -found["milliCpu"]
    return {"resReq": found}


def resource(case: Input, flags: Flags) -> dict[str, Any]:
    return {"resource": shown(offered(case["resourceList"], what="case", field="resourceList"))}


def _vectors(case: Input) -> tuple[Any, Any]:
    """Both requests as the account of a node compares them."""
    shapes = [Shape(spec_of(case[side], _type(case[side])), 0) for side in ("left", "right")]
    index = ResourceIndex()
    index.add(name for shape in shapes for name in shape.spec.requests)
    left, right = (Demand(shape, index).request for shape in shapes)
    return left, right


def _type(raw: Input) -> str:
    return "Fraction" if 0 < raw.get("gpuPortion", 0) < 1 else "Regular"


def less_equal(case: Input, flags: Flags) -> dict[str, Any]:
    left, right = _vectors(case)
    memory = [case[side].get("gpuMemoryMiB", 0) for side in ("left", "right")]
    count = [case[side].get("gpuCount", 0) for side in ("left", "right")]
    by_memory = memory[0] <= memory[1] and (not memory[0] or count[0] <= count[1])
    return {"value": bool((left <= right).all()) and by_memory}


def less_somewhere(case: Input, flags: Flags) -> dict[str, Any]:
    left, right = _vectors(case)
    return {"value": bool((left < right).any())}


def largest(case: Input, flags: Flags) -> dict[str, Any]:
    """What a pod asks for whose container has the one request and its init container the other.

    Shares come from one annotation of a pod, so nothing in the scheduler takes a maximum of them;
    for them the rule of the reference is only written down here.
    """
    left, right = case["left"], case["right"]
    portions = [one.get("gpuPortion", 0) for one in (left, right)]
    if _is_shared(left) or _is_shared(right):
        if portions[0] != portions[1]:
            text = "cannot calculate max resource for GpuResourceRequirements with different"
            return {"error": f"{text} fractional portions. {portions[0]} vs {portions[1]}"}
        count = max(one.get("gpuCount", 0) for one in (left, right))
        memory = left.get("gpuMemoryMiB", 0)
        return {"max": {"gpuCount": count, "gpuPortion": portions[0], "gpuMemoryMiB": memory}}
    lists = [
        {"nvidia.com/gpu": str(one.get("gpuCount", 0))}
        | {name: str(count) for name, count in one.get("mig", {}).items()}
        for one in (left, right)
    ]
    spec = {
        "containers": [{"name": "c", "resources": {"requests": lists[0]}}],
        "initContainers": [{"name": "i", "resources": {"requests": lists[1]}}],
    }
    return {"max": shown_request(pod_of({"spec": spec}).spec)}


def _is_shared(raw: Input) -> bool:
    return 0 < raw.get("gpuPortion", 0) < 1 or raw.get("gpuMemoryMiB", 0) > 0


def devices(case: Input, flags: Flags) -> dict[str, Any]:
    shape = Shape(spec_of(case["gpu"], _type(case["gpu"])), 0)
    return {"devices": shape.spec.requests.get(GPU, 0) // GPU_MICRO or shape.spec.gpu.count}


def _rows(claims: Input) -> tuple[Snapshot, dict[str, ResourceClaim]]:
    snapshot, found = Snapshot(), {}
    for key, raw in claims.items():
        claim = claim_of(_found_under(key, raw))
        snapshot.set_claim(claim, rv=1)
        found[claim.uid] = claim
    return snapshot, found


def _found_under(key: str, raw: Input) -> dict[str, Any]:
    """A claim is found by the namespace and name of its key, whatever it says itself."""
    namespace, _, name = key.rpartition("/")
    metadata = {**raw["metadata"], "namespace": namespace, "name": name}
    owners = [{"name": "owner", **one} for one in metadata.get("ownerReferences", ())]
    status = raw.get("status") or {}
    users = [{"name": "user", **one} for one in status.get("reservedFor", ())]
    return {
        **raw,
        "metadata": {**metadata, "ownerReferences": owners},
        "status": {**status, "reservedFor": users},
    }


def by_pod(case: Input, flags: Flags) -> dict[str, Any]:
    snapshot, claims = _rows(case["claims"])
    found: dict[str, list[str]] = {}
    for raw in case["claims"].values():
        listed = [one["uid"] for one in raw["metadata"].get("ownerReferences", ())]
        listed += [one["uid"] for one in (raw.get("status") or {}).get("reservedFor", ())]
        for uid in listed:
            pod = pod_of({"metadata": {"name": "pod", "uid": uid}})
            mine = [claim.uid for claim in snapshot.devices.claims_of(pod) if claim.uid in claims]
            if mine:
                found[uid] = sorted(mine)
    return {"claimsByPodUid": found}


def of_pod(case: Input, flags: Flags) -> dict[str, Any]:
    """Claims of a pod; those given by the pod's uid alone are made its own."""
    raw = dict(case["pod"])
    wanted = (raw.get("spec") or {}).get("resourceClaims", ())
    named = [{"name": f"claim-{n}", **one} for n, one in enumerate(wanted)]
    pod = pod_of({**raw, "spec": {**(raw.get("spec") or {}), "resourceClaims": named}})
    owner = [{"kind": "Pod", "apiVersion": "v1", "name": pod.name, "uid": pod.uid}]
    given = dict(case["claims"])
    known = {raw["metadata"]["uid"] for raw in given.values()}
    for uid in case["claimsByPodUid"].get(pod.uid, ()):
        if uid not in known:
            given[f"elsewhere/{uid}"] = {"metadata": {"uid": uid, "ownerReferences": owner}}
        else:
            key = next(key for key, raw in given.items() if raw["metadata"]["uid"] == uid)
            metadata = {**given[key]["metadata"], "ownerReferences": owner}
            given[key] = {**given[key], "metadata": metadata}
    snapshot, _ = _rows(given)
    return {"claims": sorted(claim.uid for claim in snapshot.devices.claims_of(pod))}


def compare(case: Input, got: Any) -> str | None:
    want = case["expect"]
    if case["op"] == "claimsByPod":
        mine, other = got["claimsByPodUid"], want["claimsByPodUid"]
        return None if mine == other else f"got {mine}, want {other}"
    return first_difference(got, want)


OPS = {
    "requirementsFromList": requirements,
    "resourceFromList": resource,
    "lessEqual": less_equal,
    "maxOf": largest,
    "lessInAtLeastOne": less_somewhere,
    "gpuDevices": devices,
    "claimsByPod": by_pod,
    "podClaims": of_pod,
}
