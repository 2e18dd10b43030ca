import msgspec
import pytest

from kai_es.cycle import turn as turn_module
from kai_es.cycle.records import Manner, to_records
from kai_es.cycle.turn import fit, turn, whole_decision
from kai_es.events.codec import unpack
from kai_es.events.decisions import (
    CycleDecision,
    CycleInputs,
    Pipeline,
    Reason,
)
from kai_es.events.digest import config_digest, cycle_digest
from kai_es.kube.objects import ShardConfig
from kai_es.snapshot.reigns import Introduced
from kai_es.snapshot.world import World
from tests.histories.builders import (
    T0,
    Writer,
    a_bind,
    a_cycle,
    a_node,
    a_pod,
    a_reign,
    an_evict,
    fold,
)

CONFIG = ShardConfig(uid="c", name="default", settings={"b": 1, "a": [2.5]})
NODE = a_node()
WHY = (Reason(code="over-limit", parts=(Reason(code="detail"),)),)
OTHER = (Reason(code="gang-incomplete"),)


def inputs(cycle=1, now_ms=T0):
    return CycleInputs(shard="default", cycle=cycle, now_ms=now_ms)


def run(decision, world=None):
    world = world or World()
    return turn(world, CONFIG, inputs(), epoch=3, decide=lambda *_: decision)


def test_a_cycle_says_what_was_decided_and_on_what():
    decision = CycleDecision(ops=(a_bind(a_pod(), NODE),), reasons={"g": WHY})
    cycle = run(decision)
    assert (cycle.shard, cycle.epoch, cycle.cycle, cycle.offset) == ("default", 3, 1, -1)
    assert cycle.decision == decision
    assert cycle.digest == cycle_digest(config_digest(CONFIG), inputs(), decision)


def test_reasons_that_hold_are_references_and_come_back():
    world, writer = World(), Writer()
    fold(world, a_reign(3), a_cycle(1, epoch=3, reasons={"g": WHY, "h": WHY}), writer=writer)
    decision = CycleDecision(reasons={"g": WHY, "h": OTHER})
    cycle = turn(world, CONFIG, inputs(2), epoch=3, decide=lambda *_: decision)
    assert cycle.decision.reasons == {"h": OTHER}
    assert cycle.reasons_same == {"g": 1}
    assert whole_decision(cycle, world.reigns.reasons["default"]) == decision
    fold(world, cycle, writer=writer)
    assert world.reigns.reasons["default"] == {"g": Introduced(1, WHY), "h": Introduced(2, OTHER)}


def test_the_digest_knows_config_inputs_and_decision():
    base = cycle_digest("c", inputs(), CycleDecision())
    assert base == cycle_digest("c", inputs(), CycleDecision())
    assert base != cycle_digest("d", inputs(), CycleDecision())
    assert base != cycle_digest("c", inputs(now_ms=T0 + 1), CycleDecision())
    assert base != cycle_digest("c", inputs(), CycleDecision(resume="g"))


def test_the_digest_of_a_configuration_ignores_its_order_and_uid():
    other = ShardConfig(uid="d", name="default", settings={"a": [2.5], "b": 1})
    assert config_digest(other) == config_digest(CONFIG)
    assert config_digest(msgspec.structs.replace(CONFIG, settings={"b": 2})) != config_digest(
        CONFIG
    )


def gang(name, n=3):
    return [a_bind(a_pod(f"{name}-{i}", group=name), NODE) for i in range(n)]


@pytest.fixture
def fitted(monkeypatch):
    """`fit` with room for the first operations of a decision and no more."""

    def run(ops, n_room):
        room = sum(len(msgspec.msgpack.encode(op)) for op in ops[:n_room])
        monkeypatch.setattr(turn_module, "OPS_BYTES_MAX", room)
        return fit(CycleDecision(ops=ops), {})

    return run


def test_operations_over_the_limit_wait_and_no_gang_is_split(fitted):
    ops = (*gang("a"), *gang("b"), *gang("c"))
    cut = fitted(ops, 8)
    assert cut.ops == ops[:6]
    assert cut.resume == "group-c"


