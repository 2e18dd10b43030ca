"""Pods with claims on devices and volumes, from manifests to running; on any API server."""

from typing import Any

from tests.simulation.api_client import PODS, Api

Object = dict[str, Any]

DRIVER = "gpu.example.com"
RESOURCE = "example.com/gpu"
RESOURCE_API = "/apis/resource.k8s.io/v1"
CLAIMS = RESOURCE_API + "/namespaces/{ns}/resourceclaims"
TEMPLATES = RESOURCE_API + "/namespaces/{ns}/resourceclaimtemplates"
VOLUME_CLAIMS = "/api/v1/namespaces/{ns}/persistentvolumeclaims"
GROUPS = "/apis/scheduling.run.ai/v2alpha2/namespaces/{ns}/podgroups"
QUEUE = "team-a"
OWNED = {"kai.scheduler/queue": QUEUE}
NAMES = ("templated", "sharer-a", "sharer-b", "extended", "stored", "scratch")


def build(api: Api, node: str) -> None:
    """A driver with three GPUs on `node`, a provisioner's class, six pods with their groups.

    `templated` has a claim of a template, the sharers have one claim together, `extended` asks for
    an extended resource that the class serves, `stored` mounts a claim, `scratch` its own volume.
    """
    api.ok("POST", f"{RESOURCE_API}/deviceclasses", a_class())
    api.ok("POST", f"{RESOURCE_API}/resourceslices", a_slice(node, 3))
    storage = {
        "metadata": {"name": "disk"},
        "provisioner": "disk.example.com",
        "volumeBindingMode": "WaitForFirstConsumer",
    }
    api.ok("POST", "/apis/storage.k8s.io/v1/storageclasses", storage)
    requests = {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": DRIVER}}]}}
    api.ok("POST", TEMPLATES, {"metadata": {"name": "one-gpu"}, "spec": {"spec": requests}})
    api.ok("POST", CLAIMS, {"metadata": {"name": "both", "labels": OWNED}, "spec": requests})
    api.ok("POST", VOLUME_CLAIMS, {"metadata": {"name": "data"}, "spec": a_disk()})
    for name in NAMES:
        api.ok("POST", GROUPS, a_group(name))
        api.ok("POST", PODS, a_pod(name, **_SPECS[name]))


def a_class() -> Object:
    """Every device of the driver; it serves an extended resource, too."""
    selector = {"cel": {"expression": f"device.driver == '{DRIVER}'"}}
    spec = {"selectors": [selector], "extendedResourceName": RESOURCE}
    return {"metadata": {"name": DRIVER}, "spec": spec}


def a_slice(node: str, n_devices: int) -> Object:
    spec = {
        "driver": DRIVER,
        "nodeName": node,
        "pool": {"name": node, "generation": 1, "resourceSliceCount": 1},
        "devices": [{"name": f"gpu-{n}"} for n in range(n_devices)],
    }
    return {"metadata": {"name": f"{node}-gpus"}, "spec": spec}


def a_disk() -> Object:
    return {
        "storageClassName": "disk",
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "1Gi"}},
    }


def a_group(name: str) -> Object:
    return {
        "apiVersion": "scheduling.run.ai/v2alpha2",
        "kind": "PodGroup",
        "metadata": {"name": f"pg-{name}"},
        "spec": {"queue": QUEUE, "minMember": 1},
    }


_SPECS: dict[str, Object] = {
    "templated": {
        "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "one-gpu"}],
        "claims": [{"name": "gpu"}],
    },
    "sharer-a": {"resourceClaims": [{"name": "gpu", "resourceClaimName": "both"}]},
    "sharer-b": {"resourceClaims": [{"name": "gpu", "resourceClaimName": "both"}]},
    "extended": {"extended": "1"},
    "stored": {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}]},
    "scratch": {
        "volumes": [{"name": "v", "ephemeral": {"volumeClaimTemplate": {"spec": a_disk()}}}]
    },
}


def a_pod(name: str, *, claims: Any = None, extended: str = "", **spec: Any) -> Object:
    limits = {"cpu": "1", "memory": "1Gi"} | ({RESOURCE: extended} if extended else {})
    resources: Object = {"limits": limits, "requests": dict(limits)}
    if claims:
        resources["claims"] = claims
    container = {"name": "main", "image": "image", "resources": resources}
    return {
        "metadata": {
            "name": name,
            "labels": OWNED,
            "annotations": {"pod-group-name": f"pg-{name}"},
        },
        "spec": {"schedulerName": "kai-scheduler", "containers": [container], **spec},
    }


def all_run(api: Api) -> bool:
    """Whether all pods run."""
    phases = {p["metadata"]["name"]: p["status"]["phase"] for p in api.ok("GET", PODS)["items"]}
    return all(phases.get(name) == "Running" for name in NAMES)


def check(api: Api, node: str) -> None:
    """Every pod has what it asked for, and nobody has anybody else's."""
    pods = {pod["metadata"]["name"]: pod for pod in api.ok("GET", PODS)["items"]}
    claims = {claim["metadata"]["name"]: claim for claim in api.ok("GET", CLAIMS)["items"]}
    made = pods["templated"]["status"]["resourceClaimStatuses"][0]["resourceClaimName"]
    special = pods["extended"]["status"]["extendedResourceClaimStatus"]["resourceClaimName"]
    assert claims.keys() == {"both", made, special}
    assert users(claims["both"]) == {"sharer-a", "sharer-b"}
    assert users(claims[made]) == {"templated"}
    assert users(claims[special]) == {"extended"}
    devices = [device for claim in claims.values() for device in devices_of(claim)]
    assert sorted(devices) == ["gpu-0", "gpu-1", "gpu-2"]
    assert all(pods[name]["spec"]["nodeName"] == node for name in NAMES[:4])
    for name, pod in (("data", "stored"), ("scratch-v", "scratch")):
        claim = api.ok("GET", f"{VOLUME_CLAIMS}/{name}")
        notes = claim["metadata"]["annotations"]
        assert claim["status"]["phase"] == "Bound"
        assert notes["volume.kubernetes.io/selected-node"] == pods[pod]["spec"]["nodeName"]
        volume = api.ok("GET", f"/api/v1/persistentvolumes/{claim['spec']['volumeName']}")
        assert volume["spec"]["claimRef"]["uid"] == claim["metadata"]["uid"]


def users(claim: Object) -> set[str]:
    """Names of the pods that a claim is reserved for."""
    return {user["name"] for user in claim["status"]["reservedFor"]}


def devices_of(claim: Object) -> list[str]:
    """Names of the devices that a claim has got."""
    return [one["device"] for one in claim["status"]["allocation"]["devices"]["results"]]


def is_free(api: Api, name: str) -> bool:
    """Whether a claim has no users and no devices any more."""
    status = api.ok("GET", f"{CLAIMS}/{name}").get("status") or {}
    return not status.get("reservedFor") and not status.get("allocation")
