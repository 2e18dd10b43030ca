"""Pods whose node is gone: nothing can be won by evicting them."""

from kai_es.events.decisions import Evict, Pipeline
from kai_es.kube.objects import PriorityClass
from kai_es.scheduler.config import Config
from kai_es.scheduler.decide import decide
from tests.scheduler_world import World

CONFIG = Config(node_pool_key="", withheld=())


def evictions(*nodes, min_member):
    """Pods of a low group on these nodes that give way to a high-priority one."""
    world = World()
    world.queue("q")
    world.node("n0", 1)
    world.snapshot.set_priority_class(PriorityClass(uid="c", name="high", value=100), rv=1)
    world.group("low", *nodes, min_member=min_member)
    world.group("high", "", priority_class="high", preemptibility="non-preemptible")
    decision = decide(world.snapshot, CONFIG.shard("s"), world.inputs())
    assert "high-0" in {op.pod for op in decision.ops if isinstance(op, Pipeline)}
    return [op.pod for op in decision.ops if isinstance(op, Evict)]


def test_only_pods_that_are_somewhere_are_evicted():
    assert evictions("gone", "n0", min_member=2) == ["low-1"]
    assert evictions("n0", "gone", "gone", min_member=3) == ["low-0"]
    assert evictions("gone", "n0", min_member=1) == ["low-1"]
