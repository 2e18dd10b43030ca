import itertools

import pytest

from kai_es.events.decisions import GateChange, GroupMark, Reason, ReignEnd
from kai_es.events.requests import AttemptFailed, Bound
from kai_es.events.snapshot import AliveSeen, KindAlive
from kai_es.snapshot.checkpoint import decode, digest, encode
from kai_es.snapshot.errors import BrokenHistoryError
from kai_es.snapshot.lifecycle import Outcome
from kai_es.snapshot.status import TaskStatus
from kai_es.snapshot.world import SURE_MS, World
from tests.histories.builders import (
    T0,
    Writer,
    a_bind,
    a_cycle,
    a_group,
    a_node,
    a_pod,
    a_reign,
    an_evict,
    bound,
    evicted,
    failed,
    fold,
    gone,
    refused,
    seen,
)

NODE, POD = a_node(), a_pod()
BIND = a_cycle(1, a_bind(POD, NODE, gpu_count=1, gpu_portion=100))
RUNNING = a_pod(node="n1", phase="Running")
EVICT = a_cycle(1, an_evict(RUNNING, NODE))


def a_world(*rows):
    world, writer = World(), Writer()
    fold(world, a_reign(), seen(NODE), seen(a_group()), *rows, writer=writer)
    return world, writer


def task(world, pod=POD):
    return world.snapshot.pods[pod.uid].state


def status(world, pod=POD):
    return task(world, pod).status


def test_an_open_bind_counts_on_its_node():
    world, _ = a_world(seen(POD), BIND)
    assert status(world) is TaskStatus.BINDING
    assert task(world).node == "n1"
    assert task(world).gpu_count == 1
    assert task(world).request_id == "default/1/pod-p"
    assert list(world.open_requests()) == ["default/1/pod-p"]


def test_a_bound_result_makes_the_pod_bound_until_its_row_says_so():
    world, writer = a_world(seen(POD), BIND, bound(1, POD, NODE))
    assert status(world) is TaskStatus.BOUND
    assert list(world.open_requests()) == []
    fold(world, seen(a_pod(labels={"x": "y"}), rv=2), writer=writer)
    assert (status(world), task(world).node) == (TaskStatus.BOUND, "n1")
    fold(world, seen(RUNNING, rv=3), writer=writer)
    assert (status(world), task(world).gpu_portion) == (TaskStatus.RUNNING, 100)


@pytest.mark.parametrize(
    "result", [failed(1, POD), refused(1, POD), refused(1, POD, code="node-gone")]
)
def test_another_final_result_makes_the_pod_pending_again(result):
    world, writer = a_world(seen(POD), BIND)
    assert fold(world, result, writer=writer).changed
    assert (status(world), task(world).node) == (TaskStatus.PENDING, "")
    assert task(world).request_id == "default/1/pod-p"  # the next one names it


def test_a_failed_attempt_that_was_not_the_last_ends_nothing():
    world, writer = a_world(seen(POD), BIND)
    fold(world, failed(1, POD, final=False), writer=writer)
    assert status(world) is TaskStatus.BINDING
    assert world.snapshot.groups.get(("ns", "g")).state.backoff == ()


@pytest.mark.parametrize(
    "row",
    [
        seen(a_pod(node="n2"), rv=2),
        seen(a_pod(phase="Failed"), rv=2),
        gone(POD),
        gone(NODE),
        bound(1, POD, NODE),
    ],
    ids=["bound elsewhere", "ended", "deleted", "node uid deleted", "result"],
)
def test_a_bind_request_ends_by_row_or_result(row):
    world, writer = a_world(seen(POD), BIND)
    fold(world, row, writer=writer)
    assert list(world.open_requests()) == []


def test_a_new_node_of_the_same_name_does_not_reopen_a_request():
    world, writer = a_world(seen(POD), BIND)
    fold(world, gone(NODE), seen(a_node(uid="other")), writer=writer)
    assert (status(world), task(world).node) == (TaskStatus.PENDING, "")


