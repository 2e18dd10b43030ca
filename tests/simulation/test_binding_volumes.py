"""Claims of volumes, bound by the real binder on the simulated API server.

Races: binder.md §13, rows 3, 5, 12, 18.
"""

import asyncio

import pytest

from kai_es.binder import plugins
from kai_es.binder.service import BinderSettings
from kai_es.events.requests import AttemptFailed, Bound, Refused
from kai_es.kube.parse_volumes import parse_volume_claim
from kai_es.ports.cluster import NODES, PODS
from kai_es.simulate import volumes
from kai_es.simulate.cluster import SimulatedCluster
from kai_es.simulate.cluster_local import LocalCluster
from tests.simulation.claimants import Claimants
from tests.unit.test_binder import running

LOCAL = {"storage_class": "local"}


@pytest.fixture
async def world(tmp_path):
    async with SimulatedCluster(tmp_path, listen=None) as server:
        port = LocalCluster(server.api, "test")
        yield await Claimants(port, LocalCluster(server.api, "kai-es")).start()


async def claim_of(world, name):
    return parse_volume_claim(await world.port.get(volumes.CLAIMS, "ns", name))


async def test_volume_is_made_on_the_node_before_the_pod_is_bound(world):
    await world.storage_class()
    for name in ("a", "b"):
        await world.volume_claim(name)
    await world.pod(volumes=["a", "b"])
    request = await world.bind(volumes=("a", "b"))
    async with running(world.binder()):
        assert isinstance(await world.final(request), Bound)
    for name in ("a", "b"):
        claim = await claim_of(world, name)
        assert (claim.bound, claim.selected_node, claim.phase) == (True, "n1", "Bound")


async def test_volume_of_the_node_is_kept_for_the_claim(world):
    await world.storage_class("local", "kubernetes.io/no-provisioner")
    await world.volume("pv1", "n1")
    await world.volume("pv2", "n2")
    await world.volume_claim("a", "local")
    await world.pod(volumes=["a"])
    request = await world.bind(node="n2", volumes=("a",))
    async with running(world.binder()):
        assert isinstance(await world.final(request), Bound)
    assert (await claim_of(world, "a")).volume == "pv2"


async def test_one_volume_for_two_pods(world):
    """Row 18: the one that comes too late fails, and its group backs off for that reason."""
    await world.storage_class("local", "kubernetes.io/no-provisioner")
    await world.volume("pv", "n1")
    requests = []
    for n, name in enumerate("pq"):
        await world.volume_claim(f"claim-{name}", "local")
        await world.pod(name, volumes=[f"claim-{name}"])
        requests.append(await world.bind(name, volumes=(f"claim-{name}",), partition=n))
    async with running(world.binder()):
        results = [await world.final(request) for request in requests]
    assert sorted(type(result).__name__ for result in results) == ["AttemptFailed", "Bound"]
    (failed,) = [result for result in results if isinstance(result, AttemptFailed)]
    assert (failed.code, failed.final) == ("volume", True)
    assert failed.answer.message.startswith("plugin volumebinding failed in PreBind: ")


async def test_volumes_that_do_not_come(world):
    """The claim keeps its node: a provisioner may still be at it."""
    settings = BinderSettings(
        plugins=plugins.overridden(
            plugins.defaults(), {"volumebinding": {"arguments": {"bindTimeoutSeconds": "0"}}}
        )
    )
    await world.storage_class("slow")
    await world.volume_claim("a", "slow")
    await world.pod(volumes=["a"])
    request = await world.bind(volumes=("a",))
    async with running(world.binder(settings=settings)):
        result = await world.final(request)
    assert isinstance(result, AttemptFailed)
    assert result.code == "volume"
    assert "persistentvolumeclaims a" in result.answer.message
    assert (await claim_of(world, "a")).selected_node == "n1"
    assert await world.node_of() == ""


