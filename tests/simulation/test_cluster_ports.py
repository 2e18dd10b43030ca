"""The cluster ports, over HTTP and in this process, on the simulated API server."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from kai_es.cluster.api import ApiServer
from kai_es.cluster.endpoint import from_kubeconfig
from kai_es.ports.cluster import NODES, PODS, Resource
from kai_es.ports.errors import ConflictError, GoneError, RefusedError, UnavailableError
from kai_es.simulate.api import Call
from kai_es.simulate.cluster import SimulatedCluster
from kai_es.simulate.cluster_local import LocalCluster
from kai_es.simulate.faults import Fault
from kai_es.simulate.kinds import POD
from kai_es.simulate.verbs import Target
from tests.simulation.api_client import a_pod

QUEUES = Resource("Queue", "scheduling.run.ai/v2", "queues")


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[SimulatedCluster]:
    async with SimulatedCluster(tmp_path, kubelet=False) as cluster:
        yield cluster


@pytest.fixture(params=["http", "local"])
async def port(request: pytest.FixtureRequest, cluster: SimulatedCluster) -> AsyncIterator[Any]:
    if request.param == "local":
        yield LocalCluster(cluster.api)
    else:
        async with ApiServer(from_kubeconfig(str(cluster.kubeconfig))) as port:
            yield port


async def create(cluster: SimulatedCluster, name: str) -> dict:
    call = Call("POST", Target(POD, "ns"), {}, msgspec.json.encode(a_pod(name)))
    return msgspec.json.decode((await cluster.api.write(call)).body)


def identity(pod: dict) -> dict[str, Any]:
    return {"uid": pod["metadata"]["uid"], "rv": int(pod["metadata"]["resourceVersion"])}


async def first(watch: Any) -> Any:
    async for items in watch:
        return items[0]
    return None


async def test_pages_show_one_moment(cluster, port):
    for name in "abc":
        await create(cluster, name)
    page = await port.list_page(PODS, limit=2, token="")
    await create(cluster, "aa")
    rest = await port.list_page(PODS, limit=2, token=page.token)
    assert [p["metadata"]["name"] for p in (*page.items, *rest.items)] == ["a", "b", "c"]
    assert page.rv == rest.rv < cluster.store.rv
    assert rest.token == ""


async def test_page_that_is_too_old_is_gone(cluster, port):
    for name in "abc":
        await create(cluster, name)
    page = await port.list_page(PODS, limit=2, token="")
    await create(cluster, "d")
    cluster.store.compact(cluster.store.rv)
    with pytest.raises(GoneError) as caught:
        await port.list_page(PODS, limit=2, token=page.token)
    assert caught.value.status == 410


async def test_kind_that_is_not_there_is_gone(port):
    unknown = Resource("Thing", "no.such/v1", "things")
    for call in (
        port.list_page(unknown, limit=1, token=""),
        first(port.watch(unknown, rv=1, silence_s=5)),
    ):
        with pytest.raises(GoneError) as caught:
            await call
        assert caught.value.status == 404


async def test_watch_goes_on_from_a_list(cluster, port):
    page = await port.list_page(PODS, limit=10, token="")
    await create(cluster, "a")
    watch = port.watch(PODS, rv=page.rv, silence_s=5)
    item = await first(watch)
    assert (item.type, item.object["metadata"]["name"]) == ("ADDED", "a")
    await watch.aclose()
    await asyncio.sleep(0.05)
    assert not cluster.api.watches


async def test_watch_that_is_too_old_is_gone(cluster, port):
    await create(cluster, "a")
    cluster.store.compact(cluster.store.rv)
    with pytest.raises(GoneError) as caught:
        await first(port.watch(PODS, rv=1, silence_s=5))
    assert caught.value.status == 410


async def test_watch_ends_or_breaks_as_the_server_does(cluster, port):
    async def order(graceful: bool) -> None:
        while not cluster.api.watches:
            await asyncio.sleep(0.01)
        cluster.api.administer("POST", "drop-watches", {"graceful": graceful})

    rv = cluster.store.rv
    ended, _ = await asyncio.gather(first(port.watch(PODS, rv=rv, silence_s=5)), order(True))
    assert ended is None
    with pytest.raises(UnavailableError):
        await asyncio.gather(first(port.watch(PODS, rv=rv, silence_s=5)), order(False))


async def test_silent_watch_is_unavailable(cluster, port):
    with pytest.raises(UnavailableError):
        await first(port.watch(PODS, rv=cluster.store.rv, silence_s=0.1))


async def test_refused_watch_tells_why(cluster, port):
    rule = Fault(action="error", code=403, verb="watch", message="no watch for you")
    cluster.api.faults.replace([rule], seed=0)
    with pytest.raises(RefusedError, match="no watch for you"):
        await first(port.watch(PODS, rv=1, silence_s=5))


async def test_bind_puts_the_pod_on_the_node_once(cluster, port):
    pod = await create(cluster, "a")
    bind = {"node": "n1", "annotations": {"x": "y"}}
    with pytest.raises(ConflictError):
        await port.bind("ns", "a", uid="other", rv=identity(pod)["rv"], **bind)
    assert (await port.bind("ns", "a", **identity(pod), **bind)).status == 201
    bound = await port.get(PODS, "ns", "a")
    assert bound["spec"]["nodeName"] == "n1"
    assert bound["metadata"]["annotations"] == {"x": "y"}
    with pytest.raises(ConflictError, match="already assigned"):
        await port.bind("ns", "a", **identity(bound), **bind)


async def test_delete_and_patch_carry_preconditions(cluster, port):
    pod = await create(cluster, "a")
    changed = await port.patch(
        PODS, "ns", "a", {"metadata": {"annotations": {"x": "y"}}}, **identity(pod)
    )
    assert changed["metadata"]["annotations"] == {"x": "y"}
    for call in (
        port.delete(PODS, "ns", "a", **identity(pod)),
        port.patch(PODS, "ns", "a", {"metadata": {"labels": {"x": "y"}}}, **identity(pod)),
    ):
        with pytest.raises(ConflictError):
            await call
    await port.delete(PODS, "ns", "a", **identity(changed))
    with pytest.raises(GoneError):
        await port.get(PODS, "ns", "a")


async def test_cluster_wide_object_is_read_without_a_namespace(cluster, port):
    with pytest.raises(GoneError):
        await port.get(NODES, "", "no-such-node")
    assert not (await port.list_page(QUEUES, limit=5, token="")).items


@pytest.mark.parametrize(
    ("rule", "error"),
    [
        (Fault(action="error", code=429, retry_after_s=3), UnavailableError),
        (Fault(action="error", code=503), UnavailableError),
        (Fault(action="error", code=403), RefusedError),
        (Fault(action="close"), UnavailableError),
        (Fault(action="lose"), UnavailableError),
    ],
)
async def test_faults_become_errors(cluster, port, rule: Fault, error: type[Exception]):
    pod = await create(cluster, "a")
    cluster.api.faults.replace([msgspec.structs.replace(rule, times=1)], seed=0)
    with pytest.raises(error) as caught:
        await port.bind("ns", "a", **identity(pod), node="n1", annotations={})
    if rule.code == 429 and rule.action == "error":
        assert caught.value.retry_after_s == 3
    bound = (await port.get(PODS, "ns", "a"))["spec"].get("nodeName")
    assert bound == ("n1" if rule.action == "lose" else None)
