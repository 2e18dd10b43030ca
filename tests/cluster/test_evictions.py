"""Evictions by the binder under its own role: budgets as the real server keeps them, marks."""

import pytest

from kai_es.cluster.api import ApiServer
from kai_es.cluster.endpoint import from_kubeconfig
from kai_es.events.requests import Evicted
from tests.cluster.identities import account, install_roles
from tests.simulation.api_client import PODS, Api
from tests.unit.test_binder import World, running

BUDGETS = "/apis/policy/v1/namespaces/{ns}/poddisruptionbudgets"
LABELS = {"app": "web"}


@pytest.fixture
async def binder(cluster: Api, tmp_path):
    """The cluster ports as the binder's account has them."""
    install_roles(cluster)
    path = account(cluster, "kai-es-binder", tmp_path)
    async with ApiServer(from_kubeconfig(str(path))) as port:
        yield port


def victim(api: Api) -> dict:
    """A pod that runs, as its kubelet says."""
    api.bound_pod("victim")
    api.patch(f"{PODS}/victim", {"metadata": {"labels": LABELS}})
    ready = {"type": "Ready", "status": "True"}
    status = {"phase": "Running", "conditions": [ready]}
    return api.patch(f"{PODS}/victim/status", {"status": status})


async def evict(world: World, api: Api, pod: dict, **changes) -> str:
    meta = pod["metadata"]
    return await world.order(
        "victim",
        evict=True,
        namespace=api.namespace,
        pod_uid=meta["uid"],
        pod_rv=int(meta["resourceVersion"]),
        **changes,
    )


def allow(api: Api, budget: dict, n: int) -> None:
    """What the disruption controller would find out."""
    status = {"disruptionsAllowed": n, "currentHealthy": 1, "desiredHealthy": 1, "expectedPods": 1}
    status["observedGeneration"] = budget["metadata"]["generation"]
    api.patch(f"{BUDGETS}/keep/status", {"status": status})


async def test_budget_holds_an_eviction_up_until_it_allows_it(cluster, binder):
    world = World()
    pod = victim(cluster)
    spec = {"minAvailable": 1, "selector": {"matchLabels": LABELS}}
    budget = cluster.ok("POST", BUDGETS, {"metadata": {"name": "keep"}, "spec": spec})
    allow(cluster, budget, 0)
    async with running(world.binder(cluster=binder)):
        request_id = await evict(world, cluster, pod, eviction="budget")
        noted = await world.noted(request_id)
        assert (noted.code, noted.final, noted.answer.status) == ("budget", False, 429)
        assert "disruption budget keep" in noted.answer.message
        assert "deletionTimestamp" not in cluster.ok("GET", f"{PODS}/victim")["metadata"]
        allow(cluster, budget, 1)
        assert isinstance(await world.final(request_id), Evicted)
    assert cluster.ok("GET", f"{PODS}/victim")["metadata"]["deletionTimestamp"]


@pytest.mark.parametrize("marks", [True, False])
async def test_pod_is_told_why_it_goes_before_it_is_deleted(cluster, binder, marks):
    world = World()
    async with running(world.binder(cluster=binder)):
        request_id = await evict(world, cluster, victim(cluster), marks=marks, message="made room")
        assert isinstance(await world.final(request_id), Evicted)
    left = cluster.ok("GET", f"{PODS}/victim")
    assert left["metadata"]["deletionTimestamp"]
    told = [c for c in left["status"]["conditions"] if c["type"] == "DisruptionTarget"]
    assert [(c["status"], c["reason"], c["message"]) for c in told] == (
        [("True", "PreemptionByScheduler", "made room")] if marks else []
    )
    assert [c["type"] for c in left["status"]["conditions"]].count("Ready") == 1
