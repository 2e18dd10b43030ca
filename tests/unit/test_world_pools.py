import pytest

from kai_es.events.decisions import ReignEnd
from kai_es.kube.objects import ShardConfig
from kai_es.snapshot import checkpoint
from kai_es.snapshot.pools import Selector, shard_of
from kai_es.snapshot.world import World
from tests.histories.builders import (
    T0,
    Writer,
    a_bind,
    a_cycle,
    a_group,
    a_node,
    a_pod,
    a_reign,
    bound,
    fold,
    gone,
    refused,
    seen,
)

POOL = "kai.scheduler/node-pool"
DEFAULT = ShardConfig(uid="c1", name="default", settings={"node_pool_value": ""})
OTHER = ShardConfig(uid="c2", name="other", settings={"node_pool_value": "b"})
MOVED = {"labels": {POOL: "b"}}


def a_world(*rows):
    world, writer = World(), Writer()
    fold(world, seen(DEFAULT), seen(OTHER), a_reign(), a_reign(shard="other"), writer=writer)
    fold(world, seen(a_node()), seen(a_group()), seen(a_pod()), *rows, writer=writer)
    return world, writer


def closed(world):
    return world.snapshot.nodes.get("n1").closed


def held(world):
    reason = world.snapshot.groups.get(("ns", "g")).state.held
    return "" if reason is None else reason.code


def test_a_node_that_changes_its_pool_waits_until_the_old_shard_has_seen_it():
    world, writer = a_world()
    fold(world, seen(a_node(**MOVED), rv=2), writer=writer)
    assert closed(world) == ("moving",)
    fold(world, a_cycle(1, offset=1), writer=writer)  # saw the batch before the move
    assert closed(world) == ("moving",)
    outcome = fold(world, a_cycle(2, offset=2), writer=writer)
    assert closed(world) == ()
    assert outcome.changed


@pytest.mark.parametrize(
    "end",
    [refused(1, a_pod()), bound(1, a_pod(), a_node()), gone(a_pod()), seen(a_pod(node="n2"), rv=2)],
)
def test_it_waits_for_open_requests_of_the_old_shard(end):
    world, writer = a_world(a_cycle(1, a_bind(a_pod(), a_node())))
    fold(world, seen(a_node(**MOVED), rv=2), writer=writer)
    fold(world, a_cycle(2, offset=2), writer=writer)
    assert closed(world) == ("moving",)
    fold(world, end, writer=writer)
    assert closed(world) == ()


def test_an_ended_reign_lets_go():
    world, writer = a_world()
    fold(world, seen(a_node(**MOVED), rv=2), writer=writer)
    fold(world, ReignEnd(shard="default", epoch=1), writer=writer)
    assert closed(world) == ()


def test_a_node_that_comes_back_is_free_at_once():
    world, writer = a_world()
    fold(world, seen(a_node(**MOVED), rv=2), writer=writer)
    fold(world, seen(a_node(), rv=3), writer=writer)
    assert closed(world) == ()


def test_other_labels_move_nothing():
    world, writer = a_world()
    fold(world, seen(a_node(labels={"x": "y"}), rv=2), writer=writer)
    assert closed(world) == ()


def test_a_node_that_gets_to_another_shard_by_a_pool_without_one_waits_as_well():
    world, writer = a_world()
    fold(world, seen(a_node(labels={POOL: "nobody"}), rv=2), writer=writer)
    fold(world, seen(a_node(**MOVED), rv=3), writer=writer)
    assert closed(world) == ("moving",)
    fold(world, a_cycle(1, offset=2), writer=writer)
    assert closed(world) == ()


def test_a_group_that_changes_its_pool_is_held():
    world, writer = a_world(a_cycle(1, a_bind(a_pod(), a_node())))
    fold(world, seen(a_group(**MOVED), rv=2), writer=writer)
    fold(world, a_cycle(2, offset=2, now_ms=T0 + 1), writer=writer)
    assert held(world) == "moving"
    fold(world, refused(1, a_pod()), writer=writer)
    assert held(world) == ""


def test_moves_are_in_checkpoints_and_die_with_their_object():
    world, writer = a_world()
    fold(world, seen(a_node(**MOVED), rv=2), writer=writer)
    again = checkpoint.decode(checkpoint.encode(world).payload)
    assert closed(again) == ("moving",)
    assert again.pools.moves == world.pools.moves
    fold(world, gone(a_node()), writer=writer)
    assert world.pools.moves == {}


@pytest.mark.parametrize(
    ("selector", "labels", "selected"),
    [
        (Selector("s", POOL, "a"), {POOL: "a"}, True),
        (Selector("s", POOL, "a"), {}, False),
        (Selector("s", POOL, ""), {}, True),
        (Selector("s", POOL, ""), {POOL: "a"}, False),
        (Selector("s", "", ""), {POOL: "a"}, True),
    ],
)
def test_selection(selector, labels, selected):
    assert shard_of(labels, [selector]) == ("s" if selected else "")
