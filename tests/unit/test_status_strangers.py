"""Pods that name a sub-group which is not there, seen by a status writer that begins to lead."""

from kai_es.kube.objects import SubGroup
from kai_es.snapshot.world import World
from kai_es.status.planner import Planner
from tests.histories.builders import a_group, a_pod, fold, seen


def explained(*pods, **fields):
    world = World()
    fold(world, seen(a_group(**fields)), *map(seen, pods))
    return list(Planner(world).everything().explained)


def test_their_groups_are_looked_at():
    lost = a_pod("lost", sub_group="nose")
    assert explained(a_pod()) == []
    assert explained(a_pod(), lost) == ["group-g"]
    assert explained(lost, sub_groups=(SubGroup(name="nose"),)) == []
    assert explained(a_pod(), sub_groups=(SubGroup(name="nose"),)) == ["group-g"]


def test_those_that_have_ended_are_not():
    assert explained(a_pod(sub_group="nose", phase="Succeeded")) == []
