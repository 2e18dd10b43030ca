import msgspec
import pytest

from kai_es.audit.verify import verify
from kai_es.eventlog.memory import MemoryLog
from kai_es.events.catalogue import BIND_REQUESTS, SNAPSHOT
from kai_es.events.decisions import Gate, Pipeline, Verdict
from kai_es.events.digest import cycle_digest
from kai_es.events.requests import BindRequested, request_id
from kai_es.kube.objects import GpuRequest
from projectors.batching import batch_envelope
from tests.histories.builders import (
    T0,
    Writer,
    a_bind,
    a_cycle,
    a_node,
    a_pod,
    a_reign,
    an_evict,
    bound,
    evicted,
    gone,
    refused,
    seen,
)
from tests.histories.logs import out
from tests.histories.virtual import run_virtual

NODE = a_node()
POD = a_pod()
RUNNING = a_pod("r", node="n1", phase="Running")


def signed(cycle, **changes):
    """A cycle whose digest is its own."""
    cycle = msgspec.structs.replace(cycle, **changes)
    digest = cycle_digest(cycle.config_digest, cycle.inputs, cycle.decision)
    return msgspec.structs.replace(cycle, digest=digest)


def placed(pod=POD):
    return Pipeline(
        pod_uid=pod.uid,
        namespace="ns",
        pod=pod.name,
        group_uid="group-other",
        node="n1",
        node_uid=NODE.uid,
        action="reclaim",
    )


def report_on(*batches, requests=(), ids=None, step_ms=10):
    """What verify says of a log with these batches of rows."""

    async def scenario():
        log, writer = MemoryLog(), Writer()
        for rows in batches:
            _, batch = writer.batch(*rows, after_ms=step_ms)
            envelope = batch_envelope(batch, ingest_ms=T0, producer="test")
            if ids:
                envelope = msgspec.structs.replace(envelope, id=ids)
            await log.append_one(SNAPSHOT, "", envelope)
        epoch = await log.take_over("test")
        if requests:
            await log.append(epoch, list(requests))
        return await verify(log)

    return run_virtual(scenario())


def found(*batches, **options):
    """(invariant, text) of every violation."""
    return [(v.invariant, v.text) for v in report_on(*batches, **options).violations]


START = (a_reign(), seen(NODE), seen(POD), seen(RUNNING))
BIND = signed(a_cycle(1, a_bind(POD, NODE)))


def test_a_good_history_holds():
    report = report_on(
        START,
        (BIND,),
        (bound(1, POD, NODE),),
        (seen(a_pod(node="n1"), rv=2),),
        (signed(a_cycle(2, an_evict(RUNNING, NODE), placed(), offset=2)), evicted(2, RUNNING)),
    )
    assert report.violations == []
    assert report.holds
    assert report.checked["7 evictions"] == 1
    assert report.notes == ()


@pytest.mark.parametrize(
    ("batches", "invariant", "text"),
    [
        (
            (START, (BIND,), (signed(a_cycle(2, a_bind(POD, NODE), offset=1)),)),
            "1",
            "has an open bind request already",
        ),
        (
            (START, (signed(a_cycle(1, a_bind(POD, NODE), a_bind(POD, NODE), offset=0)),)),
            "8",
            "twice",
        ),
        (
            (
                START,
                (BIND,),
                (refused(1, POD),),
                (signed(a_cycle(2, a_bind(POD, NODE), offset=2)),),
                (bound(1, POD, NODE), bound(2, POD, NODE)),
            ),
            "1",
            "is bound by default/1/pod-p and by default/2/pod-p",
        ),
        (
            (START, (BIND,), (bound(1, POD, a_node("n2")),)),
            "1",
            "is bound to n2, ordered was n1",
        ),
        (
            (START, (signed(a_cycle(1, an_evict(RUNNING, NODE))),)),
            "7",
            "for group-other, which is not placed in it",
        ),
        (
            (
                START,
                (
                    signed(
                        a_cycle(1, an_evict(RUNNING, NODE), placed()),
                        inputs=msgspec.structs.replace(
                            BIND.inputs, gate=Gate(verdict=Verdict.NO_EVICT)
                        ),
                    ),
                ),
            ),
            "7",
            "against the gate's verdict",
        ),
        (
            (
                START,
                (signed(a_cycle(1, an_evict(RUNNING, NODE), placed())),),
                (signed(a_cycle(2, an_evict(RUNNING, NODE), placed(), offset=1)),),
            ),
            "7",
            "has an open evict request already",
        ),
        ((START, (a_cycle(1),)), "digest", "cycle 1: digest is not its own"),
        (
            (START, (BIND,), (signed(a_cycle(2, offset=0)),)),
            "11",
            "cycle 2 saw 0, its predecessor is in 1",
        ),
        ((START, (signed(a_cycle(1, offset=5)),)), "11", "saw 5, later"),
        ((START, (signed(a_cycle(3)),)), "8", "follows 0"),
        ((START, (bound(1, POD, NODE), BIND, refused(1, RUNNING))), "2", "is in no cycle"),
    ],
)
def test_what_must_not_be_is_found(batches, invariant, text):
    violations = found(*batches)
    assert [v for v in violations if v[0] == invariant and text in v[1]], violations


