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
from kai_es.ports.errors import (
    BudgetError,
    ConflictError,
    GoneError,
    RefusedError,
    UnavailableError,
)
from kai_es.simulate.api import Call
from kai_es.simulate.cluster import SimulatedCluster
from kai_es.simulate.cluster_local import LocalCluster
from kai_es.simulate.faults import Fault
from kai_es.simulate.kinds import POD
from kai_es.simulate.verbs import Target
from tests.simulation.api_client import a_pod

QUEUES = Resource("Queue", "scheduling.run.ai/v2", "queues")
CONFIG_MAPS = Resource("ConfigMap", "v1", "configmaps")
BUDGETS = Resource("PodDisruptionBudget", "policy/v1", "poddisruptionbudgets")


class Simulated(SimulatedCluster):
    """What the suite needs of a cluster beside its port; `tests/cluster/test_ports.py` has it of a
    real one."""

    async def create(self, name: str) -> dict:
        """A pod in `ns`, made by somebody else than the port."""
        call = Call("POST", Target(POD, "ns"), {}, msgspec.json.encode(a_pod(name)))
        return msgspec.json.decode((await self.api.write(call)).body)

    async def rv(self) -> int:
        """The resourceVersion now."""
        return self.store.rv

    async def forget(self) -> None:
        """Forget all history."""
        self.store.compact(self.store.rv)


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Simulated]:
    async with Simulated(tmp_path, kubelet=False) as cluster:
        yield cluster


@pytest.fixture(params=["http", "local"])
async def port(request: pytest.FixtureRequest, cluster: SimulatedCluster) -> AsyncIterator[Any]:
    if request.param == "local":
        yield LocalCluster(cluster.api)
    else:
        async with ApiServer(from_kubeconfig(str(cluster.kubeconfig))) as port:
            yield port


def identity(pod: dict) -> dict[str, Any]:
    return {"uid": pod["metadata"]["uid"], "rv": int(pod["metadata"]["resourceVersion"])}


async def first(watch: Any) -> Any:
    async for items in watch:
        return items[0]
    return None


async def test_pages_show_one_moment(cluster, port):
    for name in "abc":
        await cluster.create(name)
    page = await port.list_page(PODS, limit=2, token="")
    await cluster.create("aa")
    rest = await port.list_page(PODS, limit=2, token=page.token)
    assert [p["metadata"]["name"] for p in (*page.items, *rest.items)] == ["a", "b", "c"]
    assert page.rv == rest.rv < await cluster.rv()
    assert rest.token == ""


async def test_page_that_is_too_old_is_gone(cluster, port):
    for name in "abc":
        await port.create(CONFIG_MAPS, "ns", a_map(name))
    page = await port.list_page(CONFIG_MAPS, limit=2, token="")
    await port.create(CONFIG_MAPS, "ns", a_map("d"))
    await cluster.forget()
    with pytest.raises(GoneError) as caught:
        await port.list_page(CONFIG_MAPS, limit=2, token=page.token)
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
    await cluster.create("a")
    watch = port.watch(PODS, rv=page.rv, silence_s=5)
    item = await first(watch)
    assert (item.type, item.object["metadata"]["name"]) == ("ADDED", "a")
    await watch.aclose()


async def test_watch_that_is_left_is_closed(cluster, port):
    watch = port.watch(PODS, rv=cluster.store.rv, silence_s=5)
    await cluster.create("a")
    await first(watch)
    await watch.aclose()
    await asyncio.sleep(0.05)
    assert not cluster.api.watches


async def test_watch_that_is_too_old_is_gone(cluster, port):
    await port.create(CONFIG_MAPS, "ns", a_map("m"))
    await cluster.forget()
    with pytest.raises(GoneError) as caught:
        await first(port.watch(CONFIG_MAPS, rv=1, silence_s=5))
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
        await first(port.watch(PODS, rv=await cluster.rv(), silence_s=0.1))


async def test_refused_watch_tells_why(cluster, port):
    rule = Fault(action="error", code=403, verb="watch", message="no watch for you")
    cluster.api.faults.replace([rule], seed=0)
    with pytest.raises(RefusedError, match="no watch for you"):
        await first(port.watch(PODS, rv=1, silence_s=5))


async def test_bind_puts_the_pod_on_the_node_once(cluster, port):
    pod = await cluster.create("a")
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
    pod = await cluster.create("a")
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


def a_map(name: str, **labels: str) -> dict[str, Any]:
    return {"metadata": {"name": name, "labels": labels}, "data": {"a": "1"}}


async def test_what_is_made_is_there_once(port):
    made = await port.create(CONFIG_MAPS, "ns", a_map("m"))
    assert made["metadata"]["uid"]
    assert made == await port.get(CONFIG_MAPS, "ns", "m")
    with pytest.raises(ConflictError) as caught:
        await port.create(CONFIG_MAPS, "ns", a_map("m"))
    assert caught.value.reason == "AlreadyExists"


async def test_replacing_needs_the_object_as_it_was(port):
    made = await port.create(CONFIG_MAPS, "ns", a_map("m"))
    done = await port.replace(CONFIG_MAPS, "ns", "m", made | {"data": {"b": "2"}})
    assert done["data"] == {"b": "2"}
    for old in (made, {**done, "metadata": {**done["metadata"], "uid": "other"}}):
        with pytest.raises(ConflictError):
            await port.replace(CONFIG_MAPS, "ns", "m", old)
    await port.delete(CONFIG_MAPS, "ns", "m", **identity(done))
    with pytest.raises(GoneError):
        await port.replace(CONFIG_MAPS, "ns", "gone", {"metadata": {"name": "gone"}, "data": {}})


