"""Cases of claims: their names, their GPUs, their users."""

from collections.abc import Iterator
from typing import Any

import msgspec

from kai_es.kube.devices import gpus_of, reserved, unreserved
from kai_es.kube.objects import Pod
from kai_es.kube.quantity import request_ceil
from kai_es.scheduler.flags import Flags
from kai_es.scheduler.plugins.dynamicresources import unnamed_claim
from kai_es.snapshot.device_rows import references
from kai_es.snapshot.snapshot import Snapshot
from tests.conformance.diff import first_difference
from tests.conformance.node_info_ops import Input
from tests.conformance.node_info_ops.objects import claim_of, pod_of


def claim_count(case: Input, flags: Flags) -> dict[str, Any]:
    return {"count": gpus_of(claim_of(case["claim"]).requests)[1]}


def claim_name(case: Input, flags: Flags) -> dict[str, Any]:
    wanted, raw = case["podClaim"], dict(case["pod"])
    spec = {**raw.get("spec", {}), "resourceClaims": [wanted]}
    pod = pod_of({**raw, "spec": spec})
    if "metadata" not in raw:
        pod = msgspec.structs.replace(pod, name="", namespace="")
    name = dict(references(pod)).get(wanted["name"], "")
    return {"name": name} if name else {"error": unnamed_claim(pod, wanted["name"])}


def gpu_resources(case: Input, flags: Flags) -> dict[str, Any]:
    snapshot, pod = Snapshot(), pod_of(case["pod"])
    for raw in case["clusterObjects"]:
        snapshot.set_claim(claim_of(raw), rv=1)
    error = next(_lookup_errors(snapshot, pod), None)
    if error is not None:
        return {"error": error}
    counts = snapshot.devices.gpus_of_pod(pod)
    return {"resources": {name: str(count) for name, count in counts.items()}}


def _lookup_errors(snapshot: Snapshot, pod: Pod) -> Iterator[str]:
    """The reference fails on what ours waits for: a claim that is not there yet."""
    who = f"pod {pod.namespace}/{pod.name}"
    for reference, name in references(pod):
        if not name:
            inner = unnamed_claim(pod, reference)
            yield f"failed to get resource claim name for {who}, claim {reference}: {inner}"
        elif snapshot.devices.claim((pod.namespace, name)) is None:
            yield (
                f"failed to get resource claim {pod.namespace}/{name} for {who}: "
                f'resourceclaims.resource.k8s.io "{name}" not found'
            )


def unreserve(case: Input, flags: Flags) -> dict[str, Any]:
    claim = unreserved(claim_of(case["claim"]), pod_of(case["pod"]).uid)
    return {"claim": _shown(claim)}


def reserve(case: Input, flags: Flags) -> dict[str, Any]:
    pod = pod_of(case["pod"])
    return {"claim": _shown(reserved(claim_of(case["claim"]), pod.name, pod.uid))}


def _shown(claim: Any) -> dict[str, Any]:
    users = [
        {"resource": one.resource, "name": one.name, "uid": one.uid} for one in claim.reserved_for
    ]
    return {"status": {"reservedFor": users}} if users else {}


def total(case: Input, flags: Flags) -> dict[str, Any]:
    """Amounts as the account adds them up, in thousandths."""
    names = dict.fromkeys([*case["left"], *case["right"]])
    return {
        "sum": {name: _milli(case["left"], name) + _milli(case["right"], name) for name in names}
    }


def _milli(amounts: Input, name: str) -> int:
    return request_ceil(amounts.get(name, "0"), scale=1000, what="case", field=name)


def compare(case: Input, got: Any) -> str | None:
    want = case["expect"]
    if case["op"] == "sumResources":
        want = {"sum": {name: _milli(want["sum"], name) for name in want["sum"]}}
    return first_difference(got, want)


OPS = {
    "claimGpuCount": claim_count,
    "claimName": claim_name,
    "draGpuResources": gpu_resources,
    "unreserveClaim": unreserve,
    "reserveClaim": reserve,
    "sumResources": total,
}