def test_a_bad_batch_id_is_found():
    assert ("digest", "id 7/x is not that of its rows") in found(START, ids="7/x")


def test_a_request_that_nobody_answers_is_found_when_it_is_old():
    report = report_on(START, (BIND,))
    assert report.holds
    assert report.notes == ("1 requests have no final result yet",)
    late = found(START, (BIND,), (), step_ms=100_000)
    assert late[0][0] == "3"
    assert "no final result" in late[0][1]


SMALL = a_node(gpus=2)


def on_small(n, **fields):
    return a_pod(f"s{n}", phase="Running", node="n1", **fields)


def test_too_much_on_a_node_is_found():
    first, second, third = (a_pod(f"s{n}") for n in range(3))
    binds = signed(a_cycle(1, *(a_bind(pod, SMALL) for pod in (first, second, third))))
    rows = (a_reign(), seen(SMALL), seen(first), seen(second), seen(third))
    (violation,) = found(rows, (binds,), (bound(1, first, SMALL),))
    assert violation == ("4", "node n1: gpu 3000000 of 2000000")


def test_a_node_that_shrank_is_excused():
    rows = (a_reign(), seen(SMALL), seen(on_small(0)), seen(on_small(1)))
    shrunk = (seen(a_node(gpus=1), rv=2),)
    later = (seen(on_small(0, labels={"a": "b"}), rv=2),)
    assert found(rows, shrunk, later) == []


def test_a_decision_from_before_a_node_shrank_is_excused():
    pod = a_pod("s", gpus=2)
    rows, shrunk = (a_reign(), seen(SMALL), seen(pod)), (seen(a_node(gpus=1), rv=2),)
    bind = a_bind(pod, SMALL)
    assert found(rows, shrunk, (signed(a_cycle(1, bind, offset=0)),)) == []
    informed = (signed(a_cycle(1, offset=1)),), (seen(a_node(gpus=1), rv=3),)
    (violation,) = found(rows, shrunk, *informed, (signed(a_cycle(2, bind, offset=3)),))
    assert violation == ("4", "node n1: gpu 2000000 of 1000000")


def test_a_node_made_again_smaller_under_the_pods_of_the_old_one_is_excused():
    pods, late = [a_pod(f"s{n}") for n in range(2)], [a_pod(f"t{n}") for n in range(2)]
    smaller = a_node(gpus=1, uid="another")
    placed = (
        (a_reign(), seen(SMALL), *(seen(pod) for pod in (*pods, *late))),
        (signed(a_cycle(1, *(a_bind(pod, SMALL) for pod in pods), offset=0)),),
        tuple(bound(1, pod, SMALL) for pod in pods),
        (gone(SMALL),),
        (seen(smaller),),
    )
    assert found(*placed) == []
    left = tuple(gone(pod) for pod in pods)
    informed = (left, (signed(a_cycle(2, offset=5)),), (seen(smaller, rv=2),))
    assert found(*placed, *informed) == []
    binds = signed(a_cycle(3, *(a_bind(pod, smaller) for pod in late), offset=7))
    (violation,) = found(*placed, *informed, (binds,))
    assert violation == ("4", "node n1: gpu 2000000 of 1000000")


def test_a_foreign_pod_excuses_its_node():
    rows = (a_reign(), seen(SMALL), *(seen(on_small(n)) for n in range(3)))
    assert found(rows) == []


def restored(*told):
    """A pod that had ended runs again after etcd was restored; another has its place in the log."""
    over, other = a_pod("a", gpus=2), a_pod("b", gpus=2)
    start = (a_reign(), seen(SMALL), seen(over), seen(other))
    first = (signed(a_cycle(1, a_bind(over, SMALL), offset=0)),), (bound(1, over, SMALL),)
    ended = (seen(a_pod("a", gpus=2, node="n1", phase="Succeeded"), rv=3),)
    second = (signed(a_cycle(2, a_bind(other, SMALL), offset=3)),), *told
    back = seen(a_pod("a", gpus=2, node="n1", phase="Running"), rv=2, incarnation=1)
    return (start, *first, ended, *second, (back,)), other


def test_a_pod_that_a_restore_of_etcd_brought_back_excuses_its_node():
    """The other one, which the restored cluster knows unbound, is in a list still to come."""
    history, other = restored()
    assert found(*history) == []
    history, other = restored((bound(2, other, SMALL),))
    assert found(*history) == []
    informed = (seen(other, rv=1, incarnation=1),), (signed(a_cycle(3, offset=7)),)
    touched = ((seen(SMALL, rv=2, incarnation=1),),)
    bind = (signed(a_cycle(4, a_bind(other, SMALL), offset=9)),)
    (violation,) = found(*history, *informed, *touched, bind)
    assert violation == ("4", "node n1: gpu 4000000 of 2000000")


