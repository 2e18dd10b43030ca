import pytest

from kai_es.audit.cycles import recorded_cycles
from kai_es.audit.explain import NotYetError, UnknownNameError, explain
from kai_es.eventlog.memory import MemoryLog
from kai_es.events.catalogue import SNAPSHOT
from kai_es.events.decisions import Reason
from kai_es.events.snapshot import Parked, ParkingEnded, Removed
from kai_es.kube.labels import GPU_MICRO
from kai_es.kube.objects import SubGroup
from kai_es.reader.roll import roll
from kai_es.snapshot.world import World
from projectors.batching import batch_envelope
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
    fold,
    gone,
    refused,
    seen,
)
from tests.histories.virtual import run_virtual

NODE, GROUP, POD = a_node(), a_group(), a_pod()
FULL = (Reason(code="not-enough-resources", args={"resource": "gpu"}, count=3),)
LIMIT = (
    Reason(
        code="over-limit",
        args={
            "queue": "q",
            "resource": "gpu",
            "bound": 2 * GPU_MICRO,
            "used": 2 * GPU_MICRO,
            "requested": GPU_MICRO,
            "missing": GPU_MICRO,
        },
    ),
)
TOO_MUCH = (
    "over-limit: Queue q may use at most 2 GPUs; 2 GPUs are in use and this asks for 1 GPU: "
    "1 GPU too many."
)
HISTORY = (
    (a_reign(), seen(NODE), seen(GROUP), seen(POD)),
    (a_cycle(1, reasons={"group-g": LIMIT}),),
    (a_cycle(2, same={"group-g": 1}),),
    (a_cycle(3, reasons={"group-g": FULL}),),
    (a_cycle(4, same={"group-g": 3}),),
    (a_cycle(5, same={"group-g": 3}),),
    (a_cycle(6, same={"group-g": 3}),),
    (a_cycle(7, a_bind(POD, NODE)),),
    (bound(7, POD, NODE),),
    (seen(a_pod(node="n1", phase="Running"), rv=2),),
    (gone(POD, rv=3),),
)


def story(*batches, kind="Pod", name="p", world=None, cycle=None, shard="default", **options):
    async def scenario():
        log, writer = MemoryLog(), Writer()
        for rows in batches:
            _, batch = writer.batch(*rows)
            await log.append_one(SNAPSHOT, "", batch_envelope(batch, ingest_ms=T0, producer="test"))
        start = World()
        if world is not None:
            async for _ in roll(log, start, until=world):
                pass
        if cycle is not None:
            (options["until"],) = await recorded_cycles(log, shard=shard, first=cycle, last=cycle)
        return await explain(log, start, kind=kind, name=name, **options)

    return run_virtual(scenario())


def told(found):
    return [(line.what, line.text) for line in found.lines]


def test_a_pod_from_pending_to_deleted():
    found = story(*HISTORY)
    assert told(found) == [
        ("waiting", "waiting"),
        ("pending", TOO_MUCH),
        ("pending", "not-enough-resources (resource=gpu)"),
        ("bind", "cycle 7: allocate binds ns/p to n1"),
        ("binding", "binding on n1"),
        ("bound", "bound to n1"),
        ("bound", "bound on n1"),
        ("running", "running on n1"),
        ("deleted", "deleted"),
    ]
    runs = [(line.cycles, line.until_ms - line.time_ms) for line in found.lines[1:3]]
    assert runs == [(2, 10), (4, 30)]
    assert (found.uid, found.namespace, found.dominant) == ("pod-p", "ns", "deleted")


def test_while_it_waits_the_longest_reason_is_dominant():
    found = story(*HISTORY[:7])
    assert found.dominant == "not-enough-resources (resource=gpu)"
    assert story(*HISTORY, cycle=2).dominant == TOO_MUCH
    assert story(*HISTORY, until_ms=T0 + 20).lines[-1].what == "pending"


