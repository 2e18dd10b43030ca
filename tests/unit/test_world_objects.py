import pytest

from kai_es.events.snapshot import Parked, ParkingEnded
from kai_es.snapshot.observed import Since
from kai_es.snapshot.status import TaskStatus
from kai_es.snapshot.world import World
from tests.histories.builders import (
    T0,
    Writer,
    a_group,
    a_node,
    a_pod,
    a_queue,
    bound,
    fold,
    gone,
    seen,
)


def parked_pod(rv=2, *, uid="pod-p", node="n1", phase="Running", requests=None, incarnation=0):
    return Parked(
        kind="Pod",
        uid=uid,
        rv=rv,
        incarnation=incarnation,
        namespace="ns",
        name="p",
        error="negative quantity",
        node=node,
        phase=phase,
        requests=a_pod().spec.requests if requests is None else requests,
    )


def node_of(world, name="n1"):
    return world.snapshot.nodes.get(name)


def test_an_older_version_changes_nothing():
    world = World()
    fold(world, seen(a_node(gpus=4), rv=7), seen(a_node(gpus=8), rv=6))
    assert node_of(world).node.gpu_count == 4


def test_rv_compares_as_a_number_and_incarnation_goes_first():
    world = World()
    fold(world, seen(a_node(gpus=1), rv=9), seen(a_node(gpus=2), rv=10))
    assert node_of(world).node.gpu_count == 2
    world = World()
    fold(
        world,
        seen(a_node(gpus=1), rv=3, incarnation=1),
        seen(a_node(gpus=2), rv=10, incarnation=0),
    )
    assert node_of(world).node.gpu_count == 1
    assert world.liveness.incarnation == 1


@pytest.mark.parametrize("rv", [4, 5])
def test_a_delete_wins_over_equal_and_lower_versions(rv):
    world = World()
    fold(world, gone(a_node(), rv=5), seen(a_node(), rv=rv))
    assert node_of(world) is None


def test_a_later_version_revives_a_deleted_uid():
    world = World()
    fold(world, seen(a_node(), rv=1), gone(a_node(), rv=5), seen(a_node(), rv=6))
    assert node_of(world) is not None
    assert not world.objects.is_deleted("Node", "node-n1")


def test_a_delete_acts_on_its_uid_and_the_name_means_the_other():
    world = World()
    old, new = a_node(uid="u1", gpus=1), a_node(uid="u2", gpus=2)
    fold(world, seen(new, rv=9), seen(old, rv=3))
    assert node_of(world).node.uid == "u2"
    fold(world, gone(old, rv=8), writer=_after(world))
    assert node_of(world).node.uid == "u2"


def test_a_name_means_the_uid_of_the_later_incarnation():
    world = World()
    fold(world, seen(a_node(uid="u1"), rv=900), seen(a_node(uid="u2"), rv=3, incarnation=1))
    assert node_of(world).node.uid == "u2"


def test_tombstones_are_forgotten_after_a_while():
    world, writer = World(), Writer()
    fold(world, seen(a_pod()), gone(a_pod()), writer=writer)
    assert world.objects.is_deleted("Pod", "pod-p")
    fold(world, writer=writer, after_ms=16 * 60_000)
    assert not world.objects.is_deleted("Pod", "pod-p")


def test_since_tells_when_a_pod_was_first_seen_pending_and_bound():
    world, writer = World(), Writer()
    fold(world, seen(a_pod(), rv=1), writer=writer)
    fold(world, seen(a_pod(node="n1"), rv=2), writer=writer)
    fold(world, seen(a_pod(node="n1", phase="Running"), rv=3), writer=writer)
    entry = world.objects.get("Pod", "pod-p")
    assert entry.pending == Since(T0 + 10, 0)
    assert entry.bound == Since(T0 + 20, 1)


def test_since_of_a_node_starts_anew_with_its_standing():
    world, writer = World(), Writer()
    fold(world, seen(a_node(), rv=1), writer=writer)
    fold(world, seen(a_node(labels={"a": "b"}), rv=2), writer=writer)
    entry = world.objects.get("Node", "node-n1")
    assert entry.stood.offset == 0
    fold(world, seen(a_node(ready=False), rv=3), writer=writer)
    assert entry.stood.offset == 2


def test_inside_a_gap_a_row_counts_at_its_own_time():
    world, writer = World(), Writer()
    fold(world, writer=writer)
    fold(world, seen(a_pod()), writer=writer, after_ms=60_000, ingest_ms=T0 + 30_000)
    assert world.objects.get("Pod", "pod-p").pending == Since(T0 + 30_000, 1)
    fold(world, seen(a_pod("r")), writer=writer, after_ms=60_000, ingest_ms=T0)
    assert world.objects.get("Pod", "pod-r").pending.time_ms == T0 + 60_010


def test_a_parked_version_leaves_the_valid_one_in_force():
    world = World()
    running = a_pod(node="n1", phase="Running")
    fold(world, seen(a_node()), seen(running, rv=1), parked_pod(2))
    assert world.snapshot.pods["pod-p"].pod == running
    assert world.parking.counts() == {"Pod": 1}
    assert node_of(world).closed == ()  # same node and requests: accounted


