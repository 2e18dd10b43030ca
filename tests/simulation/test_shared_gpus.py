"""Pods on shared GPUs, bound by the real binder on the simulated API server with its kubelet."""

import asyncio
import json

import pytest

from kai_es.binder.reservation import reservation_name
from kai_es.binder.sharing import CONFIG_MAPS
from kai_es.events.requests import AttemptFailed, Bound, Refused
from kai_es.kube.labels import (
    CLOSED_REQUEST,
    RECEIVED_RESOURCE_TYPE,
    RESERVATION_APP,
    SHARED_GPU_CONFIG_MAP,
)
from kai_es.kube.parse_pod import parse_pod
from kai_es.kube.sharing import prepared
from kai_es.ports.cluster import PODS
from kai_es.ports.errors import GoneError
from kai_es.simulate.api import Call
from kai_es.simulate.cluster import SimulatedCluster
from kai_es.simulate.cluster_local import LocalCluster
from kai_es.simulate.faults import Fault
from kai_es.simulate.kinds import NODE, POD
from kai_es.simulate.verbs import Target
from kai_es.simulate.workload import NodeShape
from kai_es.simulate.workload import node as a_node
from tests.simulation.api_client import a_pod
from tests.unit.test_binder import World, running

SHARED = {"received": "Fraction", "gpu_count": 1, "gpu_portion": 50}
GROUPS = ("0a1b", "2c3d")
GPUS = NodeShape(8, "H100", 81_559, 128_000, 1_048_576)


class Site:
    """A cluster of one node of eight GPUs, and a world that orders binds on it."""

    def __init__(self, cluster):
        self.cluster = cluster
        self.world = World()
        self.port = LocalCluster(cluster.api)

    async def create(self, kind, namespace, obj):
        call = Call("POST", Target(kind, namespace), {}, json.dumps(obj).encode())
        return json.loads((await self.cluster.api.write(call)).body)

    async def begin(self):
        self.node = await self.create(NODE, "", a_node("n1", GPUS))

    async def pod(self, name, labels=None, shares=True):
        raw = a_pod(name, labels=labels)
        raw["metadata"]["namespace"] = "ns"
        return await self.create(POD, "ns", prepared(raw, f"{name}-maps") if shares else raw)

    async def order(self, pod, **changes):
        meta = pod["metadata"]
        fields = {
            "pod_uid": meta["uid"],
            "pod_rv": int(meta["resourceVersion"]),
            "node_uid": self.node["metadata"]["uid"],
        }
        return await self.world.order(meta["name"], **fields | changes)

    async def outcome(self, labels=None, **changes):
        """Have a pod bound as asked for; the result and the pod."""
        request_id = await self.order(await self.pod("p", labels), **changes)
        async with self.binding():
            result = await self.world.final(request_id)
        return result, await self.port.get(PODS, "ns", "p")

    def binding(self):
        return running(self.world.binder(cluster=self.port))

    async def reservations(self):
        pods, _ = await self.port.list(PODS, RESERVATION_APP)
        return {pod["metadata"]["name"]: pod for pod in pods}


@pytest.fixture
async def site(tmp_path):
    async with SimulatedCluster(tmp_path) as cluster:
        site = Site(cluster)
        await site.begin()
        yield site


async def test_bound_pod_names_its_devices(site):
    result, pod = await site.outcome(gpu_groups=GROUPS, **SHARED)
    assert isinstance(result, Bound)
    assert pod["spec"]["nodeName"] == "n1"
    assert pod["metadata"]["annotations"][RECEIVED_RESOURCE_TYPE] == "Fraction"
    # so that the shares are known when the request is not, as after a start without a history
    assert parse_pod(pod).gpu_groups == GROUPS
    assert set(await site.reservations()) == {reservation_name("n1", g) for g in GROUPS}


async def test_pod_reads_its_devices_from_its_config_maps(site):
    await site.outcome(gpu_groups=GROUPS, **SHARED)
    made = await site.reservations()
    ids = [
        made[reservation_name("n1", group)]["metadata"]["annotations"][
            "run.ai/reserve_for_gpu_index"
        ]
        for group in GROUPS
    ]
    assert len(set(ids)) == 2
    maps = await site.port.get(CONFIG_MAPS, "ns", "p-maps-0")
    assert maps["data"] == {
        "GPU_PORTION": "0.50",
        "NVIDIA_VISIBLE_DEVICES": ",".join(ids),
        "RUNAI_NUM_OF_GPUS": "0.50",
    }
    assert maps["metadata"]["ownerReferences"][0]["name"] == "p"
    assert not (await site.port.get(CONFIG_MAPS, "ns", "p-maps-0-evar")).get("data")


async def test_pod_that_is_not_bound_names_none(site):
    result, pod = await site.outcome(gpu_groups=GROUPS, node="gone", **SHARED)
    assert isinstance(result, Refused | AttemptFailed)
    assert parse_pod(pod).gpu_groups == ()
    assert pod["metadata"]["annotations"][CLOSED_REQUEST] == result.request_id


async def test_labels_are_taken_back_when_the_bind_is_refused(site):
    labels = {f"runai-gpu-group/{group}": group for group in GROUPS} | {"app": "x"}
    result, pod = await site.outcome(
        labels, gpu_groups=GROUPS, not_after_ms=1, **SHARED
    )  # as after a crash between labelling and binding
    assert isinstance(result, Refused)
    assert pod["metadata"]["labels"] == {"app": "x"}


async def test_nothing_is_left_of_a_bind_that_is_denied(site):
    rule = Fault(action="error", code=403, verb="create", subresource="binding")
    site.cluster.api.faults.replace([rule], seed=0)
    pod = await site.pod("p")
    request_id = await site.order(pod, gpu_groups=GROUPS, **SHARED)
    async with site.binding():
        result = await site.world.final(request_id)
        async with asyncio.timeout(10):
            while await site.reservations():
                await asyncio.sleep(0.01)
    assert isinstance(result, AttemptFailed)
    for name in ("p-maps-0", "p-maps-0-evar"):
        with pytest.raises(GoneError):
            await site.port.get(CONFIG_MAPS, "ns", name)
    assert parse_pod(await site.port.get(PODS, "ns", "p")).gpu_groups == ()


async def test_pod_without_config_maps_fails_and_says_so(site):
    pod = await site.pod("p", shares=False)
    assert SHARED_GPU_CONFIG_MAP not in pod["metadata"].get("annotations", {})
    request_id = await site.order(pod, gpu_groups=GROUPS[:1], **SHARED)
    async with site.binding():
        result = await site.world.final(request_id)
    assert result.code == "gpusharing"
    assert result.answer.message == (
        "plugin gpusharing failed in PreBind: failed to create capabilities configmap: failed to "
        "get capabilities configmap name: no desired configmap name found in pod ns/p annotations"
    )
