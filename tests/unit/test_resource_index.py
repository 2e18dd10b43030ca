"""Rows of resources in the columns."""

from kai_es.scheduler.columns.resources import ResourceIndex
from tests.scheduler_world import World


def test_a_name_has_one_row_however_many_nodes_bring_it():
    index = ResourceIndex()
    assert index.add(["pods", "b", "a", "b"])
    assert not index.add(["a", "b"])
    assert index.names == ["cpu", "memory", "gpu", "pods", "a", "b"]


def test_many_nodes_at_once_share_their_dimensions():
    world = World()
    for number in range(3):
        world.node(f"n{number}", more={"ephemeral-storage": 1000})
    assert world.session().nodes.amounts.shape == (3, 5, 3)
