"""What rows keep of statuses, and that no cycle starts because of them."""

import msgspec

from kai_es.kube.conditions import TRUE
from kai_es.kube.labels import AS_OF
from kai_es.kube.parse_group import parse_group
from kai_es.kube.parse_pod import parse_pod
from kai_es.kube.parse_queue import parse_queue
from kai_es.snapshot.effective import GroupState
from kai_es.snapshot.relevance import matters
from kai_es.snapshot.snapshot import Snapshot

META = {"name": "a", "namespace": "ns", "uid": "u"}
OURS = {"type": AS_OF, "status": "True", "message": "41"}
THEIRS = {"type": "Other", "status": "True"}
WAITS = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "why"}


def a_pod(**status):
    return parse_pod({"metadata": META, "spec": {"containers": []}, "status": status})


def a_group(**status):
    return parse_group({"metadata": META, "spec": {"queue": "q"}, "status": status})


def a_queue(**status):
    return parse_queue({"metadata": META, "spec": {}, "status": status})


def test_pod_keeps_what_the_status_writer_wrote():
    assert a_pod(conditions=[THEIRS, WAITS]).scheduled == "False\nUnschedulable\nwhy"
    assert a_pod(conditions=[{**WAITS, "status": "True"}]).scheduled == TRUE
    assert a_pod(conditions=[{"type": "PodBound", "status": "True"}]).bound == TRUE
    assert a_pod(conditions=["nonsense"]).scheduled == ""


def test_group_keeps_totals_conditions_and_offset():
    group = a_group(resourcesStatus={"requested": {"cpu": "1"}}, conditions=[THEIRS, OURS])
    assert group.resources == '{"requested":{"cpu":"1"}}'
    assert group.conditions == '[{"status":"True","type":"Other"}]'
    assert group.as_of == 41


def test_group_keeps_scheduling_conditions_whole():
    raw = {
        "type": "UnschedulableOnNodePool",
        "nodePool": "p",
        "transitionID": "3",
        "reason": "Unschedulable",
        "message": "m",
        "status": "True",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
        "reasons": [{"reason": "r", "message": "m"}],
    }
    (kept,) = a_group(schedulingConditions=[raw]).scheduling_conditions
    assert (kept.node_pool, kept.transition_id, kept.message) == ("p", "3", "m")
    assert msgspec.json.decode(kept.reasons) == raw["reasons"]
    assert kept.since == "2026-01-01T00:00:00Z"


def test_queue_keeps_totals():
    queue = a_queue(requested={"cpu": "1"}, childQueues=["b"], allocated={}, conditions=[OURS])
    assert queue.status.totals == '{"childQueues":["b"],"requested":{"cpu":"1"}}'
    assert queue.status.as_of == 41


def test_status_writes_are_nothing_that_decide_reads():
    condition = {"nodePool": "default", "transitionID": "1", "message": "m"}
    pairs = [
        (a_pod(), a_pod(conditions=[WAITS, {"type": "PodBound", "status": "False"}])),
        (a_group(), a_group(resourcesStatus={"requested": {"cpu": "1"}}, conditions=[OURS])),
        (a_group(), a_group(schedulingConditions=[condition])),
        (a_queue(), a_queue(requested={"cpu": "1"}, conditions=[OURS])),
    ]
    for before, after in pairs:
        assert before != after
        assert not matters(before, after, has_marks=False)


def test_conditions_matter_to_a_group_with_back_off_but_not_their_words():
    def group(pool, message):
        status = {"schedulingConditions": [{"nodePool": pool, "message": message}]}
        raw = {"metadata": META, "spec": {"schedulingBackoff": 1}, "status": status}
        return parse_group(raw)

    assert matters(group("a", "m"), group("b", "m"), has_marks=False)
    assert not matters(group("a", "m"), group("a", "other"), has_marks=False)


class Told:
    """A follower that counts."""

    def __init__(self):
        self.groups = 0
        self.queues = 0

    def node_changed(self, name):
        pass

    def group_changed(self, key):
        self.groups += 1

    def queues_changed(self):
        self.queues += 1

    def object_changed(self, kind, name):
        pass


def test_columns_do_not_hear_of_statuses():
    snapshot, told = Snapshot(), Told()
    snapshot.follow(told)
    snapshot.set_group(a_group(), rv=1, state=GroupState())
    snapshot.set_queue(a_queue(), rv=1)
    heard = (told.groups, told.queues)
    after = a_group(resourcesStatus={"requested": {"cpu": "1"}})
    snapshot.set_group(after, rv=2, state=GroupState())
    snapshot.set_queue(a_queue(requested={"cpu": "1"}), rv=2)
    assert (told.groups, told.queues) == heard
    assert snapshot.groups.get(("ns", "a")).group is after
    snapshot.set_group(after, rv=3, state=GroupState(stale_since_ms=5))
    assert told.groups == heard[0] + 1
