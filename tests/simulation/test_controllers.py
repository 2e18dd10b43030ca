"""The simulated controllers of volumes and of claims on devices, on the simulated API server."""

import asyncio

import pytest

from kai_es.kube.parse_volumes import parse_volume_claim
from kai_es.ports.cluster import NODES, PODS
from kai_es.ports.errors import GoneError
from kai_es.simulate import claims, volumes
from kai_es.simulate.cluster import SimulatedCluster
from kai_es.simulate.cluster_local import LocalCluster
from tests.simulation.api_client import a_pod

DEVICE = {"request": "gpu", "driver": "gpu.example.com", "pool": "n1", "device": "d0"}
ALLOCATION = {"devices": {"results": [DEVICE]}}
REQUESTS = {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "gpu"}}]}}
SECONDS = 20.0


@pytest.fixture
async def port(tmp_path):
    async with SimulatedCluster(tmp_path, listen=None) as cluster:
        yield LocalCluster(cluster.api, "test")


async def until(look, *wanted):
    """What `look` finds, as soon as it finds something."""
    async with asyncio.timeout(SECONDS):
        while True:
            found = await look(*wanted)
            if found:
                return found
            await asyncio.sleep(0.01)


async def storage_class(port, name="disk", provisioner="csi.example.com", *, waits=True):
    mode = "WaitForFirstConsumer" if waits else "Immediate"
    body = {"metadata": {"name": name}, "provisioner": provisioner, "volumeBindingMode": mode}
    await port.create(volumes.CLASSES, "", body)


def a_claim(name, storage_class="disk", **metadata):
    spec = {
        "storageClassName": storage_class,
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "1Gi"}},
    }
    return {"metadata": {"name": name, **metadata}, "spec": spec}


async def patch(port, resource, obj, changes, subresource=""):
    meta = obj["metadata"]
    return await port.patch(
        resource,
        meta.get("namespace", ""),
        meta["name"],
        changes,
        uid=meta["uid"],
        rv=int(meta["resourceVersion"]),
        subresource=subresource,
    )


def bound(port, name):
    async def look():
        raw = await port.get(volumes.CLAIMS, "ns", name)
        return raw if parse_volume_claim(raw).bound else None

    return until(look)


def gone(port, resource, namespace, name):
    async def look():
        try:
            await port.get(resource, namespace, name)
        except GoneError:
            return True
        return False

    return until(look)


async def test_claim_that_waits_gets_a_volume_once_it_has_a_node(port):
    await storage_class(port)
    await storage_class(port, "now", waits=False)
    claim = await port.create(volumes.CLAIMS, "ns", a_claim("c"))
    await port.create(volumes.CLAIMS, "ns", a_claim("now", "now"))
    await bound(port, "now")
    claim = await port.get(volumes.CLAIMS, "ns", "c")
    assert "volumeName" not in claim["spec"]  # the other one had its volume meanwhile
    notes = {"volume.kubernetes.io/selected-node": "n1"}
    await patch(port, volumes.CLAIMS, claim, {"metadata": {"annotations": notes}})
    claim = await bound(port, "c")
    assert claim["status"]["phase"] == "Bound"
    volume = await port.get(volumes.VOLUMES, "", claim["spec"]["volumeName"])
    assert volume["spec"]["claimRef"]["uid"] == claim["metadata"]["uid"]
    assert volume["status"]["phase"] == "Bound"
    meta = claim["metadata"]
    await port.delete(volumes.CLAIMS, "ns", "c", uid=meta["uid"], rv=int(meta["resourceVersion"]))
    await gone(port, volumes.VOLUMES, "", volume["metadata"]["name"])


async def test_volume_that_is_kept_for_a_claim_is_bound_to_it(port):
    await storage_class(port, "local", "kubernetes.io/no-provisioner")
    claim = await port.create(volumes.CLAIMS, "ns", a_claim("c", "local"))
    spec = {
        "storageClassName": "local",
        "capacity": {"storage": "5Gi"},
        "accessModes": ["ReadWriteOnce"],
        "persistentVolumeReclaimPolicy": "Retain",
    }
    await port.create(volumes.VOLUMES, "", {"metadata": {"name": "pv"}, "spec": spec})

    async def available():
        volume = await port.get(volumes.VOLUMES, "", "pv")
        return volume if volume["status"]["phase"] == "Available" else None

    volume = await until(available)
    reference = {"namespace": "ns", "name": "c", "uid": claim["metadata"]["uid"]}
    await port.replace(
        volumes.VOLUMES, "", "pv", {**volume, "spec": {**volume["spec"], "claimRef": reference}}
    )
    claim = await bound(port, "c")
    assert claim["spec"]["volumeName"] == "pv"
    assert claim["status"]["capacity"] == {"storage": "5Gi"}


