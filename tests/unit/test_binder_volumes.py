"""Volume binding at one look (binder.md §9.1, race 18)."""

import pytest

from kai_es.binder.obstacles import ObstacleError
from kai_es.binder.volumes import Asked, Place, look, sought
from kai_es.kube.parse_pod import parse_pod
from tests.simulation.api_client import a_pod

PLACE = Place("n1", {"host": "n1", "zone": "a"})
CLASSES = {
    "local": {
        "metadata": {"name": "local", "uid": "sc1"},
        "provisioner": "kubernetes.io/no-provisioner",
        "volumeBindingMode": "WaitForFirstConsumer",
    },
    "disk": {
        "metadata": {"name": "disk", "uid": "sc2"},
        "provisioner": "csi.example.com",
        "volumeBindingMode": "WaitForFirstConsumer",
    },
    "now": {"metadata": {"name": "now", "uid": "sc3"}, "provisioner": "csi.example.com"},
}


def pod(*claims):
    raw = a_pod("p")
    raw["metadata"] |= {"namespace": "ns", "uid": "u"}
    raw["spec"]["volumes"] = [
        {"name": f"v{n}", "persistentVolumeClaim": {"claimName": name}}
        for n, name in enumerate(claims)
    ]
    return parse_pod(raw)


def claim(name, storage_class="local", size="1Gi", *, volume="", bound=False, node="", uid=""):
    notes = {"pv.kubernetes.io/bind-completed": "yes"} if bound else {}
    if node:
        notes["volume.kubernetes.io/selected-node"] = node
    return {
        "metadata": {
            "namespace": "ns",
            "name": name,
            "uid": uid or f"u-{name}",
            "resourceVersion": "7",
            "annotations": notes,
        },
        "spec": {
            "storageClassName": storage_class,
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": size}},
            "volumeName": volume,
        },
        "status": {"phase": "Bound" if bound else "Pending"},
    }


def volume(
    name, size="1Gi", *, host="n1", storage_class="local", claim_ref=None, phase="Available"
):
    on = {"key": "host", "operator": "In", "values": [host]}
    terms = [{"matchExpressions": [on]}]
    spec = {
        "storageClassName": storage_class,
        "accessModes": ["ReadWriteOnce"],
        "capacity": {"storage": size},
        "nodeAffinity": {"required": {"nodeSelectorTerms": terms}},
    }
    if claim_ref:
        spec["claimRef"] = {"namespace": "ns", "name": claim_ref[0], "uid": claim_ref[1]}
    meta = {"name": name, "uid": f"u-{name}", "resourceVersion": "3"}
    return {"metadata": meta, "spec": spec, "status": {"phase": phase}}


def found(claims, volumes=(), asked=None, place=PLACE):
    by_name = {one["metadata"]["name"]: one for one in claims}
    needs = sought(pod(*by_name), by_name, CLASSES)
    return look(needs, place, volumes, CLASSES, asked if asked is not None else Asked())


def test_smallest_volume_of_the_node_is_kept_for_the_claim():
    volumes = [volume("big", "9Gi"), volume("small", "2Gi"), volume("other", "1Gi", host="n2")]
    one = found([claim("c")], volumes)
    (kept,) = one.keep
    assert kept["metadata"]["name"] == "small"
    assert kept["metadata"]["annotations"] == {"pv.kubernetes.io/bound-by-controller": "yes"}
    assert kept["spec"]["claimRef"]["uid"] == "u-c"
    assert kept["metadata"]["resourceVersion"] == "3"
    assert one.pending == ("c",)


def test_two_claims_do_not_take_one_volume():
    volumes = [volume("a", "1Gi"), volume("b", "2Gi")]
    one = found([claim("c1"), claim("c2")], volumes)
    refs = {kept["metadata"]["name"]: kept["spec"]["claimRef"]["name"] for kept in one.keep}
    assert refs == {"a": "c1", "b": "c2"}


def test_look_that_finds_its_own_writes_writes_nothing():
    volumes = [volume("a", claim_ref=("c", "u-c")), volume("b", "1Gi")]
    one = found([claim("c")], volumes)
    assert not one.keep
    assert one.pending == ("c",)


def test_volume_made_ready_for_the_claim_by_a_user_gets_its_uid():
    (kept,) = found([claim("c")], [volume("a", claim_ref=("c", ""))]).keep
    assert kept["spec"]["claimRef"]["uid"] == "u-c"
    assert "annotations" not in kept["metadata"]


def test_volume_of_an_earlier_claim_of_that_name_is_not_taken():
    with pytest.raises(ObstacleError, match="didn't find available"):
        found([claim("c")], [volume("a", claim_ref=("c", "old"))])


def test_volume_is_asked_for_on_the_node():
    one = found([claim("c", "disk")])
    ((raw, changes),) = one.provide
    assert raw["metadata"]["name"] == "c"
    assert changes["metadata"]["annotations"] == {"volume.kubernetes.io/selected-node": "n1"}
    assert not found([claim("c", "disk", node="n1")]).provide  # asked for already


def test_volume_asked_for_on_another_node_keeps_the_pod_from_this_one():
    with pytest.raises(ObstacleError, match="another node"):
        found([claim("c", "disk", node="n2")])


def test_provisioner_that_gives_up_is_noticed():
    asked = Asked(provided={"c"})
    with pytest.raises(ObstacleError, match="provisioning failed"):
        found([claim("c", "disk")], asked=asked)


def test_volume_that_somebody_else_got_is_noticed():
    asked = Asked(kept={"c"})
    with pytest.raises(ObstacleError, match="somebody else"):
        found([claim("c")], [volume("a", claim_ref=("d", "u-d"))], asked=asked)


def test_bound_claims_need_nothing():
    one = found([claim("c", volume="a", bound=True)], [volume("a", phase="Bound")])
    assert (one.keep, one.provide, one.pending) == ((), (), ())


def test_claim_is_waited_for_until_it_is_bound_for_good():
    one = found([claim("c", volume="a")], [volume("a", claim_ref=("c", "u-c"), phase="Bound")])
    assert one.pending == ("c",)


@pytest.mark.parametrize(
    ("claims", "volumes", "text"),
    [
        ([claim("c", volume="a", bound=True)], [], "non-existent pv"),
        ([claim("c", volume="a", bound=True)], [volume("a", host="n2")], "node affinity"),
        ([claim("c", "now")], [], "unbound immediate"),
        ([claim("c", "disk", volume="a")], [volume("a", host="n2")], "node affinity"),
    ],
)
def test_claims_that_cannot_be(claims, volumes, text):
    with pytest.raises(ObstacleError, match=text):
        found(claims, volumes)


def test_claim_that_is_gone():
    with pytest.raises(ObstacleError, match="not found"):
        sought(pod("c"), {"c": None}, CLASSES)


def test_class_that_does_not_reach_the_node():
    topologies = [{"matchLabelExpressions": [{"key": "zone", "values": ["b"]}]}]
    classes = {"disk": CLASSES["disk"] | {"allowedTopologies": topologies}}
    needs = sought(pod("c"), {"c": claim("c", "disk")}, classes)
    with pytest.raises(ObstacleError, match="didn't find available"):
        look(needs, PLACE, (), classes, Asked())
    assert look(needs, Place("n", {"zone": "b"}), (), classes, Asked()).provide
