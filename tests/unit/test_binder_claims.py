"""What a binding writes into claims on devices (binder.md §9.1, races 18 and 24)."""

import pytest

from kai_es.binder import claims
from kai_es.binder.obstacles import ObstacleError
from kai_es.events.decisions import ClaimGrant, ContainerMapping, ExtendedGrant
from kai_es.kube.devices import AllocatedDevice, Allocation, DeviceRequest
from kai_es.kube.parse_devices import parse_claim

ON_N1 = {"nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "values": ["n1"]}]}]}
ALLOCATION = Allocation(
    devices=(AllocatedDevice("gpu", "gpu.example.com", "n1", "d0"),), node_selector=None
)
OTHER = Allocation(devices=(AllocatedDevice("gpu", "gpu.example.com", "n2", "d0"),))
GRANT = ClaimGrant("mine", "c", "u-c", ALLOCATION)
EXTENDED = ExtendedGrant(
    ALLOCATION,
    (DeviceRequest(name="container-0-request-0", device_class="gpu", count=1),),
    (ContainerMapping("main", "nvidia.com/gpu", "container-0-request-0"),),
)


def claim(*, uid="u-c", users=(), allocation=None, finalizers=(), deleted=False):
    meta = {"namespace": "ns", "name": "c", "uid": uid, "finalizers": list(finalizers)}
    if deleted:
        meta["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    status = {"reservedFor": [{"resource": "pods", "name": u, "uid": u} for u in users]}
    if allocation is not None:
        status["allocation"] = claims.allocation_json(allocation)
    return {"metadata": meta, "spec": {}, "status": status}


def merged(raw, patch):
    status = {**raw["status"], **patch["status"]}
    return {**raw, "status": {k: v for k, v in status.items() if v is not None}}


def test_free_claim_gets_devices_and_its_user():
    patch = claims.granted(claim(), GRANT, pod="p", uid="u")
    after = parse_claim(merged(claim(), patch))
    assert after.allocation == ALLOCATION
    assert [user.uid for user in after.reserved_for] == ["u"]


def test_grant_done_twice_writes_once():
    once = merged(claim(), claims.granted(claim(), GRANT, pod="p", uid="u"))
    assert claims.granted(once, GRANT, pod="p", uid="u") is None


def test_second_user_of_a_claim_joins():
    patch = claims.granted(claim(users=["a"], allocation=ALLOCATION), GRANT, pod="p", uid="u")
    assert "allocation" not in patch["status"]
    assert [user["uid"] for user in patch["status"]["reservedFor"]] == ["a", "u"]


@pytest.mark.parametrize(
    ("found", "text"),
    [
        (claim(uid="new"), "made anew"),
        (claim(users=["a"], allocation=OTHER), "other devices"),
        (claim(users=["u"], allocation=OTHER), "other devices"),
        (claim(deleted=True), "being deleted"),
        (claim(users=[f"a{n}" for n in range(256)], allocation=ALLOCATION), "maximum number"),
    ],
)
def test_claims_that_are_not_as_decided(found, text):
    with pytest.raises(ObstacleError, match=text):
        claims.granted(found, GRANT, pod="p", uid="u")


def test_user_number_256_still_fits():
    found = claim(users=[f"a{n}" for n in range(255)], allocation=ALLOCATION)
    assert len(claims.granted(found, GRANT, pod="p", uid="u")["status"]["reservedFor"]) == 256


def test_finalizer_comes_before_the_devices_and_once():
    def mark(**fields):
        return claims.marked(claim(**fields), uid="u", request_id="s/1/u")

    assert mark(finalizers=["x"]) == {"metadata": {"finalizers": ["x", claims.FINALIZER]}}
    assert mark(finalizers=[claims.FINALIZER]) is None
    assert mark(allocation=ALLOCATION, users=["a"]) is None  # as the reference left it


def test_claim_that_a_pod_has_already_is_changed_before_it_is_relied_on():
    """Or a stopped binder could still take it back, on the version that it saw."""
    found = claim(allocation=ALLOCATION, users=["u"])
    patch = claims.marked(found, uid="u", request_id="s/2/u")
    assert patch == {"metadata": {"annotations": {"kai.scheduler/claimed-by": "s/2/u"}}}
    found["metadata"]["annotations"] = patch["metadata"]["annotations"]
    assert claims.marked(found, uid="u", request_id="s/2/u") is None


def test_last_user_gives_the_devices_back():
    found = claim(users=["u"], allocation=ALLOCATION)
    patch = claims.released(found, "u")
    assert patch["status"] == {"reservedFor": None, "allocation": None, "devices": None}
    assert claims.released(merged(found, patch), "u") is None


def test_others_keep_them():
    patch = claims.released(claim(users=["a", "u"], allocation=ALLOCATION), "u")
    assert [user["uid"] for user in patch["status"]["reservedFor"]] == ["a"]
    assert "allocation" not in patch["status"]


def test_allocation_survives_the_api_form():
    allocation = Allocation(
        devices=(
            AllocatedDevice("a", "d", "p", "x", True),
            AllocatedDevice("b/c", "d", "p", "y"),
        ),
        node_selector={
            "nodeSelectorTerms": [
                {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}
            ]
        },
        config=[{"source": "FromClass", "requests": ["a"], "opaque": {"driver": "d"}}],
    )
    raw = claim()
    raw["status"]["allocation"] = claims.allocation_json(allocation)
    found = parse_claim(raw).allocation
    assert found.devices == allocation.devices
    assert found.config == allocation.config
    assert claims.allocation_json(allocation)["nodeSelector"] == allocation.node_selector


# -- claims named by the pod


def pod(**fields):
    return {
        "metadata": {"namespace": "ns", "name": "p"},
        "spec": {
            "resourceClaims": [
                {"name": "mine", "resourceClaimName": "c"},
                {"name": "made", "resourceClaimTemplateName": "t"},
            ]
        },
        **fields,
    }


def test_names_of_claims():
    made = {"resourceClaimStatuses": [{"name": "made", "resourceClaimName": "p-made-x"}]}
    assert claims.named(pod(), "mine") == "c"
    assert claims.named(pod(status=made), "made") == "p-made-x"
    with pytest.raises(ObstacleError, match="no resource claim name found"):
        claims.named(pod(), "made")
    with pytest.raises(ObstacleError, match="not found in pod ns/p"):
        claims.named(pod(), "other")


# -- the claim for extended resources


def made(grant=EXTENDED, **changes):
    body = claims.extended_claim(grant, name="c", namespace="ns", pod="p", uid="u")
    body["metadata"] |= {"uid": "u-c", **changes}
    return body


def test_claim_is_found_by_its_pod():
    found = claims.extended_of([made(), claim(), made(ownerReferences=[])], "u")
    assert found == [made()]
    assert claims.extended_of([made()], "another") == []


def test_claim_of_a_failed_attempt_is_not_reused():
    """Race 24: being deleted, with devices of another node, or for something else."""
    elsewhere = made() | {"status": {"allocation": claims.allocation_json(OTHER)}}
    more = ExtendedGrant(
        ALLOCATION, (DeviceRequest(name="container-0-request-0", device_class="gpu", count=2),), ()
    )
    assert claims.extended_granted(made(), EXTENDED, pod="p", uid="u")
    for found, grant, text in [
        (made(deletionTimestamp="2026-01-01T00:00:00Z"), EXTENDED, "being deleted"),
        (elsewhere, EXTENDED, "other devices"),
        (made(), more, "asks for other"),
    ]:
        with pytest.raises(ObstacleError, match=text):
            claims.extended_granted(found, grant, pod="p", uid="u")


def test_name_is_the_same_for_one_request_and_another_for_the_next():
    names = {claims.extended_name("p" * 70, f"s/{n}/u") for n in (1, 1, 2)}
    assert len(names) == 2
    assert all(len(name) <= 63 for name in names)
    assert claims.extended_name("p", "s/1/u").startswith("p-extended-resources-")


def test_pod_tells_the_kubelet_of_the_claim_once():
    patch = claims.told(pod(), EXTENDED, "c")
    assert patch["status"]["extendedResourceClaimStatus"] == {
        "resourceClaimName": "c",
        "requestMappings": [
            {
                "containerName": "main",
                "resourceName": "nvidia.com/gpu",
                "requestName": "container-0-request-0",
            }
        ],
    }
    assert claims.told(pod(status=patch["status"]), EXTENDED, "c") is None
    assert claims.untold(pod(status=patch["status"])) == {
        "status": {"extendedResourceClaimStatus": None}
    }
    assert claims.untold(pod()) is None


def test_deleted_claim_is_let_go():
    assert claims.unprotected(made()) == {"metadata": {"finalizers": None}}
    assert claims.unprotected(made(finalizers=["x"])) is None