def test_a_request_to_a_deleted_node_is_never_open():
    world, _ = a_world(seen(POD), gone(NODE), BIND)
    assert status(world) is TaskStatus.PENDING


def test_an_open_evict_makes_the_pod_releasing_until_its_row_shows_it():
    world, writer = a_world(seen(RUNNING), EVICT)
    assert (status(world), task(world).node) == (TaskStatus.RELEASING, "n1")
    fold(world, evicted(1, POD), writer=writer)
    assert status(world) is TaskStatus.RELEASING
    assert list(world.open_requests()) == []
    going = a_pod(node="n1", phase="Running", deleted_ms=T0 + 30_000)
    fold(world, seen(going, rv=2), writer=writer)
    assert status(world) is TaskStatus.RELEASING


@pytest.mark.parametrize("result", [failed(1, POD), refused(1, POD)])
def test_an_evict_that_did_not_happen_leaves_the_pod_running(result):
    world, writer = a_world(seen(RUNNING), EVICT)
    fold(world, result, writer=writer)
    assert status(world) is TaskStatus.RUNNING


def test_being_bound_does_not_end_an_evict():
    evict = a_cycle(2, an_evict(POD, NODE))
    world, writer = a_world(seen(POD), BIND, evict)
    assert (status(world), task(world).node) == (TaskStatus.RELEASING, "n1")
    fold(world, seen(RUNNING, rv=2), writer=writer)
    assert status(world) is TaskStatus.RELEASING
    assert list(world.open_requests()) == ["default/2/pod-p"]


def test_rows_of_a_restored_cluster_know_nothing_of_older_requests():
    world, writer = a_world(seen(POD), BIND, bound(1, POD, NODE))
    fold(world, seen(POD, rv=1, incarnation=1), writer=writer)
    assert status(world) is TaskStatus.PENDING


RESTORED = seen(POD, rv=1, incarnation=1)


def alive(seen_ms, partition=0):
    """The pods' watch has given a sign of life after etcd was restored."""
    mark = KindAlive(kind="Pod", rv=9, seen_ms=seen_ms)
    return AliveSeen(partition=partition, incarnation=1, time=T0, kinds=(mark,))


def test_a_restore_ends_no_request_of_which_the_binder_may_still_be_at_work():
    """It bound the pod after the scheduler had given its room to another (worlds, seed 504)."""
    world, writer = a_world(seen(POD), BIND)
    fold(world, RESTORED, writer=writer)
    assert (status(world), task(world).node) == (TaskStatus.BINDING, "n1")
    assert list(world.open_requests()) == ["default/1/pod-p"]
    fold(world, refused(1, POD), writer=writer)
    assert status(world) is TaskStatus.PENDING


def test_a_restore_ends_no_eviction_either():
    world, writer = a_world(seen(RUNNING), EVICT)
    fold(world, seen(RUNNING, incarnation=1), writer=writer)
    assert status(world) is TaskStatus.RELEASING
    fold(world, evicted(1, POD), writer=writer)
    assert status(world) is TaskStatus.RELEASING


def test_what_is_told_bound_after_a_restore_counts_until_the_watch_would_have_shown_it():
    world, writer = a_world(seen(POD), BIND)
    fold(world, alive(T0), RESTORED, bound(1, POD, NODE), alive(T0 + SURE_MS), writer=writer)
    assert (status(world), task(world).node) == (TaskStatus.BOUND, "n1")
    told_ms = writer.time
    fold(world, alive(told_ms + SURE_MS), alive(told_ms, partition=1), writer=writer)
    assert status(world) is TaskStatus.BOUND  # partition 1 may be to show it
    done = fold(world, alive(told_ms + SURE_MS, partition=1), writer=writer)
    assert done.changed
    assert (status(world), task(world).node) == (TaskStatus.PENDING, "")


