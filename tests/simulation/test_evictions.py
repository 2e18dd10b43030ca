"""Evictions and disruption budgets, by the real binder on the simulated API server.

Field case 20: four replicas of which three must stay; somebody needs the room of two.
"""

import pytest

from kai_es.events.requests import AttemptFailed, Evicted
from kai_es.ports.cluster import Resource
from tests.simulation.gpu_site import GpuSite

BUDGETS = Resource("PodDisruptionBudget", "policy/v1", "poddisruptionbudgets")
LABELS = {"app": "web"}


@pytest.fixture
async def site():
    site = GpuSite()
    await site.node()
    async with site.kubelet():
        async with site.binding():
            for name in "abcd":
                pod = await site.pod(name, shares=False, metadata={"labels": LABELS})
                await site.final(await site.order(pod))
                await site.runs(name)
        spec = {"minAvailable": 3, "selector": {"matchLabels": LABELS}}
        body = {"metadata": {"name": "web"}, "spec": spec}
        await site.port.create(BUDGETS, "ns", body)
        yield site


async def evicted(site, *names, **changes):
    """Order these pods away; results in order."""
    ids = [await site.order(await site.live(name), evict=True, **changes) for name in names]
    return [await site.final(one) for one in ids]


async def test_plain_evictions_are_deletes(site):
    async with site.binding():
        results = await evicted(site, "a", "b")
    assert [type(one) for one in results] == [Evicted, Evicted]


async def test_budget_lets_one_go_and_the_other_is_given_up_in_time(site):
    async with site.binding():
        (first,) = await evicted(site, "a", eviction="budget")
        assert isinstance(first, Evicted)
        request_id = await site.order(await site.live("b"), evict=True, eviction="budget")

        async def is_refused():
            return await site.world.results(request_id)

        (noted, *_) = await site.until(is_refused)
        assert (noted.code, noted.final, noted.answer.status) == ("budget", False, 429)
        site.world.clock.ms += 200_000
        last = await site.final(request_id)
    assert (type(last), last.code, last.final) == (AttemptFailed, "budget", True)
    assert "needs 3 healthy pods" in last.answer.message
    assert "deletionTimestamp" not in (await site.live("b"))["metadata"]


async def test_eviction_goes_through_once_others_run(site):
    async with site.binding():
        await evicted(site, "a", eviction="budget")
        request_id = await site.order(await site.live("b"), evict=True, eviction="budget")
        pod = await site.pod("e", shares=False, metadata={"labels": LABELS})
        await site.final(await site.order(pod))
        assert isinstance(await site.final(request_id), Evicted)


@pytest.mark.parametrize("marks", [True, False])
async def test_pod_is_told_why_it_goes_before_it_is_deleted(marks):
    site = GpuSite()
    await site.node()  # without a kubelet: the pod stays while it ends
    async with site.binding():
        pod = await site.pod("a", shares=False)
        await site.final(await site.order(pod))
        changes = {"marks": marks, "message": "made room"}
        (result,) = await evicted(site, "a", **changes)
    assert isinstance(result, Evicted)
    left = await site.live("a")
    assert "deletionTimestamp" in left["metadata"]
    told = [c for c in left["status"]["conditions"] if c["type"] == "DisruptionTarget"]
    assert [(c["status"], c["reason"], c["message"]) for c in told] == (
        [("True", "PreemptionByScheduler", "made room")] if marks else []
    )
