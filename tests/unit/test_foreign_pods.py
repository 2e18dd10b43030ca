"""The scheduler name decides who owns a pod; a foreign pod only uses capacity."""

import pytest

from kai_es.events.decisions import Bind, Evict
from kai_es.scheduler import flags
from kai_es.scheduler.config import Config
from kai_es.scheduler.decide import decide
from tests.scheduler_world import World, a_spec

CONFIG = Config(node_pool_key="", withheld=())


def decided(world, rules=flags.NONE, config=CONFIG):
    return decide(world.snapshot, config.shard("s"), world.inputs(rules)).ops


@pytest.fixture
def world():
    world = World()
    world.queue("q")
    world.node("n1", 2)
    return world


def test_foreign_pod_is_not_bound(world):
    world.group("mine", "", spec=a_spec(1, scheduler="kai-scheduler"))
    world.group("foreign", "", spec=a_spec(1, scheduler="default-scheduler"))
    assert [op.pod for op in decided(world)] == ["mine-0"]


def test_foreign_pod_is_bound_under_compat(world):
    world.group("foreign", "", spec=a_spec(1, scheduler="default-scheduler"))
    rules = frozenset({flags.SCHEDULER_IGNORED})
    assert [op.pod for op in decided(world, rules)] == ["foreign-0"]


def test_name_is_that_of_the_configuration(world):
    world.group("foreign", "", spec=a_spec(1, scheduler="other"))
    config = Config(node_pool_key="", withheld=(), scheduler_name="other")
    assert [op.pod for op in decided(world, config=config)] == ["foreign-0"]


def test_foreign_pod_uses_capacity_and_is_never_evicted(world):
    foreign = a_spec(2, scheduler="default-scheduler")
    world.group("foreign", "n1", spec=foreign, priority_class="low")
    world.group("mine", "", spec=a_spec(1, scheduler="kai-scheduler"), priority_class="high")
    assert not [op for op in decided(world) if isinstance(op, Bind | Evict)]


def test_gang_does_not_count_on_foreign_members(world):
    """One of two members has another scheduler: the gang is not complete."""
    world.group("gang", "", spec=a_spec(1, scheduler="kai-scheduler"), min_member=2)
    world.pod("gang-1", "gang", "", spec=a_spec(1, scheduler="default-scheduler"))
    assert not decided(world)
