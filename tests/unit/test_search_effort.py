"""How much a search for victims tries, and whom a cycle leaves alone."""

import dataclasses
import math

import pytest

from kai_es.events.decisions import Bind, Evict, Reason
from kai_es.scheduler.config import Config
from kai_es.scheduler.decide import decide
from kai_es.scheduler.hooks import SessionHooks
from kai_es.scheduler.solve.budget import SearchBudgets
from kai_es.snapshot.effective import GroupState
from tests.scheduler_world import NOW_MS, World, a_spec

CONFIG = Config(withheld=(), node_pool_key="")


def decided(world, config=CONFIG):
    hooks = SessionHooks()
    return decide(world.snapshot, config.shard("test"), world.inputs(), hooks), hooks.counters


@pytest.mark.parametrize("n", [2, 8])
def test_trials_follow_the_logarithm_of_the_tasks(n):
    """Field case 19: a gang of n nodes, which 8 n pods have to leave."""
    world = World()
    world.queue("dept")
    world.queue("q", parent="dept", quota=0)
    world.queue("other", parent="dept", quota=8 * n)
    for i in range(n):
        world.node(f"n{i:02}")
        for k in range(8):
            world.group(f"low{i}-{k}", f"n{i:02}")
    world.group("high", *[""] * n, queue="other", spec=a_spec(gpus=8))
    decision, counters = decided(world)
    assert sum(isinstance(op, Evict) for op in decision.ops) == 8 * n
    assert counters["scenarios"] <= 2 * math.ceil(math.log2(n)) + 2


@pytest.mark.parametrize(("ms", "n_served"), [(40, 1), (60, 2)])
def test_simulations_count_by_the_tasks_they_move(ms, n_served):
    """Five tasks that move are as much again as the simulation: two units, 20 ms each."""
    world = World()
    world.queue("dept")
    world.queue("low", parent="dept", quota=0)
    world.queue("high", parent="dept", quota=8)
    for name in ("m", "n"):
        world.node(name, gpus=4)
        world.group(f"gang-{name}", *[name] * 4, queue="low")
        world.group(f"wants-{name}", "", queue="high", spec=a_spec(gpus=4))
    budgets = SearchBudgets(max_action={"reclaim": ms})
    decision, _ = decided(world, dataclasses.replace(CONFIG, budgets=budgets))
    assert sum(isinstance(op, Evict) for op in decision.ops) == 4 * n_served


@pytest.mark.parametrize(
    "state",
    [
        GroupState(held=Reason(code="group-not-seen", args={"stamped": 2, "generation": 1})),
        GroupState(backoff=(("webhook-denied", NOW_MS + 5000, 1),)),
    ],
    ids=["held", "refused"],
)
def test_a_group_that_must_wait_lets_others_by(state):
    """Field cases 29 and 35: one slot, and who is first in order must not have it now."""
    world = World()
    world.queue("q")
    world.node("n", gpus=1)
    world.group("first", "", state=state)
    world.group("second", "")
    decision, _ = decided(world)
    assert [(type(op), op.pod) for op in decision.ops] == [(Bind, "second-0")]
    assert "uid-first" in decision.reasons


def test_each_eviction_counts_its_gang_once():
    """Field case 21: four pods go together, four evictions that say so."""
    world = World()
    world.queue("dept")
    world.queue("low", parent="dept", quota=0)
    world.queue("high", parent="dept", quota=4)
    world.node("n", gpus=4)
    world.group("gang", *["n"] * 4, queue="low")
    world.group("wants", "", queue="high", spec=a_spec(gpus=4))
    evictions = [op for op in decided(world)[0].ops if isinstance(op, Evict)]
    assert [op.gang_size for op in evictions] == [4] * 4
