"""Pods on shared GPUs, bound by the real binder on the simulated API server."""

import json

import pytest

from kai_es.events.requests import AttemptFailed, Bound, Refused
from kai_es.kube.labels import CLOSED_REQUEST, RECEIVED_RESOURCE_TYPE
from kai_es.kube.parse_pod import parse_pod
from kai_es.ports.cluster import PODS
from kai_es.simulate.api import Call
from kai_es.simulate.cluster import SimulatedCluster
from kai_es.simulate.cluster_local import LocalCluster
from kai_es.simulate.kinds import NODE, POD
from kai_es.simulate.verbs import Target
from tests.simulation.api_client import a_pod
from tests.unit.test_binder import World, running

SHARED = {"received": "Fraction", "gpu_count": 2, "gpu_portion": 50}
GROUPS = ("0a1b", "2c3d")


@pytest.fixture
async def cluster(tmp_path):
    async with SimulatedCluster(tmp_path, kubelet=False) as cluster:
        yield cluster


async def create(cluster, kind, namespace, obj):
    call = Call("POST", Target(kind, namespace), {}, json.dumps(obj).encode())
    return json.loads((await cluster.api.write(call)).body)


async def outcome(cluster, labels=None, **changes):
    """Create a node and a pod, have the pod bound as asked for; the result and the pod."""
    node = await create(cluster, NODE, "", {"metadata": {"name": "n1"}})
    pod = await create(cluster, POD, "ns", a_pod("p", labels=labels))
    world, port = World(), LocalCluster(cluster.api)
    request_id = await world.order(
        **{
            "pod_uid": pod["metadata"]["uid"],
            "pod_rv": int(pod["metadata"]["resourceVersion"]),
            "node_uid": node["metadata"]["uid"],
            **changes,
        }
    )
    async with running(world.binder(cluster=port)):
        result = await world.final(request_id)
    return result, await port.get(PODS, "ns", "p")


async def test_bound_pod_names_its_devices(cluster):
    result, pod = await outcome(cluster, gpu_groups=GROUPS, **SHARED)
    assert isinstance(result, Bound)
    assert pod["spec"]["nodeName"] == "n1"
    assert pod["metadata"]["annotations"][RECEIVED_RESOURCE_TYPE] == "Fraction"
    # so that the shares are known when the request is not, as after a start without a history
    assert parse_pod(pod).gpu_groups == GROUPS


async def test_pod_that_is_not_bound_names_none(cluster):
    result, pod = await outcome(cluster, gpu_groups=GROUPS, node="gone", **SHARED)
    assert isinstance(result, Refused | AttemptFailed)
    assert parse_pod(pod).gpu_groups == ()
    assert pod["metadata"]["annotations"][CLOSED_REQUEST] == result.request_id


async def test_labels_are_taken_back_when_the_bind_is_refused(cluster):
    labels = {f"runai-gpu-group/{group}": group for group in GROUPS} | {"app": "x"}
    result, pod = await outcome(
        cluster, labels, gpu_groups=GROUPS, not_after_ms=1, **SHARED
    )  # as after a crash between labelling and binding
    assert isinstance(result, Refused)
    assert pod["metadata"]["labels"] == {"app": "x"}
