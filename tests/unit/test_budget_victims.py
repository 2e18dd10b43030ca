"""A victim that its disruption budget keeps is left alone for a while; others give way."""

import pytest

from kai_es.events.decisions import Bind, Evict
from kai_es.kube.objects import PriorityClass
from kai_es.scheduler.config import Config, ConfigError, parse_settings
from kai_es.scheduler.config_file import parse_yaml
from kai_es.scheduler.decide import decide
from kai_es.snapshot.effective import GroupState
from tests.scheduler_world import NOW_MS, World

CONFIG = Config(node_pool_key="", withheld=())


def kept(until_ms):
    return GroupState(backoff=(("budget", until_ms, 1),))


def victims(**states):
    """Who gives way to a pod of high priority, of the groups a and b on full nodes."""
    world = World()
    world.queue("q")
    world.snapshot.set_priority_class(PriorityClass(uid="c", name="high", value=100), rv=1)
    for name, node in (("a", "n0"), ("b", "n1")):
        world.node(node, 1)
        world.group(name, node, state=states.get(name, GroupState()))
    world.group("high", "", priority_class="high", preemptibility="non-preemptible")
    decision = decide(world.snapshot, CONFIG.shard("s"), world.inputs())
    return [op.pod for op in decision.ops if isinstance(op, Evict)]


def test_kept_victim_is_passed_over_until_its_time_has_come():
    assert victims() == ["b-0"]
    assert victims(b=kept(NOW_MS + 5_000)) == ["a-0"]
    assert victims(a=kept(NOW_MS + 5_000), b=kept(NOW_MS + 5_000)) == []
    assert victims(b=kept(NOW_MS)) == ["b-0"]


def test_budget_keeps_nobody_from_being_placed():
    world = World()
    world.queue("q")
    world.node("n0", 1)
    world.group("a", "", state=kept(NOW_MS + 5_000))
    decision = decide(world.snapshot, CONFIG.shard("s"), world.inputs())
    assert [op.pod for op in decision.ops if isinstance(op, Bind)] == ["a-0"]


def test_setting_comes_from_the_file_and_from_rows():
    assert parse_yaml("actions: allocate\neviction: budget\n")["eviction"] == "budget"
    assert parse_settings({}).eviction == "delete"
    assert parse_settings({"eviction": "budget"}).settings()["eviction"] == "budget"
    with pytest.raises(ConfigError, match=r"line 2: configuration.eviction is 'never'"):
        parse_yaml("actions: allocate\neviction: never\n")