async def test_provisioner_that_gives_up_fails_the_request(tmp_path):
    async with SimulatedCluster(tmp_path, listen=None, kubelet=False) as server:  # no provisioner
        world = await Claimants(LocalCluster(server.api, "test")).start()
        await world.storage_class()
        await world.volume_claim("a")
        await world.pod(volumes=["a"])
        request = await world.bind(volumes=("a",))

        async def asked():
            return (await claim_of(world, "a")).selected_node

        async with running(world.binder()):
            await world.until(asked)
            notes = {"volume.kubernetes.io/selected-node": None}
            await world.patch(volumes.CLAIMS, "a", {"metadata": {"annotations": notes}})
            result = await world.final(request)
    assert isinstance(result, AttemptFailed)
    assert "provisioning failed" in result.answer.message


async def test_binder_that_dies_while_it_waits(tmp_path):
    """Row 12: the next one waits on, and asks for nothing twice."""
    async with SimulatedCluster(tmp_path, listen=None, kubelet=False) as server:
        world = await Claimants(LocalCluster(server.api, "test")).start()
        await world.storage_class()
        claim = await world.volume_claim("a")
        await world.pod(volumes=["a"])
        request = await world.bind(volumes=("a",))

        async def asked():
            return (await claim_of(world, "a")).selected_node

        async with running(world.binder()):
            await world.until(asked)
        version = (await world.port.get(volumes.CLAIMS, "ns", "a"))["metadata"]["resourceVersion"]
        async with running(world.binder()):
            await asyncio.sleep(0.05)
            live = await world.port.get(volumes.CLAIMS, "ns", "a")
            assert live["metadata"]["resourceVersion"] == version
            reference = {"namespace": "ns", "name": "a", "uid": claim["metadata"]["uid"]}
            spec = {"storageClassName": "disk", "capacity": {"storage": "1Gi"}}
            volume = {"metadata": {"name": "pv"}, "spec": {**spec, "claimRef": reference}}
            await world.port.create(volumes.VOLUMES, "", volume)
            notes = {"annotations": {"pv.kubernetes.io/bind-completed": "yes"}}
            done = {"metadata": notes, "spec": {"volumeName": "pv"}}
            await world.patch(volumes.CLAIMS, "a", done)
            assert isinstance(await world.final(request), Bound)


async def test_pod_that_is_deleted_while_its_volumes_are_made(tmp_path):
    """Row 3."""
    async with SimulatedCluster(tmp_path, listen=None, kubelet=False) as server:
        world = await Claimants(LocalCluster(server.api, "test")).start()
        await world.storage_class()
        await world.volume_claim("a")
        await world.pod(volumes=["a"])
        request = await world.bind(volumes=("a",))

        async def asked():
            return (await claim_of(world, "a")).selected_node

        async with running(world.binder()):
            await world.until(asked)
            await world.delete(PODS, "p", grace_s=0)
            await world.patch(
                volumes.CLAIMS,
                "a",
                {
                    "metadata": {"annotations": {"pv.kubernetes.io/bind-completed": "yes"}},
                    "spec": {"volumeName": "pv"},
                },
            )
            await world.port.create(
                volumes.VOLUMES, "", {"metadata": {"name": "pv"}, "spec": {"capacity": {}}}
            )
            result = await world.final(request)
    assert isinstance(result, Refused)
    assert result.code == "pod-gone"


async def test_node_that_goes_before_the_volumes_are_asked_for(world):
    """Row 5."""
    await world.storage_class()
    await world.volume_claim("a")
    await world.pod(volumes=["a"])
    request = await world.bind(volumes=("a",))
    node = (await world.port.get(NODES, "", "n1"))["metadata"]
    rv = int(node["resourceVersion"])
    await world.port.delete(NODES, "", "n1", uid=node["uid"], rv=rv)
    async with running(world.binder()):
        result = await world.final(request)
    assert isinstance(result, Refused)
    assert result.code == "node-gone"
    assert (await claim_of(world, "a")).selected_node == ""


async def test_pod_with_bound_claims_only_is_bound_at_once(world):
    """No read of a claim: the request says that there is nothing to do."""
    await world.pod(volumes=["bound"])
    async with running(world.binder()):
        assert isinstance(await world.final(await world.bind()), Bound)
