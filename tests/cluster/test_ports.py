"""The cluster ports on the real server: the suite that simulated clusters pass, too."""

import asyncio

import pytest

from kai_es.ports.cluster import PODS
from kai_es.ports.errors import BudgetError
from tests.simulation import test_cluster_ports as shared
from tests.simulation.api_client import Api, a_pod
from tests.simulation.test_cluster_ports import (  # noqa: F401
    test_bind_puts_the_pod_on_the_node_once,
    test_cluster_wide_object_is_read_without_a_namespace,
    test_conditions_of_a_pod_merge_by_type,
    test_delete_and_patch_carry_preconditions,
    test_grace_of_a_delete_is_the_callers,
    test_kind_that_is_not_there_is_gone,
    test_list_is_what_selectors_select,
    test_page_that_is_too_old_is_gone,
    test_pages_show_one_moment,
    test_replacing_needs_the_object_as_it_was,
    test_silent_watch_is_unavailable,
    test_status_is_patched_for_itself,
    test_watch_goes_on_from_a_list,
    test_watch_that_is_too_old_is_gone,
    test_what_is_made_is_there_once,
)

MAPS = "/api/v1/configmaps"


class Real:
    """What the suite needs of a cluster beside its port."""

    def __init__(self, api: Api) -> None:
        self.api = api

    async def create(self, name: str) -> dict:
        return await asyncio.to_thread(
            self.api.ok, "POST", "/api/v1/namespaces/ns/pods", a_pod(name)
        )

    async def rv(self) -> int:
        listed = await asyncio.to_thread(self.api.ok, "GET", MAPS)
        return int(listed["metadata"]["resourceVersion"])

    async def forget(self) -> None:
        await asyncio.to_thread(self.api.compact)


@pytest.fixture(autouse=True)
def cluster(cluster: Api) -> Real:
    for name in ("ns", "other"):
        cluster.call("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
        cluster.ok("DELETE", f"/api/v1/namespaces/{name}/configmaps")
    return Real(cluster)


async def test_eviction_keeps_a_budget(cluster, port):
    """As the simulated cluster does; here nobody but this test keeps the budget's status."""
    a, b = [await shared.running(cluster, port, name) for name in "ab"]
    selector = {"matchLabels": {"app": "x"}}
    budget = {"metadata": {"name": "keep"}, "spec": {"minAvailable": 1, "selector": selector}}
    made = await port.create(shared.BUDGETS, "ns", budget)
    with pytest.raises(BudgetError) as caught:
        await port.evict("ns", "a", **shared.identity(a))
    assert caught.value.status == 429
    allows = {"disruptionsAllowed": 1, "currentHealthy": 2, "desiredHealthy": 1, "expectedPods": 2}
    status = {"status": allows | {"observedGeneration": made["metadata"]["generation"]}}
    made = await port.get(shared.BUDGETS, "ns", "keep")
    await port.patch(
        shared.BUDGETS, "ns", "keep", status, **shared.identity(made), subresource="status"
    )
    assert (await port.evict("ns", "a", **shared.identity(a))).status == 201
    assert (await port.get(PODS, "ns", "a"))["metadata"]["deletionTimestamp"]
    with pytest.raises(BudgetError, match="disruption budget keep does not allow"):
        await port.evict("ns", "b", **shared.identity(b))
