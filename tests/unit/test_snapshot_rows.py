from kai_es.kube.objects import Node, Pod, PodGroup, PodSpec
from kai_es.kube.topologies import Topology
from kai_es.kube.volumes import ConfigMap
from kai_es.snapshot.effective import GroupState, TaskState
from kai_es.snapshot.snapshot import Snapshot
from kai_es.snapshot.status import TaskStatus


def a_pod(uid: str, group: str = "g") -> Pod:
    return Pod(uid=uid, namespace="ns", name=uid, group=group, spec=PodSpec(requests={"cpu": 1}))


PENDING = TaskState(status=TaskStatus.PENDING)


def test_name_means_the_live_uid_with_the_highest_rv():
    snapshot = Snapshot()
    snapshot.set_node(Node(uid="new", name="n1"), rv=9)
    snapshot.set_node(Node(uid="old", name="n1"), rv=4)
    assert snapshot.nodes.get("n1").node.uid == "new"
    snapshot.remove_node("new")
    assert snapshot.nodes.get("n1").node.uid == "old"
    snapshot.remove_node("old")
    assert snapshot.nodes.get("n1") is None


def test_plain_objects_are_found_by_name_and_followers_hear_of_changes():
    heard = []

    class Ear:
        def node_changed(self, name):
            raise AssertionError

        group_changed = queues_changed = node_changed

        def object_changed(self, kind, name):
            heard.append((kind, name))

    snapshot = Snapshot()
    snapshot.follow(Ear())
    topology = Topology(uid="t", name="net")
    snapshot.set_object(topology, rv=1)
    snapshot.set_object(topology, rv=2)
    snapshot.set_object(ConfigMap(uid="c", namespace="ns", name="m"), rv=1)
    assert snapshot.object("Topology", "net") is topology
    assert snapshot.object("ConfigMap", ("ns", "m")).uid == "c"
    assert snapshot.object("ConfigMap", ("other", "m")) is None
    snapshot.remove_object("Topology", "t")
    snapshot.remove_object("Topology", "t")
    assert list(snapshot.objects("Topology")) == []
    assert heard == [("Topology", "net"), ("ConfigMap", ("ns", "m")), ("Topology", "net")]


def test_a_pod_may_come_before_its_group_and_node():
    snapshot = Snapshot()
    bound = TaskState(status=TaskStatus.BOUND, node="n1")
    snapshot.set_pod(a_pod("p1"), rv=1, task=bound)
    assert list(snapshot.pods_of_node["n1"]) == ["p1"]
    snapshot.set_group(
        PodGroup(uid="u", namespace="ns", name="g", queue="q"), rv=2, state=GroupState()
    )
    snapshot.remove_group("u")
    assert list(snapshot.pods_of_group["ns", "g"]) == ["p1"]


def test_a_pod_that_moves_leaves_its_old_indices():
    snapshot = Snapshot()
    snapshot.set_pod(a_pod("p1"), rv=1, task=TaskState(status=TaskStatus.BOUND, node="n1"))
    snapshot.set_pod(a_pod("p1", group="h"), rv=2, task=PENDING)
    assert snapshot.pods_of_node == {}
    assert list(snapshot.pods_of_group) == [("ns", "h")]


def test_rows_of_removed_pods_are_used_again():
    snapshot = Snapshot()
    snapshot.set_pod(a_pod("p1"), rv=1, task=PENDING)
    snapshot.remove_pod("p1")
    snapshot.set_pod(a_pod("p2"), rv=2, task=PENDING)
    assert snapshot.pods["p2"].row == 0
    assert [row.pod.uid for row in snapshot.pod_rows if row] == ["p2"]