def test_what_is_told_bound_after_a_restore_and_is_bound_stays_so():
    world, writer = a_world(seen(POD), BIND)
    bound_now = seen(a_pod(node="n1"), rv=2, incarnation=1)
    fold(world, RESTORED, bound(1, POD, NODE), bound_now, writer=writer)
    fold(world, alive(writer.time + SURE_MS), writer=writer)
    assert (status(world), task(world).gpu_portion) == (TaskStatus.BOUND, 100)


def test_doubt_about_a_binding_is_in_checkpoints():
    world, writer = a_world(seen(POD), BIND)
    fold(world, RESTORED, bound(1, POD, NODE), writer=writer)
    copy = decode(encode(world).payload)
    assert digest(copy) == digest(world)
    told_ms = writer.time
    fold(copy, alive(told_ms + SURE_MS), writer=writer)
    assert status(copy) is TaskStatus.PENDING


@pytest.mark.parametrize("is_early", [True, False], ids=["result first", "cycle first"])
def test_a_cycle_that_is_folded_after_a_restore_it_had_not_seen_is_in_doubt(is_early):
    world, writer = World(), Writer()
    fold(world, a_reign(), *(seen(o, incarnation=1) for o in (NODE, POD)), writer=writer)
    fold(world, seen(POD, rv=1, incarnation=2), writer=writer)  # offset 1; the cycle saw 0
    rows = [bound(1, POD, NODE), BIND] if is_early else [BIND, bound(1, POD, NODE)]
    fold(world, *rows, writer=writer)
    assert status(world) is TaskStatus.BOUND
    mark = KindAlive(kind="Pod", rv=9, seen_ms=writer.time + SURE_MS)
    late = AliveSeen(partition=0, incarnation=2, time=T0, kinds=(mark,))
    copy = decode(encode(world).payload)
    fold(world, late, writer=writer)
    assert status(world) is TaskStatus.PENDING
    assert copy.liveness.risen == 1


def test_a_node_that_a_restore_brings_back_is_one_that_its_open_requests_may_bind_to():
    world, writer = a_world(seen(POD), BIND, gone(NODE))
    assert status(world) is TaskStatus.PENDING
    fold(world, seen(NODE, rv=1, incarnation=1), writer=writer)
    assert (status(world), task(world).node) == (TaskStatus.BINDING, "n1")


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
def test_pod_request_and_result_may_come_in_any_order(order):
    world, writer = World(), Writer()
    fold(world, a_reign(), seen(NODE), seen(a_group()), writer=writer)
    rows = (seen(POD), BIND, bound(1, POD, NODE))
    for i in order:
        fold(world, rows[i], writer=writer)
    assert status(world) is TaskStatus.BOUND
    assert world.requests.early == {}


def test_bound_beats_failed_in_either_order():
    for results in itertools.permutations((bound(1, POD, NODE), failed(1, POD, binder="b2"))):
        world, _ = a_world(seen(POD), BIND, *results)
        assert status(world) is TaskStatus.BOUND
        assert isinstance(world.requests.of_pod(POD.uid)[0].outcome.final, Bound)


def test_a_result_of_a_request_long_over_is_counted_only():
    world, writer = a_world(seen(POD), BIND, gone(POD), refused(1, POD, code="pod-gone"))
    assert world.requests.by_pod == {}
    fold(world, refused(1, POD, code="pod-gone"), writer=writer)
    assert world.requests.n_late == 1
    assert world.requests.early == {}


def test_a_request_of_a_deleted_pod_waits_for_its_result():
    world, writer = a_world(seen(POD), BIND, gone(POD))
    assert len(world.requests.of_pod(POD.uid)) == 1
    fold(world, failed(1, POD), writer=writer)
    assert world.requests.by_pod == {}
    assert world.snapshot.groups.get(("ns", "g")).state.backoff[0][0] == "volume"


