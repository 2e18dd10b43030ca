"""When what differs of a pod group is written."""

from kai_es.kube.labels import AS_OF
from kai_es.snapshot.ranking import Rank
from kai_es.status.groups import POD_GROUPS
from kai_es.status.patch import Patch
from kai_es.status.planner import (
    BINDING_WAIT_S,
    MARKS_WAIT_MAX_S,
    MARKS_WAIT_S,
    REQUESTED_WAIT_MAX_S,
    REQUESTED_WAIT_S,
    Planned,
    Postponed,
    ripe,
)


def a_status(**resources):
    status = {"resourcesStatus": resources, "conditions": [{"type": AS_OF}]}
    return Patch(POD_GROUPS, "ns", "job", {"status": status}, "status")


REQUESTED = a_status(requested={"cpu": "1"})
WHOLE = a_status(requested={"cpu": "1"}, allocated={"cpu": "1"})
MARKS = Patch(POD_GROUPS, "ns", "job", {"metadata": {"annotations": {AS_OF: "1"}}})


def written(*writes, waited_s, is_binding=False, is_calm=True):
    plan = ripe(
        Planned("PodGroup", "uid", Rank(0, 1), writes),
        waited_s,
        is_binding=is_binding,
        is_calm=is_calm,
    )
    if isinstance(plan, Postponed):
        return ()
    assert plan.can_wait == (MARKS in plan.writes and len(plan.writes) == 1)
    return plan.writes


def test_what_a_group_has_is_written_at_once_and_its_marks_later():
    assert written(WHOLE, MARKS, waited_s=1) == (WHOLE,)
    assert written(WHOLE, MARKS, waited_s=MARKS_WAIT_S) == (WHOLE, MARKS)
    assert written(MARKS, waited_s=MARKS_WAIT_S - 1) == ()
    assert written(MARKS, waited_s=MARKS_WAIT_S, is_calm=False) == ()
    assert written(MARKS, waited_s=MARKS_WAIT_MAX_S, is_calm=False) == (MARKS,)


def test_what_a_group_asks_for_waits_for_what_it_gets_whatever_its_marks():
    for writes in ((REQUESTED,), (REQUESTED, MARKS)):
        assert written(*writes, waited_s=REQUESTED_WAIT_S - 1) == ()
        assert written(*writes, waited_s=REQUESTED_WAIT_S) == (REQUESTED,)


def test_while_much_is_written_what_a_group_asks_for_waits_longer():
    assert written(REQUESTED, waited_s=REQUESTED_WAIT_MAX_S - 1, is_calm=False) == ()
    assert written(REQUESTED, waited_s=REQUESTED_WAIT_MAX_S, is_calm=False) == (REQUESTED,)


def test_while_pods_are_on_their_way_nothing_is_written():
    assert written(WHOLE, waited_s=BINDING_WAIT_S - 1, is_binding=True) == ()
    assert written(WHOLE, waited_s=BINDING_WAIT_S, is_binding=True) == (WHOLE,)
