import pytest

from kai_es.events.objects import ObjectDeleted, ObjectSeen
from kai_es.intake.kinds import SOURCES, shards
from kai_es.intake.known import Known, RestoredError, UnusableError
from kai_es.intake.noise import strip

NODE, POD = SOURCES[0], SOURCES[1]


def raw(uid="u", rv=5, **content):
    return {"metadata": {"uid": uid, "name": "n", "resourceVersion": str(rv)}, **content}


@pytest.fixture
def known():
    known = Known(POD)
    known.enter(1)
    return known


def test_first_version_is_published_with_kind_and_without_noise(known):
    pod = raw(spec={"containers": [{"name": "c", "args": ["secret"]}]})
    record = known.listed(pod)
    assert isinstance(record, ObjectSeen)
    assert (record.kind, record.uid, record.name, record.rv) == ("Pod", "u", "n", 5)
    assert record.object["apiVersion"] == "v1"
    assert record.object["spec"] == {"containers": [{"name": "c"}]}


def test_same_version_is_not_published_again(known):
    assert known.listed(raw())
    assert known.listed(raw()) is None
    assert known.changed(raw()) is None


def test_older_version_of_a_watch_is_dropped_and_of_a_list_means_restore(known):
    known.listed(raw(rv=5))
    assert known.changed(raw(rv=4)) is None
    with pytest.raises(RestoredError, match="4 is listed, 5 was known"):
        known.listed(raw(rv=4))


def test_object_that_is_back_means_restore(known):
    known.listed(raw(rv=5))
    known.reached(5)
    known.deleted(raw(rv=7))
    with pytest.raises(RestoredError, match="is back"):
        known.listed(raw(rv=5))
    assert known.listed(raw(uid="v", rv=8))


def test_unfinished_list_does_not_make_its_other_objects_a_restore():
    known = Known(POD)
    known.enter(1)
    known.listed(raw(rv=9))
    known.proceed(1, 3)
    assert (known.rv, known.complete) == (9, 3)
    assert known.listed(raw(uid="v", rv=6))


def test_new_incarnation_publishes_everything_and_forgets_numbers(known):
    known.listed(raw(rv=50))
    known.reached(50)
    known.enter(2)
    record = known.listed(raw(rv=4))
    assert record is not None
    assert (record.incarnation, record.rv, known.rv) == (2, 4, 0)


def test_delete_carries_its_own_version_and_unknown_ones_are_dropped(known):
    known.listed(raw(rv=5))
    assert known.deleted(raw(uid="other", rv=6)) is None
    assert known.deleted(raw(rv=7)) == ObjectDeleted(
        kind="Pod", uid="u", namespace="", name="n", rv=7, incarnation=1
    )
    assert known.changed(raw(rv=8)) is not None, "a later version revives"


def test_missing_objects_are_deleted_at_the_lists_version_unless_newer(known):
    known.listed(raw(uid="b", rv=5))
    known.listed(raw(uid="a", rv=6))
    known.changed(raw(uid="newer", rv=9))
    gone = known.missing(["x"], 8)
    assert [(d.uid, d.rv, d.synthetic) for d in gone] == [("a", 8, True), ("b", 8, True)]
    assert list(known.versions) == ["newer"]


def test_objects_of_an_earlier_incarnation_are_missing_whatever_their_number(known):
    known.listed(raw(uid="a", rv=90))
    known.enter(2)
    assert [d.uid for d in known.missing([], 8)] == ["a"]


def test_heartbeats_are_not_published_but_content_is():
    def node(rv, beat, status="True"):
        ready = {"type": "Ready", "status": status, "lastHeartbeatTime": beat}
        return raw(rv=rv, status={"conditions": [ready], "images": [{"names": [beat]}]})

    known = Known(NODE)
    known.enter(1)
    assert known.listed(node(5, "t1"))
    assert known.changed(node(6, "t2")) is None
    assert known.rv == 6
    assert known.changed(node(7, "t3", status="False"))
    known.enter(2)
    assert known.listed(node(3, "t1", status="False")), "another incarnation needs it anew"


def test_configuration_is_published_as_resolved():
    known = Known(shards(lambda shard: {"metadata": shard["metadata"], "settings": {"a": 1}}))
    known.enter(1)
    record = known.listed(raw(spec={}))
    assert record is not None
    assert (record.kind, record.object["settings"]) == ("ShardConfig", {"a": 1})
    assert "spec" not in record.object


@pytest.mark.parametrize(
    "bad",
    [
        {},
        {"metadata": None},
        raw(rv="x"),
        raw(rv=-1),
        raw(uid=""),
        raw(uid=None),
        {"metadata": {"uid": "u", "resourceVersion": 5}},
    ],
)
def test_object_without_identity_is_unusable(known, bad):
    for take in (known.listed, known.changed, known.deleted):
        with pytest.raises(UnusableError):
            take(bad)


def test_noise_and_secrets_are_stripped():
    pod = strip(
        "Pod",
        {
            "metadata": {
                "managedFields": [1],
                "annotations": {"kubectl.kubernetes.io/last-applied-configuration": "x", "a": "b"},
            },
            "spec": {
                "containers": [
                    {
                        "name": "c",
                        "image": "i",
                        "command": ["x"],
                        "livenessProbe": {"exec": {}},
                        "env": [
                            {"name": "PASSWORD", "value": "x"},
                            {"name": "B", "valueFrom": {"configMapKeyRef": {"name": "m"}}},
                        ],
                    },
                    "nonsense",
                ],
                "initContainers": None,
                "ephemeralContainers": [{"env": "nonsense"}],
            },
        },
    )
    assert pod == {
        "metadata": {"annotations": {"a": "b"}},
        "spec": {
            "containers": [
                {
                    "name": "c",
                    "image": "i",
                    "env": [{"name": "B", "valueFrom": {"configMapKeyRef": {"name": "m"}}}],
                },
                "nonsense",
            ],
            "initContainers": None,
            "ephemeralContainers": [{"env": "nonsense"}],
        },
    }
    secret = {"data": {"k": "v"}, "binaryData": {}, "type": "t"}
    assert strip("Secret", secret) == {"type": "t"}
    head = {"name": "c", "namespace": "ns", "uid": "u", "resourceVersion": "3"}
    leader = {"annotations": {"control-plane.alpha.kubernetes.io/leader": "x"}, "labels": {}}
    config_map = {"kind": "ConfigMap", "metadata": {**head, **leader}, "data": {"k": "v"}}
    assert strip("ConfigMap", config_map) == {"kind": "ConfigMap", "metadata": head}
    for kind in ("Pod", "Node", "ConfigMap"):
        for odd in ({}, {"metadata": 5, "spec": [], "status": {"conditions": 1}}):
            assert strip(kind, odd) is odd