@pytest.mark.parametrize(
    ("valid", "parked", "closed"),
    [
        (None, {}, ("unaccounted-pod",)),
        (None, {"node": ""}, ()),
        (None, {"phase": "Succeeded"}, ()),
        ({"node": "n1", "phase": "Running"}, {"requests": {"cpu": 5}}, ("unaccounted-pod",)),
        ({"node": "n2", "phase": "Running"}, {}, ("unaccounted-pod",)),
        ({}, {}, ("unaccounted-pod",)),
    ],
    ids=["no valid", "unbound", "ended", "other requests", "other node", "valid one unbound"],
)
def test_a_node_closes_for_a_pod_that_nothing_accounts(valid, parked, closed):
    world = World()
    rows = [seen(a_pod(**valid), rv=1)] if valid is not None else []
    fold(world, *rows, parked_pod(2, **parked), seen(a_node()))
    assert node_of(world).closed == closed


@pytest.mark.parametrize(
    "end",
    [
        seen(a_pod(node="n1", phase="Running"), rv=3),
        seen(a_pod(node="n1", phase="Running"), rv=2),
        gone(a_pod(), rv=2),
        ParkingEnded(kind="Pod", uid="pod-p", rv=2, incarnation=0),
    ],
    ids=["newer version", "retry at equal rv", "delete", "discard"],
)
def test_a_node_opens_when_the_parked_version_is_superseded(end):
    world, writer = World(), Writer()
    fold(world, seen(a_node()), parked_pod(2), writer=writer)
    assert node_of(world).closed
    outcome = fold(world, end, writer=writer)
    assert node_of(world).closed == ()
    assert world.parking.counts() == {}
    assert outcome.changed
    fold(world, parked_pod(2), writer=writer)  # told again: nothing new
    assert node_of(world).closed == ()


def test_a_closed_node_that_comes_later_is_closed_too():
    world = World()
    fold(world, parked_pod(2), seen(a_node()))
    assert node_of(world).closed


def test_a_parked_queue_is_counted_and_closes_nothing():
    world = World()
    fold(
        world,
        Parked(kind="Queue", uid="queue-q", rv=2, incarnation=0, name="q", error="no quota"),
        seen(a_queue("other")),
    )
    assert world.parking.counts() == {"Queue": 1}
    assert world.snapshot.queues.get("q") is None


def test_a_group_waits_for_the_generation_its_pods_were_grouped_under():
    world, writer = World(), Writer()
    fold(world, seen(a_group(generation=1)), seen(a_pod(stamp=("group-g", 2))), writer=writer)
    held = world.snapshot.groups.get(("ns", "g")).state.held
    assert held.code == "group-not-seen"
    assert held.args == {"stamped": 2, "generation": 1}
    assert fold(world, seen(a_group(generation=2), rv=2), writer=writer).changed
    assert world.snapshot.groups.get(("ns", "g")).state.held is None


@pytest.mark.parametrize(
    "pod",
    [a_pod(), a_pod(stamp=("group-other", 9)), a_pod(stamp=("group-g", 9), phase="Failed")],
    ids=["no stamp", "stamp of another uid", "ended"],
)
def test_other_stamps_do_not_hold_a_group(pod):
    world = World()
    fold(world, seen(a_group(generation=1)), seen(pod))
    assert world.snapshot.groups.get(("ns", "g")).state.held is None


def test_a_deleted_pod_holds_its_group_no_longer():
    world, writer = World(), Writer()
    pod = a_pod(stamp=("group-g", 2))
    fold(world, seen(a_group()), seen(pod), writer=writer)
    fold(world, gone(pod), writer=writer)
    assert world.snapshot.groups.get(("ns", "g")).state.held is None
    assert world.standings.stamps == {}


def test_annotations_count_until_a_group_is_marked():
    world = World()
    fold(world, seen(a_group(last_start_ms=77)))
    assert world.snapshot.groups.get(("ns", "g")).state.last_start_ms == 77


@pytest.mark.parametrize(
    ("obj", "changed"),
    [
        (a_pod(closed_request="d/1/p"), False),
        (a_pod(labels={"a": "b"}), True),
        (a_pod(), False),
    ],
)
def test_only_what_decide_reads_counts_as_a_change(obj, changed):
    world, writer = World(), Writer()
    fold(world, seen(a_pod(), rv=1), writer=writer)
    assert fold(world, seen(obj, rv=2), writer=writer).changed is changed
    assert world.snapshot.pods["pod-p"].rv == 2


def test_a_result_without_its_request_is_kept():
    world = World()
    fold(world, bound(1, a_pod(), a_node()))
    assert list(world.requests.early) == ["default/1/pod-p"]
    assert world.snapshot.pods == {}


def test_a_pod_may_come_before_everything_it_names():
    world = World()
    fold(world, seen(a_pod(node="n1", phase="Running")))
    assert world.snapshot.pods["pod-p"].state.status is TaskStatus.RUNNING


def _after(world):
    writer = Writer(time=world.time)
    writer.prev = writer.offset = world.offset
    writer.position = world.chain.cursors["objects", 0]
    return writer
