import pytest

from kai_es.events.decisions import Bind, Evict, Pipeline
from kai_es.kube.objects import PriorityClass
from kai_es.scheduler import flags
from kai_es.scheduler.config import Config, PluginOption
from kai_es.scheduler.decide import decide
from kai_es.scheduler.reasons.render import pod_group_message
from kai_es.snapshot.status import TaskStatus
from tests.scheduler_world import World, a_spec

CONFIG = Config(node_pool_key="", withheld=())
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


def a_term(app, key="host"):
    return {"topologyKey": key, "labelSelector": {"matchLabels": {"app": app}}}


def apart_from(app):
    return {"podAntiAffinity": {REQUIRED: [a_term(app)]}}


def near(app, key="host"):
    return {"podAffinity": {REQUIRED: [a_term(app, key)]}}


def a_world(n_nodes=2, gpus=2):
    world = World()
    world.queue("q")
    for n in range(n_nodes):
        world.node(f"n{n}", gpus, labels={"host": f"n{n}", "zone": f"z{n // 2}"})
    return world


def decided(world, rules=flags.NONE, config=CONFIG):
    return decide(world.snapshot, config.shard("s"), world.inputs(rules))


def ops(decision):
    return {f"{type(op).__name__.lower()} {op.pod}@{op.node}" for op in decision.ops}


def test_pods_that_must_be_apart_are_spread():
    world = a_world(3)
    spec = a_spec(1, affinity=apart_from("a"))
    world.group("g", "", "", "", spec=spec, labels={"app": "a"})
    assert ops(decided(world)) == {"bind g-0@n0", "bind g-1@n1", "bind g-2@n2"}


def test_a_gang_without_enough_domains_waits_and_says_why():
    world = a_world(2)
    world.group("g", "", "", "", spec=a_spec(1, affinity=apart_from("a")), labels={"app": "a"})
    decision = decided(world)
    assert decision.ops == ()
    text = pod_group_message(decision.reasons["uid-g"])
    assert "2 node(s) didn't match pod anti-affinity rules" in text


def test_pods_keep_others_away_that_have_no_rule():
    world = a_world(2, gpus=4)
    world.group("guard", "n0", spec=a_spec(1, affinity=apart_from("a")))
    world.group("g", "", labels={"app": "a"})
    assert ops(decided(world)) == {"bind g-0@n1"}


def test_the_first_of_a_series_goes_anywhere_and_the_others_to_it():
    world = a_world(4, gpus=1)
    world.group("g", "", "", spec=a_spec(1, affinity=near("a", "zone")), labels={"app": "a"})
    assert ops(decided(world)) == {"bind g-0@n0", "bind g-1@n1"}


def test_a_pod_waits_for_one_that_leaves_but_does_not_start_beside_it():
    world = a_world(1)
    world.group("old", "n0", labels={"app": "a"}, status=TaskStatus.RELEASING)
    world.group("g", "", spec=a_spec(1, affinity=apart_from("a")))
    assert ops(decided(world)) == {"pipeline g-0@n0"}
    assert ops(decided(world, {flags.LEAVING_PODS_STAY})) == set()


def test_a_pod_that_must_be_apart_from_its_victim_displaces_it():
    world = a_world(1, gpus=1)
    world.group("low", "n0", labels={"app": "a"}, min_member=1)
    spec = a_spec(1, affinity=apart_from("a"))
    world.snapshot.set_priority_class(a_class("high", 100), rv=1)
    world.group("high", "", spec=spec, priority_class="high", preemptibility="non-preemptible")
    found = {type(op) for op in decided(world).ops}
    assert found == {Evict, Pipeline}
    assert decided(world, {flags.LEAVING_PODS_STAY}).ops == ()


def a_class(name, value):
    return PriorityClass(uid=name, name=name, value=value)


def test_host_ports_are_taken_once():
    world = a_world(2)
    spec = a_spec(1, host_ports=(("TCP", "", 80),))
    world.group("g", "", "", spec=spec)
    assert ops(decided(world)) == {"bind g-0@n0", "bind g-1@n1"}
    world.group("h", "", spec=a_spec(0, host_ports=(("TCP", "10.0.0.1", 80),)))
    world.group("i", "", spec=a_spec(0, host_ports=(("UDP", "", 80), ("TCP", "", 81))))
    decision = decided(world)
    assert {op.pod for op in decision.ops if isinstance(op, Bind)} == {"g-0", "g-1", "i-0"}
    text = pod_group_message(decision.reasons["uid-h"])
    assert "2 node(s) didn't have free ports for the requested pod ports" in text


@pytest.mark.parametrize(("weight", "node"), [(10, "n1"), (-10, "n0")])
def test_preferred_neighbours_weigh_a_million_a_point(weight, node):
    world = a_world(2, gpus=4)
    world.group("base", "n1", "n1", "n1", labels={"app": "a"})
    kind = "podAffinity" if weight > 0 else "podAntiAffinity"
    wish = {kind: {PREFERRED: [{"weight": abs(weight), "podAffinityTerm": a_term("a")}]}}
    world.group("g", "", spec=a_spec(1, affinity=wish))
    plugins = (*CONFIG.plugins, PluginOption(name="podaffinity"))
    assert ops(decided(world, config=Config(node_pool_key="", plugins=plugins))) == {
        f"bind g-0@{node}"
    }


def test_a_job_that_others_keep_away_by_its_labels_hides_no_job_with_other_labels():
    world = a_world(2, gpus=1)
    world.group(
        "guard", "n0", spec=a_spec(0, affinity=apart_from("a")), preemptibility="non-preemptible"
    )
    world.group("low", "n0")
    world.group("other", "n1", preemptibility="non-preemptible")
    world.snapshot.set_priority_class(a_class("high", 90), rv=1)
    for name, app in (("x", "a"), ("y", "b")):
        world.group(name, "", labels={"app": app}, priority_class="high")
    assert {(type(op), op.pod) for op in decided(world).ops} == {
        (Evict, "low-0"),
        (Pipeline, "y-0"),
    }
    assert decided(world, {flags.SIGNATURES_WITHOUT_LABELS}).ops == ()
