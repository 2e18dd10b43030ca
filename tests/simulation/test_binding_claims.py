"""Claims on devices, bound by the real binder on the simulated API server.

Races: binder.md §13, rows 3, 12, 18, 24, and what several pods do to one claim.
"""

import asyncio

import pytest

from kai_es.binder.claims import FINALIZER, allocation_json
from kai_es.events.requests import AttemptFailed, Bound, Refused
from kai_es.kube.labels import CLOSED_REQUEST
from kai_es.kube.parse_devices import parse_claim
from kai_es.ports.cluster import PODS
from kai_es.simulate import claims
from kai_es.simulate.cluster import SimulatedCluster
from kai_es.simulate.cluster_local import LocalCluster
from kai_es.simulate.faults import Fault
from tests.simulation.claimants import REQUESTS, Claimants, devices, extended
from tests.unit.test_binder import running


@pytest.fixture
async def server(tmp_path):
    async with SimulatedCluster(tmp_path, listen=None) as cluster:
        yield cluster


@pytest.fixture
async def world(server):
    binder = LocalCluster(server.api, "kai-es")
    return await Claimants(LocalCluster(server.api, "test"), binder).start()


async def outcome(world, request_id):
    async with running(world.binder()):
        return await world.final(request_id)


async def test_claim_of_a_template_has_its_devices_when_the_pod_is_bound(world):
    template = {"metadata": {"name": "t"}, "spec": {"spec": REQUESTS}}
    await world.port.create(claims.TEMPLATES, "ns", template)
    await world.pod(templates=["t"])

    async def made():
        pod = await world.get_pod()
        return (pod["status"].get("resourceClaimStatuses") or [{}])[0].get("resourceClaimName")

    name = await world.until(made)
    grant = await world.grant(name, reference="t")
    result = await outcome(world, await world.bind(claims=(grant,)))
    assert isinstance(result, Bound)
    claim = parse_claim(await world.get_claim(name))
    assert claim.allocation == devices("d0")
    assert [user.uid for user in claim.reserved_for] == [result.pod_uid]
    assert FINALIZER in (await world.get_claim(name))["metadata"]["finalizers"]
    await world.delete(PODS, "p")
    await world.until(_gone, world, name)  # with its pod, finalizer or not


async def _gone(world, name):
    found, _ = await world.port.list(claims.CLAIMS, "ns", fields=f"metadata.name={name}")
    return not found


async def test_many_pods_share_a_claim(world):
    await world.claim()
    names = [f"p{n}" for n in range(30)]
    for name in names:
        await world.pod(name, claims=["c"])
    grant = await world.grant()
    requests = [
        await world.bind(name, claims=(grant,), partition=n % 8) for n, name in enumerate(names)
    ]
    async with running(world.binder()):
        results = [await world.final(request) for request in requests]
    assert {type(result) for result in results} == {Bound}
    assert sorted(await world.users()) == sorted(names)
    conflicts = [r for r in await world.results() if isinstance(r, AttemptFailed)]
    assert not conflicts


async def test_claim_serves_no_more_than_256_pods(tmp_path):
    async with SimulatedCluster(tmp_path, listen=None, kubelet=False) as server:
        world = await Claimants(LocalCluster(server.api, "test")).start()
        claim = await world.claim(finalizers=[FINALIZER])
        users = [{"resource": "pods", "name": f"x{n}", "uid": f"u{n}"} for n in range(255)]
        status = {"allocation": allocation_json(devices("d0")), "reservedFor": users}
        await _patched(world, claim, status)
        await world.pod("p", claims=["c"])
        await world.pod("q", claims=["c"])
        grant = await world.grant()
        assert isinstance(await outcome(world, await world.bind("p", claims=(grant,))), Bound)
        result = await outcome(world, await world.bind("q", claims=(grant,)))
    assert isinstance(result, AttemptFailed)
    assert "maximum number of consumers" in result.answer.message