async def test_list_is_what_selectors_select(cluster, port, monkeypatch):
    monkeypatch.setattr("kai_es.cluster.api.PAGE", 2)
    for name in ("a", "b", "c"):
        await port.create(CONFIG_MAPS, "ns", a_map(name, app="x"))
    await port.create(CONFIG_MAPS, "ns", a_map("d", app="y"))
    await port.create(CONFIG_MAPS, "other", a_map("e", app="x"))

    async def names(namespace: str = "", **selectors: str) -> str:
        before = await cluster.rv()
        items, rv = await port.list(CONFIG_MAPS, namespace, **selectors)
        assert rv >= before
        return "".join(item["metadata"]["name"] for item in items)

    assert await names(labels="app") == "abcde"
    assert await names("ns", labels="app=x") == "abc"
    assert await names(labels="app in (x,y),app!=y") == "abce"
    assert await names("ns", fields="metadata.name=b") == "b"
    assert await names("none") == ""


async def test_status_is_patched_for_itself(cluster, port):
    pod = await cluster.create("a")
    condition = {"type": "PodBound", "status": "True"}
    changes = {"status": {"conditions": [condition]}, "spec": {"nodeName": "n1"}}
    done = await port.patch(PODS, "ns", "a", changes, **identity(pod), subresource="status")
    assert condition.items() <= done["status"]["conditions"][0].items()
    assert "nodeName" not in done["spec"]
    made = await port.create(CONFIG_MAPS, "ns", a_map("m"))
    with pytest.raises(GoneError):
        await port.patch(CONFIG_MAPS, "ns", "m", {}, **identity(made), subresource="status")


async def test_conditions_of_a_pod_merge_by_type(cluster, port):
    pod = await cluster.create("a")
    ours = {"type": "PodBound", "status": "True", "reason": "Bound", "message": "m"}
    said = {"annotations": {"k": "v"}}
    first = await port.set_conditions("ns", "a", [ours], **said, **identity(pod))
    waits = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
    made = await port.set_conditions("ns", "a", [waits], annotations={}, **identity(first))
    both = await port.get(PODS, "ns", "a")
    assert both["metadata"] | {"managedFields": ()} == made["metadata"] | {"managedFields": ()}
    assert {c["type"]: c["status"] for c in both["status"]["conditions"]} == {
        "PodBound": "True",
        "PodScheduled": "False",
    }
    assert both["metadata"]["annotations"]["k"] == "v"
    with pytest.raises(ConflictError):
        await port.set_conditions("ns", "a", [ours], annotations={}, **identity(pod))


async def test_grace_of_a_delete_is_the_callers(cluster, port):
    pod = await cluster.create("a")
    await port.bind("ns", "a", **identity(pod), node="n1", annotations={})
    await port.delete(PODS, "ns", "a", **identity(await port.get(PODS, "ns", "a")))
    going = await port.get(PODS, "ns", "a")
    assert going["metadata"]["deletionGracePeriodSeconds"] > 0
    await port.delete(PODS, "ns", "a", **identity(going), grace_s=0)
    with pytest.raises(GoneError):
        await port.get(PODS, "ns", "a")


async def running(cluster: Simulated, port: Any, name: str) -> dict:
    pod = await cluster.create(name)
    await port.bind("ns", name, **identity(pod), node="n1", annotations={})
    bound = await port.get(PODS, "ns", name)
    changes = {"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}}
    await port.patch(PODS, "ns", name, changes, **identity(bound), subresource="status")
    bound = await port.get(PODS, "ns", name)
    changes = {"metadata": {"labels": {"app": "x"}}}
    return await port.patch(PODS, "ns", name, changes, **identity(bound))


async def test_eviction_keeps_a_budget(cluster, port):
    a, b = [await running(cluster, port, name) for name in "ab"]
    selector = {"matchLabels": {"app": "x"}}
    budget = {"metadata": {"name": "keep"}, "spec": {"minAvailable": 1, "selector": selector}}
    await port.create(BUDGETS, "ns", budget)
    with pytest.raises(ConflictError):
        await port.evict("ns", "a", uid="other", rv=identity(a)["rv"])
    assert (await port.evict("ns", "a", **identity(a))).status == 201
    going = await port.get(PODS, "ns", "a")
    assert going["metadata"]["deletionTimestamp"]
    with pytest.raises(BudgetError, match="needs 1 healthy pods and has 1") as caught:
        await port.evict("ns", "b", **identity(b))
    assert caught.value.status == 429


async def test_server_that_has_too_much_to_do_is_no_budget(cluster, port):
    pod = await cluster.create("a")
    rule = Fault(action="error", code=429, retry_after_s=3, times=1)
    cluster.api.faults.replace([rule], seed=0)
    with pytest.raises(UnavailableError):
        await port.evict("ns", "a", **identity(pod))


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
    pod = await cluster.create("a")
    cluster.api.faults.replace([msgspec.structs.replace(rule, times=1)], seed=0)
    with pytest.raises(error) as caught:
        await port.bind("ns", "a", **identity(pod), node="n1", annotations={})
    if rule.code == 429 and rule.action == "error":
        assert caught.value.retry_after_s == 3
    bound = (await port.get(PODS, "ns", "a"))["spec"].get("nodeName")
    assert bound == ("n1" if rule.action == "lose" else None)
