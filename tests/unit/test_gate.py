import msgspec
import pytest

from kai_es.cycle.gate import KINDS, PARTITIONS, config_problem, judge
from kai_es.events.decisions import Verdict
from kai_es.events.objects import KindAlive
from kai_es.events.snapshot import AliveSeen, KindListed, Parked
from kai_es.kube.objects import ShardConfig
from kai_es.snapshot.world import World
from tests.histories.builders import T0, Writer, fold, seen

CONFIG = seen(ShardConfig(uid="c", name="default", settings={}))
WATCHED = [kind.name for kind in KINDS if kind.watched]


def listed(kind, *, incarnation=0, served=True, partitions=PARTITIONS):
    return [
        KindListed(partition=p, kind=kind, rv=1, incarnation=incarnation, served=served)
        for p in partitions
    ]


def alive(at_ms=T0, *, silent=None, silent_ms=0, partitions=PARTITIONS, incarnation=0):
    kinds = tuple(KindAlive(k, 1, at_ms - (silent_ms if k == silent else 0)) for k in WATCHED)
    return [
        AliveSeen(partition=p, incarnation=incarnation, time=at_ms, kinds=kinds) for p in partitions
    ]


def all_listed(**changed):
    return [row for kind in KINDS for row in listed(kind.name, **changed.get(kind.name, {}))]


def gate_of(*rows, now_ms=T0, skew_ms=0):
    world = World()
    fold(world, *rows)
    return judge(world, shard="default", now_ms=now_ms, skew_ms=skew_ms)


def test_open_when_all_is_listed_and_alive():
    gate = gate_of(CONFIG, *all_listed(), *alive())
    assert (gate.verdict, gate.reasons) == (Verdict.OPEN, ())


def test_nothing_known_is_closed_and_says_why():
    gate = gate_of()
    assert gate.verdict is Verdict.CLOSED
    assert "kind-not-listed:Pod" in gate.reasons
    assert "no-config" in gate.reasons
    assert gate.reasons == tuple(sorted(gate.reasons))


def test_open_requests_of_another_scheduler_close_it():
    mark = alive()
    busy = [msgspec.structs.replace(row, others=2, time=T0 + 1) for row in mark]
    gate = gate_of(CONFIG, *all_listed(), *mark, *busy)
    assert (gate.verdict, gate.reasons) == (Verdict.CLOSED, ("another-scheduler",))
    again = [msgspec.structs.replace(row, time=T0 + 2) for row in mark]
    assert gate_of(CONFIG, *all_listed(), *busy, *again).verdict is Verdict.OPEN


def test_settings_that_make_no_sense_are_closed_and_explained():
    bad = seen(ShardConfig(uid="c", name="default", settings={"actions": ["dance"]}))
    gate = gate_of(bad, *all_listed(), *alive())
    assert (gate.verdict, gate.reasons) == (Verdict.CLOSED, ("bad-config",))
    world = World()
    fold(world, bad)
    assert "dance" in config_problem(world, "default")


@pytest.mark.parametrize(
    "changed",
    [
        {"Node": {"partitions": range(7)}},
        {"Node": {"incarnation": 0}, "Pod": {"incarnation": 1}},
    ],
    ids=["one partition misses", "one kind of the last incarnation"],
)
def test_closed_until_a_kind_is_listed_everywhere_in_this_incarnation(changed):
    gate = gate_of(CONFIG, *all_listed(**changed), *alive(incarnation=0))
    assert gate.verdict is Verdict.CLOSED
    assert "kind-not-listed:Node" in gate.reasons


@pytest.mark.parametrize(
    ("kind", "verdict"), [("PodGroup", Verdict.CLOSED), ("PriorityClass", Verdict.OPEN)]
)
def test_a_kind_the_api_server_does_not_serve(kind, verdict):
    gate = gate_of(CONFIG, *all_listed(**{kind: {"served": False}}), *alive())
    assert gate.verdict is verdict
    assert gate.reasons == ((f"kind-not-served:{kind}",) if verdict else ())


@pytest.mark.parametrize(
    ("age_ms", "verdict"),
    [
        (5_000, Verdict.OPEN),
        (5_001, Verdict.NO_EVICT),
        (30_000, Verdict.NO_EVICT),
        (30_001, Verdict.CLOSED),
    ],
)
def test_an_old_picture(age_ms, verdict):
    gate = gate_of(CONFIG, *all_listed(), *alive(), now_ms=T0 + age_ms)
    assert gate.verdict is verdict


def test_the_partition_furthest_behind_counts():
    rows = [*alive(T0 - 9_000), *alive(T0, partitions=range(7))]
    assert gate_of(CONFIG, *all_listed(), *rows).verdict is Verdict.NO_EVICT


@pytest.mark.parametrize(
    ("silent_ms", "verdict"),
    [(90_000, Verdict.OPEN), (90_001, Verdict.NO_EVICT), (300_001, Verdict.CLOSED)],
)
def test_a_silent_watch(silent_ms, verdict):
    gate = gate_of(CONFIG, *all_listed(), *alive(silent="Queue", silent_ms=silent_ms))
    assert gate.verdict is verdict
    assert gate.reasons == (("watch-age:Queue",) if verdict else ())


@pytest.mark.parametrize("skew_ms", [2_001, -2_001])
def test_skewed_clocks_evict_nothing(skew_ms):
    gate = gate_of(CONFIG, *all_listed(), *alive(), skew_ms=skew_ms)
    assert (gate.verdict, gate.reasons) == (Verdict.NO_EVICT, ("clock-skew",))


@pytest.mark.parametrize(("n_parked", "verdict"), [(99, Verdict.OPEN), (100, Verdict.CLOSED)])
def test_many_parked_versions(n_parked, verdict):
    parked = [
        Parked(kind="Queue", uid=f"u{n}", rv=1, incarnation=0, error="x") for n in range(n_parked)
    ]
    gate = gate_of(CONFIG, *all_listed(), *alive(), *parked)
    assert gate.verdict is verdict


def test_a_worse_finding_counts_and_all_are_named():
    gate = gate_of(*all_listed(), *alive(), now_ms=T0 + 6_000)
    assert gate.verdict is Verdict.CLOSED
    assert gate.reasons == ("no-config", "pipeline-age")


def test_the_verdict_does_not_hang_on_the_writer_of_the_test():
    world, writer = World(), Writer()
    fold(world, CONFIG, *all_listed(), writer=writer)
    fold(world, *alive(), writer=writer)
    assert judge(world, shard="default", now_ms=T0).verdict is Verdict.OPEN
    assert judge(world, shard="other", now_ms=T0).reasons == ("no-config",)