async def _patched(world, claim, status):
    await world.patch(claims.CLAIMS, claim["metadata"]["name"], {"status": status}, "status")


async def test_what_a_failed_binding_reserved_is_given_back(world):
    await world.claim("c")
    await world.claim("d")
    await world.pod(claims=["c", "d"])
    stale = await world.grant("d")
    await world.delete(claims.CLAIMS, "d")
    await world.until(_gone, world, "d")
    await world.claim("d")  # made anew under its name
    grant = await world.grant("c")
    result = await outcome(world, await world.bind(claims=(grant, stale)))
    assert isinstance(result, AttemptFailed)
    assert (result.code, result.final) == ("claim", True)
    assert "made anew" in result.answer.message
    assert await world.users("c") == []
    assert not await world.is_allocated("c")
    assert await world.node_of() == ""
    assert (await world.get_pod())["metadata"]["annotations"][CLOSED_REQUEST] == result.request_id
    again = await world.bind(claims=(grant, await world.grant("d", given=devices("d1"))))
    assert isinstance(await outcome(world, again), Bound)


async def test_shared_claim_stays_with_those_who_have_it(world):
    await world.claim("c")
    await world.claim("gone")
    await world.pod("p", claims=["c"])
    await world.pod("q", claims=["c", "gone"])
    grant, missing = await world.grant("c"), await world.grant("gone")
    assert isinstance(await outcome(world, await world.bind("p", claims=(grant,))), Bound)
    await world.delete(claims.CLAIMS, "gone")
    await world.until(_gone, world, "gone")
    failed = await outcome(world, await world.bind("q", claims=(grant, missing)))
    assert isinstance(failed, AttemptFailed)
    assert await world.users("c") == ["p"]
    assert await world.is_allocated("c")


async def test_claim_that_got_other_devices_is_not_overwritten(world):
    await world.claim()
    await world.pod("p", claims=["c"])
    await world.pod("q", claims=["c"])
    first = await outcome(world, await world.bind("p", claims=(await world.grant(),)))
    assert isinstance(first, Bound)
    other = await world.grant(given=devices("d0", node="n2"))
    result = await outcome(world, await world.bind("q", node="n2", claims=(other,)))
    assert isinstance(result, AttemptFailed)
    assert "other devices" in result.answer.message
    assert parse_claim(await world.get_claim()).allocation == devices("d0")


async def test_pod_that_is_deleted_while_its_claims_are_reserved(world):
    """Race 3: nothing stays reserved for it."""
    await world.claim()
    await world.pod(claims=["c"])
    request = await world.bind(claims=(await world.grant(),))
    await world.delete(PODS, "p", grace_s=0)
    result = await outcome(world, request)
    assert isinstance(result, Refused)
    assert result.code == "pod-gone"
    assert await world.users() == []


async def test_half_done_attempt_of_a_dead_binder_is_undone_by_the_next(world):
    """Race 12: reserved, then killed, then too late."""
    await world.claim()
    pod = await world.pod(claims=["c"])
    claim = await world.get_claim()
    grant = await world.grant()
    user = {"resource": "pods", "name": "p", "uid": pod["metadata"]["uid"]}
    await _patched(
        world, claim, {"allocation": allocation_json(grant.allocation), "reservedFor": [user]}
    )
    result = await outcome(world, await world.bind(claims=(grant,), seconds=-1.0))
    assert isinstance(result, Refused)
    assert result.code == "expired"
    assert await world.users() == []
    assert not await world.is_allocated()


async def test_half_done_attempt_is_taken_over(world):
    await world.claim()
    pod = await world.pod(claims=["c"])
    grant = await world.grant()
    user = {"resource": "pods", "name": "p", "uid": pod["metadata"]["uid"]}
    status = {"allocation": allocation_json(grant.allocation), "reservedFor": [user]}
    await _patched(world, await world.get_claim(), status)
    before = (await world.get_claim())["metadata"]["resourceVersion"]
    result = await outcome(world, await world.bind(claims=(grant,)))
    assert isinstance(result, Bound)
    after = (await world.get_claim())["metadata"]["resourceVersion"]
    assert after != before  # a delayed write of the dead binder on the old version is refused