def test_a_gang_that_comes_back_later_is_not_split_either(fitted):
    a, b = gang("a", 4), gang("b", 3)
    mixed = (*a[:2], *b, *a[2:])
    assert fitted((*mixed, *gang("c")), 8).ops == mixed
    assert fitted((*gang("d"), *mixed), 8).ops == tuple(gang("d"))


def test_a_gang_too_large_for_any_cycle_keeps_nobody_waiting(fitted):
    ops = (*gang("a", 9), *gang("b", 3))
    cut = fitted(ops, 5)
    assert cut.ops == ops[9:]
    assert fitted(tuple(gang("a", 9)), 5) == CycleDecision()


def pipelined(pod, *, moved=False):
    return Pipeline(
        pod_uid=pod.uid,
        namespace="ns",
        pod=pod.name,
        group_uid=f"group-{pod.group}",
        node="n1",
        node_uid="node-n1",
        action="consolidation",
        moved=moved,
    )


def test_victims_stay_with_their_beneficiary(fitted):
    victim = a_pod("v", group="victims")
    evict = an_evict(victim, NODE)
    moved = pipelined(victim, moved=True)
    own = pipelined(a_pod("o", group="other"))
    ops = (*gang("a", 4), evict, moved, own)
    assert fitted((*ops, *gang("b")), 8).ops == ops
    cut = fitted(ops, 6)
    assert cut.ops == ops[:4]
    assert cut.resume == "group-other"


def test_reasons_over_the_limit_lose_their_details(monkeypatch):
    decision = CycleDecision(reasons={f"g{i}": WHY for i in range(10)})
    monkeypatch.setattr(turn_module, "REASONS_BYTES_MAX", 350)
    short = fit(decision, {}).reasons
    assert list(short) == [f"g{i}" for i in range(10)]
    assert all(why == (Reason(code="over-limit"),) for why in short.values())
    held = {uid: Introduced(1, WHY) for uid in decision.reasons}
    assert fit(decision, held) == decision  # references cost nothing
    monkeypatch.setattr(turn_module, "REASONS_BYTES_MAX", 100)
    assert list(fit(decision, {}).reasons) == ["g0", "g1", "g2", "g3"]


@pytest.mark.parametrize(
    ("settings", "app"),
    [({}, "kai-resource-reservation"), ({"reservation_app": "other"}, "other")],
)
def test_request_for_shared_devices_says_how_reservation_pods_are_known(settings, app):
    cycle = run(CycleDecision(ops=(a_bind(a_pod(), NODE, gpu_groups=("g",)),)))
    first, *_ = to_records(cycle, partition=5, ingest_ms=T0, manner=Manner.of(settings))
    assert unpack(first.envelope).reservation_app == app


def test_records_of_a_cycle_are_its_requests_and_chunks():
    bind = a_bind(a_pod(), NODE, gpu_count=2, gpu_portion=100, supersedes="default/0/pod-p")
    evict = an_evict(a_pod("v"), NODE)
    pipe = pipelined(a_pod("w"))
    cycle = run(CycleDecision(ops=(bind, evict, pipe)))
    outs = to_records(
        cycle, partition=5, ingest_ms=T0, manner=Manner(marks_evicted=True, reservation_app="other")
    )
    assert [out.topic for out in outs] == ["bindrequests", "bindrequests", "decisions"]
    first, second = (unpack(out.envelope) for out in outs[:2])
    assert first.request_id == "default/1/pod-p"
    assert (first.not_after_ms, second.not_after_ms) == (T0 + 120_000, T0 + 30_000)
    assert (first.gpu_count, first.supersedes, first.epoch) == (2, "default/0/pod-p", 3)
    assert (second.action, second.beneficiary) == ("reclaim", "group-other")
    assert second.marks
    assert first.reservation_app == ""  # it shares nothing
    assert outs[0].partition == outs[1].partition  # that of their node
    assert (outs[2].key, outs[2].partition) == ("default", 5)
    assert outs[2].envelope.id == "default/1/0"