def test_nothing_is_told_that_came_after_the_cycle_asked_for():
    """Whatever else is in its batch, and whatever the cycles of other shards are called."""
    other = (a_reign(shard="other"), *(a_cycle(n, shard="other") for n in range(1, 6)))
    bind = (a_cycle(3, reasons={"group-g": FULL}), a_cycle(4, a_bind(POD, NODE)))
    found = story(HISTORY[0], other, *HISTORY[1:3], bind, cycle=3)
    assert told(found)[-1] == ("pending", "not-enough-resources (resource=gpu)")
    assert [line.what for line in found.lines] == ["waiting", "pending", "pending"]
    found = story(HISTORY[0], other, *HISTORY[1:3], bind, cycle=4)
    assert [line.what for line in found.lines][-2:] == ["bind", "binding"]
    found = story(HISTORY[0], other, *HISTORY[1:3], bind, cycle=5, shard="other")
    assert told(found) == [("waiting", "waiting")]


@pytest.mark.parametrize("until", [{"until_ms": 0}, {"until_ms": T0 + 29}, {"cycle": 1}])
def test_who_came_later_was_not_there_at_that_time(until):
    late = seen(a_pod("late"))
    batches = (*HISTORY[:2], (late,), *HISTORY[2:])
    with pytest.raises(NotYetError, match=r"^no Pod named 'late' was there at that time$") as error:
        story(*batches, name="late", **until)
    assert error.value.came_ms == T0 + 30
    assert story(*batches, name="late", until_ms=T0 + 30).dominant == "waiting"
    with pytest.raises(UnknownNameError, match="is in the log, but ns/late"):
        story(*batches, name="later", **until)


def test_a_pod_group():
    found = story(*HISTORY, kind="PodGroup", name="ns/g")
    assert told(found)[:4] == [
        ("pods", "1 pending"),
        ("pending", TOO_MUCH),
        ("pending", "not-enough-resources (resource=gpu)"),
        ("bind", "cycle 7: allocate binds ns/p to n1"),
    ]
    assert told(found)[-1] == ("pods", "no pods")


def test_refusals_are_told():
    found = story(*HISTORY[:1], (a_cycle(1, a_bind(POD, NODE)),), (refused(1, POD),))
    assert told(found)[-2:] == [("refused", "refused, expired"), ("waiting", "waiting")]


def test_a_pod_whose_group_is_not_there_says_what_it_waits_for():
    none, named = a_pod("none", group=""), a_pod("named", group="h")
    alone = story((seen(none), seen(named)), name="ns/none")
    assert told(alone) == [
        (
            "waiting",
            "waiting: it names no pod group (annotation pod-group-name), and waits for that",
        )
    ]
    found = story((seen(none), seen(named)), (seen(a_group("h")),), name="ns/named")
    assert told(found) == [
        ("waiting", "waiting: there is no pod group ns/h, and it waits for that"),
        ("waiting", "waiting"),
    ]


def test_a_pod_whose_group_cannot_be_read_says_so():
    parked = Parked(
        kind="PodGroup",
        uid="u",
        rv=1,
        incarnation=0,
        namespace="ns",
        name="h",
        error="minMember is -5",
    )
    found = story((parked, seen(a_pod("named", group="h"))), name="named")
    assert found.dominant == (
        "waiting: its pod group ns/h cannot be read, and it waits for that: minMember is -5"
    )


def test_a_pod_of_no_sub_group_says_which_there_are():
    def told_of(*subs, **fields):
        group = a_group(sub_groups=tuple(SubGroup(name=n, parent=p) for n, p in subs))
        return story((seen(group), seen(a_pod(**fields)))).dominant

    subs = (("top", None), ("a", "top"), ("b", "top"))
    start = "waiting: pod group ns/g has no sub-group "
    label = " (label kai.scheduler/subgroup-name) that takes pods, "
    assert told_of(*subs, sub_group="b") == "waiting"
    assert told_of(*subs, sub_group="top") == f"{start}top{label}it has a, b"
    assert told_of(*subs) == f"{start}default{label}it has a, b"
    circle = (("a", "b"), ("b", "a"))
    assert told_of(*circle, sub_group="a") == (
        f"{start}a{label}its sub-groups are not used: subgroup <a> is its own ancestor"
    )
    assert told_of(*circle) == "waiting"  # as of a group without any, as in the reference


