"""A cluster on which KAI runs, as its objects show it (reference: apis.md §2-§4, §8; binder.md §3).

Two nodes with four GPUs each:

* node-1: `train` with two whole GPUs, `half` and `most` on one shared GPU (group G1), whose
  reservation pod has a name of the time before v0.16.
* node-2: `spread` with a half of each of two GPUs (groups G2 and G3), a pod of the default
  scheduler with one.
* waiting: `alone` (one GPU), `little` (a tenth) and `second` (a half), of which KAI knows nothing
  yet; `asked`, whose BindRequest its binder is about to execute; `left`, whose attempt was broken
  off: it has a label, a reservation pod (group G9) and a BindRequest that nobody executes.
"""

from typing import Any

from tests.simulation.api_client import Api

Object = dict[str, Any]

PODS = "/api/v1/namespaces/team-a/pods"
RESERVATIONS = "/api/v1/namespaces/kai-resource-reservation/pods"
GROUPS = "/apis/scheduling.run.ai/v2alpha2/namespaces/team-a/podgroups"
REQUESTS = "/apis/scheduling.run.ai/v1alpha2/namespaces/team-a/bindrequests"
QUEUES = "/apis/scheduling.run.ai/v2/queues"
NODES = "/api/v1/nodes"

G1 = "0d5c8f6e-3a27-4d0a-9f7d-6a1f0f2f1b01"
G2 = "1b7f0f1e-3a27-4d0a-9f7d-6a1f0f2f1b02"
G3 = "2c9e2d3f-3a27-4d0a-9f7d-6a1f0f2f1b03"
G9 = "9fae4c5d-3a27-4d0a-9f7d-6a1f0f2f1b09"
STARTED = "2026-11-29T20:00:00Z"
STALE = "2026-11-29T21:00:00Z"
OWNED = {"kai.scheduler/queue": "team-a"}


def build(api: Api) -> None:
    """Make all of it; bound pods are there as their kubelet has started them."""
    for name in ("node-1", "node-2"):
        api.ok("POST", NODES, a_node(name))
    for name, parent in (("department", ""), ("team-a", "department")):
        api.ok("POST", QUEUES, a_queue(name, parent))
    for name in ("train", "half", "most", "spread"):
        api.ok("POST", GROUPS, a_group(name, started=STARTED))
    for name in ("alone", "little", "second", "asked", "left"):
        api.ok("POST", GROUPS, a_group(name))
    api.ok("POST", GROUPS, a_group("stale", stale=STALE, started=STARTED, members=2))
    _running(api)
    _waiting(api)


def _running(api: Api) -> None:
    for n in range(2):
        api.ok("POST", PODS, a_pod(f"train-{n}", "train", "node-1", gpus=1))
    reserve(api, "gpu-reservation-node-1-x7k2q", "node-1", G1)
    api.ok("POST", PODS, a_pod("half-0", "half", "node-1", share="0.5", shared=[G1]))
    api.ok("POST", PODS, a_pod("most-0", "most", "node-1", share="0.4", shared=[G1]))
    reserve(api, reservation_name("node-2", G2), "node-2", G2)
    reserve(api, reservation_name("node-2", G3), "node-2", G3)
    api.ok("POST", PODS, a_pod("spread-0", "spread", "node-2", share="0.5", shared=[G2, G3]))
    foreign = a_pod("foreign", "", "node-2", gpus=1)
    foreign["spec"]["schedulerName"] = "default-scheduler"
    api.ok("POST", PODS, foreign)
    api.ok("POST", PODS, a_pod("stale-0", "stale", "node-1"))
    api.ok("POST", REQUESTS, a_request("train-0", "node-1", gpus=1))
    status = {"status": {"phase": "Succeeded"}}
    api.patch(f"{REQUESTS}/train-0/status", status)


def _waiting(api: Api) -> None:
    api.ok("POST", PODS, a_pod("alone-0", "alone", gpus=1))
    api.ok("POST", PODS, a_pod("little-0", "little", share="0.1"))
    api.ok("POST", PODS, a_pod("second-0", "second", share="0.5"))
    asked = api.ok("POST", PODS, a_pod("asked-0", "asked", gpus=1))
    api.ok("POST", REQUESTS, a_request("asked-0", "node-1", gpus=1, pod=asked))
    left = a_pod("left-0", "left", share="0.5")
    left["metadata"]["labels"]["runai-gpu-group"] = G9
    left = api.ok("POST", PODS, left)
    reserve(api, reservation_name("node-2", G9), "node-2", G9)
    api.ok("POST", REQUESTS, a_request("left-0", "node-2", groups=[G9], pod=left))


def reservation_name(node: str, group: str) -> str:
    """As KAI names them since v0.16; written down, not computed by the code under test."""
    return {
        ("node-2", G2): "gpu-reservation-aaaa000000000002",
        ("node-2", G3): "gpu-reservation-aaaa000000000003",
        ("node-2", G9): "gpu-reservation-aaaa000000000009",
    }[node, group]