def test_only_requests_that_matter_are_kept():
    second = a_cycle(2, a_bind(POD, NODE, supersedes="default/1/pod-p"), now_ms=T0 + 50)
    world, _ = a_world(seen(POD), BIND, failed(1, POD), second)
    assert [r.id for r in world.requests.all()] == ["default/2/pod-p"]


def test_a_pod_keeps_what_it_was_granted_by_the_request_that_bound_it():
    """Its node was made again under its name, so that it was ordered a second time."""
    again = a_node(uid="node-again")
    second = a_cycle(2, a_bind(POD, again, gpu_count=1, gpu_portion=25), now_ms=T0 + 50)
    first = (seen(POD), BIND, gone(NODE), seen(again), second, bound(1, POD, NODE))
    world, writer = a_world(*first, seen(a_pod(node="n1"), rv=2))
    assert (status(world), task(world).gpu_portion) == (TaskStatus.BOUND, 100)
    fold(world, refused(2, POD, code="bound-elsewhere"), writer=writer)
    assert (status(world), task(world).gpu_portion) == (TaskStatus.BOUND, 100)
    assert list(world.open_requests()) == []


def test_outcomes_fold_to_the_same_in_any_order():
    results = (
        failed(1, POD, attempt=1, final=False),
        failed(1, POD, attempt=2),
        failed(1, POD, attempt=2, binder="b2"),
        refused(1, POD, attempt=3),
        bound(1, POD, NODE, attempt=1),
    )
    outcomes = set()
    for order in itertools.permutations(results):
        outcome = Outcome()
        for result in order:
            outcome = outcome.with_result(result).with_result(result)
        outcomes.add((outcome.final, outcome.failed))
    assert outcomes == {(results[4], results[0])}


# -- back-off


def backoffs(world):
    return world.snapshot.groups.get(("ns", "g")).state.backoff


def test_failures_back_off_doubling_and_one_cycle_is_one_step():
    other = a_pod("p2")
    world, writer = World(), Writer()
    fold(world, a_reign(), seen(NODE), seen(a_group()), seen(POD), seen(other), writer=writer)
    for number, delay in ((1, 5_000), (2, 10_000), (3, 20_000)):
        cycle = a_cycle(number, a_bind(POD, NODE), a_bind(other, NODE), now_ms=T0 + number)
        fold(world, cycle, failed(number, POD), failed(number, other), writer=writer)
        assert backoffs(world) == (("volume", world.time + delay, number),)


def test_backoff_ends_at_ten_minutes_and_starts_anew_when_long_over():
    world, writer = World(), Writer()
    fold(world, a_reign(), seen(NODE), seen(a_group()), seen(POD), writer=writer)
    for number in range(1, 12):
        fold(
            world,
            a_cycle(number, a_bind(POD, NODE), now_ms=T0 + number),
            failed(number, POD),
            writer=writer,
        )
    assert backoffs(world) == (("volume", world.time + 600_000, 8),)
    fold(world, writer=writer, after_ms=1_300_000)
    assert backoffs(world) == ()
    fold(world, a_cycle(12, a_bind(POD, NODE), now_ms=T0 + 12), failed(12, POD), writer=writer)
    assert backoffs(world) == (("volume", world.time + 5_000, 1),)


def test_refused_requests_do_not_back_off():
    world, _ = a_world(seen(POD), BIND, refused(1, POD))
    assert backoffs(world) == ()


# -- marks


def marks_cycle(number, **mark):
    return a_cycle(number, now_ms=T0 + number, marks=(GroupMark(group_uid="group-g", **mark),))


def test_marks_of_the_latest_cycle_replace_annotations():
    world, writer = a_world()
    fold(world, seen(a_group(last_start_ms=5), rv=2), writer=writer)
    fold(world, marks_cycle(1, last_start_ms=7), marks_cycle(2, stale_since_ms=9), writer=writer)
    state = world.snapshot.groups.get(("ns", "g")).state
    assert (state.last_start_ms, state.stale_since_ms) == (0, 9)
    outcome = fold(world, seen(a_group(last_start_ms=8), rv=3), writer=writer)
    assert not outcome.changed  # the mirror of a mark says nothing
    assert world.snapshot.groups.get(("ns", "g")).state.last_start_ms == 0