def test_a_pod_bound_after_a_restore_by_an_older_request_is_no_excuse():
    """It was not there before: whoever gave its place away is wrong (worlds, seed 504)."""
    first, other = a_pod("a", gpus=2), a_pod("b", gpus=2)
    start = (a_reign(), seen(SMALL), seen(first), seen(other))
    bind = (signed(a_cycle(1, a_bind(first, SMALL), offset=0)),)
    again = (seen(first, incarnation=1), seen(SMALL, incarnation=1))
    given = (signed(a_cycle(2, a_bind(other, SMALL), offset=2)),)
    (violation,) = found(start, bind, again, given)
    assert violation == ("4", "node n1: gpu 4000000 of 2000000")
    told = (bound(1, first, SMALL),)
    row = (seen(a_pod("a", gpus=2, node="n1"), rv=9, incarnation=1), bound(2, other, SMALL))
    assert found(start, bind, again, told, given, row) == [violation]


def shared(name, *, groups=("dev",), portion=60):
    pod = a_pod(name, gpus=0)
    return pod, a_bind(pod, SMALL, received="Fraction", gpu_groups=groups, gpu_portion=portion)


def test_too_much_on_a_shared_device_is_found():
    pods, binds = zip(shared("a"), shared("b"), strict=True)
    rows = (a_reign(), seen(SMALL), *(seen(pod) for pod in pods))
    (violation,) = found(rows, (signed(a_cycle(1, *binds)),))
    assert violation == ("4", "node n1: shared device dev 1200000 of 1000000 millionths")
    assert found(rows, (signed(a_cycle(1, binds[0])),)) == []


def test_shares_by_memory_are_counted_without_their_rounding():
    """17.5 % four times and 30 % are a device; each is granted in whole hundredths."""
    by_memory = [shared(name, portion=18) for name in "abcd"]
    pods = [with_gpu(pod, memory_mib=7_000) for pod, _ in by_memory]
    last, bind = shared("e", portion=30)
    rows = (a_reign(), seen(SMALL), *(seen(pod) for pod in (*pods, with_gpu(last, portion=0.3))))
    binds = [bind for _, bind in by_memory]
    assert found(rows, (signed(a_cycle(1, *binds, bind)),)) == []


def with_gpu(pod, **asked):
    spec = msgspec.structs.replace(pod.spec, gpu=GpuRequest(count=1, **asked))
    return msgspec.structs.replace(pod, spec=spec)


def test_a_reservation_that_outlives_its_users_holds_no_device():
    """The binder takes it away before it gives the device to somebody else."""
    kept = a_pod("r", gpus=1, node="n1", phase="Running", gpu_groups=("dev",), group="")
    pods = [a_pod(name, gpus=1) for name in "ab"]
    rows = (a_reign(), seen(SMALL), seen(kept), *(seen(pod) for pod in pods))
    informed = (signed(a_cycle(1, offset=0)),), (seen(SMALL, rv=2),)
    binds = [a_bind(pod, SMALL) for pod in pods]
    assert found(rows, *informed, (signed(a_cycle(2, *binds, offset=2)),)) == []


def test_what_etcd_has_forgotten_may_be_bound_again():
    again = seen(POD, incarnation=1)
    second = (signed(a_cycle(2, a_bind(POD, NODE), offset=3)),)
    history = (START, (BIND,), (bound(1, POD, NODE),), (again, seen(NODE, incarnation=1)), second)
    assert found(*history, (bound(2, POD, NODE),)) == []


def test_shared_devices_count_as_whole_ones():
    pods, binds = zip(*(shared(name, groups=(name,)) for name in "abc"), strict=True)
    rows = (a_reign(), seen(SMALL), *(seen(pod) for pod in pods))
    (violation,) = found(rows, (signed(a_cycle(1, *binds)),))
    assert violation == ("4", "node n1: gpu 3000000 of 2000000")


def request(pod, cycle):
    record = BindRequested(
        request_id=request_id(shard="default", cycle=cycle, pod_uid=pod.uid),
        shard="default",
        cycle=cycle,
        epoch=1,
        namespace="ns",
        pod=pod.name,
        pod_uid=pod.uid,
        pod_rv=1,
        node="n1",
        node_uid=NODE.uid,
        group_uid="g",
        not_after_ms=T0,
    )
    return out(record, BIND_REQUESTS, pod.uid)


def test_a_request_that_no_cycle_made_is_found():
    good, foreign, ahead = request(POD, 1), request(RUNNING, 1), request(POD, 2)
    report = report_on(START, (BIND,), requests=[good, foreign, ahead])
    assert [(v.invariant, v.text) for v in report.violations] == [
        ("6", "default/1/pod-r is in no cycle")
    ]
    assert report.checked["requests of cycles that are not in `snapshot` yet"] == 1


def test_junk_in_the_log_is_a_finding_not_a_crash():
    async def scenario():
        log = MemoryLog()
        _, batch = Writer().batch(*START)
        envelope = batch_envelope(batch, ingest_ms=T0, producer="test")
        await log.append_one(
            SNAPSHOT, "", msgspec.structs.replace(envelope, data=msgspec.Raw(b"\x01"))
        )
        return await verify(log)

    report = run_virtual(scenario())
    assert [v.invariant for v in report.violations] == ["8"]