# -- extended resources


async def test_claim_is_made_for_extended_resources(world):
    await world.pod()
    result = await outcome(world, await world.bind(extended=extended("d0")))
    assert isinstance(result, Bound)
    (claim,) = await world.extended_claims()
    parsed = parse_claim(claim)
    assert parsed.extended
    assert parsed.owner_pod == result.pod_uid
    assert parsed.allocation == extended("d0").allocation
    assert [user.uid for user in parsed.reserved_for] == [result.pod_uid]
    status = (await world.get_pod())["status"]["extendedResourceClaimStatus"]
    assert status["resourceClaimName"] == claim["metadata"]["name"]
    assert [one["containerName"] for one in status["requestMappings"]] == ["main"]


async def test_rollback_deletes_the_claim_and_clears_the_status(world):
    await world.pod("p")
    request = await world.bind(extended=extended("d0"))
    # the bind itself is refused for ever
    world.cluster._api.faults.replace(
        [Fault(action="error", subresource="binding", code=422, reason="Invalid")], 0
    )
    result = await outcome(world, request)
    assert isinstance(result, AttemptFailed)
    assert await world.extended_claims() == []
    assert not (await world.get_pod())["status"].get("extendedResourceClaimStatus")
    world.cluster._api.faults.replace([], 0)
    assert isinstance(await outcome(world, await world.bind(extended=extended("d0"))), Bound)
    assert len(await world.extended_claims()) == 1


async def test_claim_of_an_earlier_attempt_is_replaced(world):
    """Race 24: with devices of another node, and with one that is on its way out."""
    pod = (await world.pod())["metadata"]
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": pod["uid"], "controller": True}
    notes = {"resource.kubernetes.io/extended-resource-claim": "true"}
    for name in ("old", "going"):
        await world.claim(
            name, annotations=notes, ownerReferences=[owner], finalizers=[FINALIZER, "x/y"][:1]
        )
        status = {
            "allocation": allocation_json(extended("d0", node="n2").allocation),
            "reservedFor": [{"resource": "pods", "name": "p", "uid": pod["uid"]}],
        }
        await world.patch(claims.CLAIMS, name, {"status": status}, "status")
    await world.delete(claims.CLAIMS, "going")
    assert len(await world.extended_claims()) == 2
    result = await outcome(world, await world.bind(extended=extended("d0")))
    assert isinstance(result, Bound)
    (claim,) = await world.extended_claims()
    assert claim["metadata"]["name"] not in ("old", "going")
    assert parse_claim(claim).allocation == extended("d0").allocation


async def test_lost_answers_make_no_second_claim(world):
    names = [f"p{n}" for n in range(20)]
    for name in names:
        await world.pod(name)
    rules = [
        Fault(action=action, client="kai-es", resource=resource, verb=verb, probability=0.15)
        for action in ("lose", "close")
        for resource in ("resourceclaims.resource.k8s.io", "pods")
        for verb in ("create", "patch", "get", "list", "delete")
    ]
    world.cluster._api.faults.replace(rules, 3)
    requests = [
        await world.bind(name, extended=extended(f"d{n}"), partition=n % 8)
        for n, name in enumerate(names)
    ]
    async with running(world.binder()):
        results = await asyncio.gather(*(world.final(request) for request in requests))
    world.cluster._api.faults.replace([], 0)
    assert {type(result) for result in results} == {Bound}
    found = [parse_claim(claim) for claim in await world.extended_claims()]
    assert sorted(one.owner_pod for one in found) == sorted(r.pod_uid for r in results)
    assert all(one.allocation is not None and len(one.reserved_for) == 1 for one in found)