def test_a_story_can_begin_at_a_checkpoint():
    found = story(*HISTORY, world=6)
    assert told(found)[0] == ("bind", "cycle 7: allocate binds ns/p to n1")


def test_the_last_bearer_of_a_name_is_meant():
    again = a_pod(uid="again")
    found = story(*HISTORY, (seen(again, rv=9),))
    assert found.uid == "again"
    assert told(found) == [("waiting", "waiting")]


def test_unknown_and_ambiguous_names():
    with pytest.raises(UnknownNameError, match="no Pod named 'nobody'"):
        story(*HISTORY, name="nobody")
    with pytest.raises(UnknownNameError, match=r"in the log, but ns/p; .*kubectl get pods -A"):
        story(*HISTORY, name="elsewhere/p")
    with pytest.raises(UnknownNameError, match="in the log, but ns/worker-1; "):
        story(*HISTORY, (seen(a_pod("worker-1")),), name="worker1")
    with pytest.raises(UnknownNameError, match="nor any other PodGroup"):
        story(HISTORY[0][:2], name="g", kind="PodGroup")
    other = a_pod(uid="u2")
    import msgspec

    other = msgspec.structs.replace(other, namespace="ns2")
    with pytest.raises(UnknownNameError, match="ns/p, ns2/p"):
        story(*HISTORY, (seen(other),))
    assert story(*HISTORY, (seen(other),), name="ns2/p").uid == "u2"


def test_the_world_given_is_rolled_on():
    world = World()
    fold(world, seen(NODE))
    assert world.offset == 0


def test_a_pod_of_which_no_version_can_be_read_has_a_story():
    parked = Parked(
        kind="Pod", uid="u", rv=1, incarnation=0, namespace="ns", name="bad", error="cpu is '-1'"
    )
    found = story((parked,), name="bad")
    assert found.dominant == "a version cannot be read: cpu is '-1'"
    found = story((parked,), name="ns/bad", world=0)
    assert (found.uid, found.lines) == ("u", [])
    other = a_pod("bad")
    assert story((parked, seen(other)), name="bad").uid == other.uid
    ended = ParkingEnded(kind="Pod", uid="u", rv=1, incarnation=0)
    assert told(story((parked,), (ended,), name="bad"))[-1][0] == "discarded"
    removed = Removed(kind="Pod", uid="u", rv=2, incarnation=0)
    assert told(story((parked,), (removed,), name="bad"))[-1] == ("deleted", "deleted")


def test_the_rest_of_a_gang_says_what_it_waits_for():
    few = {"sub_group": "default", "needed": 2, "exist": 1, "gated": 0}
    reason = Reason(code="not-ready", parts=(Reason(code="too-few-pods", args=few),))
    done = a_pod("done", node="n1", phase="Succeeded")
    group = a_group(min_member=2)
    rest = (
        (a_reign(), seen(NODE), seen(group), seen(POD), seen(done)),
        (a_cycle(1, reasons={"group-g": (reason,)}),),
    )
    for kind, name in (("Pod", "p"), ("PodGroup", "g")):
        found = story(*rest, kind=kind, name=name)
        assert found.dominant == (
            "not-ready: Not enough pods exist yet: 1 of 2 pods. 1 of its pods has ended and does "
            "not count: the others wait until more are made, as too few are left to run together."
        )
        assert found.lines[-1].codes == ("not-ready",)


def test_who_an_eviction_is_for_is_named():
    evict = an_evict(POD, NODE)
    other = seen(a_group("other"))
    evicted = (*HISTORY[0], other), (a_cycle(1, a_bind(POD, NODE)),), (a_cycle(2, evict),)
    assert any(text.endswith("for pod group ns/other") for _, text in told(story(*evicted)))