def test_marks_die_with_their_group():
    world, writer = a_world(marks_cycle(1, last_start_ms=7))
    fold(world, gone(a_group()), marks_cycle(2, last_start_ms=8), writer=writer)
    assert world.standings.marks == {}


# -- reigns, cycles, reasons


def test_a_cycle_does_not_count_as_a_change_of_what_it_read():
    world, writer = a_world(seen(POD))
    outcome = fold(world, BIND, writer=writer)
    assert (outcome.changed, outcome.decided) == (False, ("default",))


def test_a_cycle_that_orders_nothing_concerns_no_other_shard():
    """Else two shards set each other off for ever."""
    world, writer = a_world(seen(POD))
    outcome = fold(world, a_cycle(1), writer=writer)
    assert (outcome.changed, outcome.decided) == (False, ())


def test_a_cycle_and_the_refusal_of_its_request_in_one_batch_are_a_change():
    world, writer = a_world(seen(POD))
    assert fold(world, BIND, refused(1, POD), writer=writer).changed


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ((a_cycle(2),), "follows 0"),
        ((a_cycle(1), a_cycle(1)), "follows 1"),
        ((a_cycle(1, epoch=2),), "but 1 reigns"),
        ((a_reign(1, 1),), "above 1"),
        ((a_reign(2, 2),), "cycle 1"),
        ((a_reign(2, 1), a_cycle(1, epoch=1)), "but 2 reigns"),
        ((ReignEnd(shard="default", epoch=1), a_cycle(1)), "nobody reigns"),
        ((a_cycle(1, shard="other"),), "nobody reigns"),
        ((a_cycle(1), a_cycle(2, now_ms=T0 - 1)), "the one before"),
        ((a_cycle(1, same={"group-g": 1}),), "do not hold"),
    ],
)
def test_a_decision_out_of_turn_stops_the_reader(rows, message):
    world, writer = a_world()
    with pytest.raises(BrokenHistoryError, match=message):
        fold(world, *rows, writer=writer)


def test_reigns_follow_each_other_and_numbers_go_on():
    world, writer = a_world(a_cycle(1), a_cycle(2))
    fold(
        world,
        ReignEnd(shard="default", epoch=1),
        a_reign(3, 3),
        a_cycle(3, epoch=3, offset=9),
        writer=writer,
    )
    shard = world.reigns.shards["default"]
    assert (shard.epoch, shard.next_cycle, shard.input_offset) == (3, 4, 9)


def test_gate_changes_are_kept_as_the_last_verdict():
    world, writer = a_world()
    gate = a_cycle(1).inputs.gate
    fold(world, GateChange(shard="default", epoch=1, time=T0, gate=gate), writer=writer)
    assert world.reigns.shards["default"].gate == gate


def test_reasons_hold_with_the_cycle_that_introduced_them():
    why = (Reason(code="over-limit"),)
    world, writer = a_world()
    fold(world, a_cycle(1, reasons={"g1": why, "g2": why}), writer=writer)
    fold(world, a_cycle(2, reasons={"g3": why}, same={"g1": 1}), writer=writer)
    held = world.reigns.reasons["default"]
    assert {uid: entry.cycle for uid, entry in held.items()} == {"g1": 1, "g3": 2}
    with pytest.raises(BrokenHistoryError, match="do not hold"):
        fold(world, a_cycle(3, same={"g2": 1}), writer=writer)


def test_failed_results_name_their_cycle():
    assert isinstance(failed(1, POD), AttemptFailed)
    world, _ = a_world(failed(3, POD))
    assert backoffs(world)[0][2] == 1