async def test_claims_of_templates_come_and_go_with_their_pod(port):
    await storage_class(port)
    template = {"metadata": {"name": "t"}, "spec": {"spec": REQUESTS}}
    await port.create(claims.TEMPLATES, "ns", template)
    pod = a_pod("p")
    pod["spec"]["resourceClaims"] = [{"name": "gpu", "resourceClaimTemplateName": "t"}]
    pod["spec"]["volumes"] = [
        {"name": "v", "ephemeral": {"volumeClaimTemplate": {"spec": a_claim("")["spec"]}}}
    ]
    await port.create(PODS, "ns", pod)

    async def named():
        live = await port.get(PODS, "ns", "p")
        return live if live["status"].get("resourceClaimStatuses") else None

    pod = await until(named)
    (entry,) = pod["status"]["resourceClaimStatuses"]
    claim = await port.get(claims.CLAIMS, "ns", entry["resourceClaimName"])
    assert claim["spec"] == REQUESTS
    assert claim["metadata"]["ownerReferences"][0]["uid"] == pod["metadata"]["uid"]
    (found, _) = await port.list(claims.CLAIMS, "ns")
    assert len(found) == 1

    async def volume_claim():
        try:
            return await port.get(volumes.CLAIMS, "ns", "p-v")
        except GoneError:
            return None

    await until(volume_claim)
    meta = pod["metadata"]
    await port.delete(PODS, "ns", "p", uid=meta["uid"], rv=int(meta["resourceVersion"]))
    await gone(port, claims.CLAIMS, "ns", entry["resourceClaimName"])
    await gone(port, volumes.CLAIMS, "ns", "p-v")


async def users(port, *names):
    """A claim with devices and these pods as its users."""
    claim = {"metadata": {"name": "c", "finalizers": [claims.FINALIZER]}, "spec": REQUESTS}
    claim = await port.create(claims.CLAIMS, "ns", claim)
    reserved = []
    for name in names:
        pod = a_pod(name)
        pod["spec"]["resourceClaims"] = [{"name": "gpu", "resourceClaimName": "c"}]
        pod = await port.create(PODS, "ns", pod)
        reserved.append({"resource": "pods", "name": name, "uid": pod["metadata"]["uid"]})
    status = {"allocation": ALLOCATION, "reservedFor": reserved}
    return await patch(port, claims.CLAIMS, claim, {"status": status}, "status")


async def test_dead_users_go_and_the_last_one_gives_the_devices_back(port):
    await port.create(NODES, "", {"metadata": {"name": "n1"}})
    await users(port, "p1", "p2")
    pod = await port.get(PODS, "ns", "p1")
    await patch(port, PODS, pod, {"status": {"phase": "Succeeded"}}, "status")

    async def one_left():
        claim = await port.get(claims.CLAIMS, "ns", "c")
        return claim if len(claim["status"]["reservedFor"]) == 1 else None

    claim = await until(one_left)
    assert claim["status"]["allocation"] == ALLOCATION
    pod = await port.get(PODS, "ns", "p2")
    meta = pod["metadata"]
    await port.delete(PODS, "ns", "p2", uid=meta["uid"], rv=int(meta["resourceVersion"]))

    async def free():
        claim = await port.get(claims.CLAIMS, "ns", "c")
        return claim if not (claim.get("status") or {}).get("allocation") else None

    claim = await until(free)
    assert not claim["status"].get("reservedFor")


async def test_deleted_claim_goes_when_its_users_have_gone(port):
    claim = await users(port, "p1")
    meta = claim["metadata"]
    await port.delete(claims.CLAIMS, "ns", "c", uid=meta["uid"], rv=int(meta["resourceVersion"]))
    assert (await port.get(claims.CLAIMS, "ns", "c"))["status"]["reservedFor"]  # protected
    pod = (await port.get(PODS, "ns", "p1"))["metadata"]
    await port.delete(PODS, "ns", "p1", uid=pod["uid"], rv=int(pod["resourceVersion"]))
    await gone(port, claims.CLAIMS, "ns", "c")