def reserve(api: Api, name: str, node: str, group: str) -> None:
    """A reservation pod; its program, here the kubelet, tells the GPU."""
    container = {
        "name": "resource-reservation",
        "image": "registry/local/kai-scheduler/resource-reservation",
        "resources": {
            "requests": {"nvidia.com/gpu": "1"},
            "limits": {"nvidia.com/gpu": "1"},
        },
    }
    pod = {
        "metadata": {
            "name": name,
            "labels": {"app": "kai-resource-reservation", "runai-gpu-group": group},
            "annotations": {"karpenter.sh/do-not-disrupt": "true"},
        },
        "spec": {
            "nodeName": node,
            "serviceAccountName": "kai-resource-reservation",
            "containers": [container],
        },
    }
    api.ok("POST", RESERVATIONS, pod)


def a_node(name: str) -> Object:
    has = {"cpu": "64", "memory": "256Gi", "pods": "110", "nvidia.com/gpu": "4"}
    ready = {"type": "Ready", "status": "True"}
    labels = {
        "kubernetes.io/hostname": name,
        "nvidia.com/gpu.count": "4",
        "nvidia.com/gpu.memory": "81920",
    }
    return {
        "metadata": {"name": name, "labels": labels},
        "status": {"capacity": has, "allocatable": has, "conditions": [ready]},
    }


def a_queue(name: str, parent: str) -> Object:
    whole = {"quota": -1, "limit": -1, "overQuotaWeight": 1}
    spec: Object = {"resources": {"cpu": whole, "memory": whole, "gpu": whole}}
    if parent:
        spec["parentQueue"] = parent
    return {
        "apiVersion": "scheduling.run.ai/v2",
        "kind": "Queue",
        "metadata": {"name": name},
        "spec": spec,
    }


def a_group(name: str, *, started: str = "", stale: str = "", members: int = 1) -> Object:
    owner = f"name: {name}\nuid: u-{name}\ngroup: batch\nversion: v1\nkind: Job\n"
    notes = {"kai.scheduler/top-owner-metadata": owner}
    if started:
        notes["kai.scheduler/last-start-timestamp"] = started
    if stale:
        notes["kai.scheduler/stale-podgroup-timestamp"] = stale
    return {
        "apiVersion": "scheduling.run.ai/v2alpha2",
        "kind": "PodGroup",
        "metadata": {"name": name, "annotations": notes, "labels": OWNED},
        "spec": {
            "queue": "team-a",
            "minMember": members,
            "priorityClassName": "train",
            "stalenessGracePeriod": "-1s",  # never: the test looks at the mark
        },
    }


def a_pod(
    name: str,
    group: str,
    node: str = "",
    *,
    gpus: int = 0,
    share: str = "",
    shared: list[str] | None = None,
) -> Object:
    """A pod as admission made it and, with a node, as KAI's binder left it."""
    requests = {"cpu": "1", "memory": "1Gi"} | ({"nvidia.com/gpu": str(gpus)} if gpus else {})
    container: Object = {
        "name": "main",
        "image": "image",
        "resources": {"requests": requests, "limits": requests},
    }
    notes = {"pod-group-name": group} if group else {}
    labels = dict(OWNED)
    spec: Object = {"schedulerName": "kai-scheduler", "containers": [container]}
    if share:
        maps = f"{name}-4kx7bq2-shared-gpu"
        notes |= {"gpu-fraction": share, "runai/shared-gpu-configmap": maps}
        if name == "spread-0":
            notes["gpu-fraction-num-devices"] = "2"
        _admitted(container, spec, f"{maps}-0")
    if node:
        spec["nodeName"] = node
        notes["received-resource-type"] = "Fraction" if share else "Regular"
    if shared and len(shared) == 1:
        labels["runai-gpu-group"] = shared[0]
    elif shared:
        labels |= {f"runai-gpu-group/{one}": one for one in shared}
    return {"metadata": {"name": name, "labels": labels, "annotations": notes}, "spec": spec}


def _admitted(container: Object, spec: Object, config_map: str) -> None:
    """What the admission webhook puts into a pod that shares a GPU (binder.md §9.2)."""
    container["env"] = [
        {
            "name": key,
            "valueFrom": {"configMapKeyRef": {"name": config_map, "key": key}},
        }
        for key in ("NVIDIA_VISIBLE_DEVICES", "RUNAI_NUM_OF_GPUS", "GPU_PORTION")
    ]
    direct = {"configMapRef": {"name": f"{config_map}-evar", "optional": False}}
    container["envFrom"] = [direct]
    spec["volumes"] = [{"name": f"{config_map}-vol", "configMap": {"name": config_map}}]


def a_request(
    name: str,
    node: str,
    *,
    gpus: int = 0,
    groups: list[str] | None = None,
    pod: Object | None = None,
) -> Object:
    """A BindRequest as KAI's scheduler makes it."""
    meta: Object = {"name": name, "labels": {"selected-node": node}}
    if pod is not None:
        uid = pod["metadata"]["uid"]
        meta["ownerReferences"] = [{"apiVersion": "v1", "kind": "Pod", "name": name, "uid": uid}]
    spec: Object = {
        "podName": name,
        "selectedNode": node,
        "receivedResourceType": "Fraction" if groups else "Regular",
        "receivedGPU": {"count": len(groups or ()) or gpus, "portion": "1.00"},
    }
    if groups:
        spec["selectedGPUGroups"] = groups
        spec["receivedGPU"]["portion"] = "0.50"
    kind = {"apiVersion": "scheduling.run.ai/v1alpha2", "kind": "BindRequest"}
    return {**kind, "metadata": meta, "spec": spec}
