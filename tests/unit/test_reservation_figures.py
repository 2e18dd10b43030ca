"""Reservation pods hold no GPU of their own in any figure: their sharers do."""

from kai_es.kube.labels import GPU, GPU_MICRO
from kai_es.kube.objects import Pod, PodSpec
from kai_es.runtime.progress import overcommitted
from kai_es.runtime.stranded import asked
from kai_es.snapshot.world import World
from projectors.facts import NodeFacts, held
from tests.histories import builders
from tests.histories.builders import a_group, a_node, fold, seen


def a_pod(**fields):
    return Pod(uid="p", namespace="ns", name="p", spec=PodSpec(requests={GPU: GPU_MICRO}), **fields)


def test_reservation_pods_hold_no_gpu():
    """Whatever their label `app`; a pod of a group with such a label is charged."""
    reservation = a_pod(labels={"app": "my-reservations"}, gpu_groups=("dev",))
    assert asked(a_pod(gpu_groups=("dev",), group="pg")) == GPU_MICRO
    assert [asked(pod) for pod in (a_pod(), reservation)] == [GPU_MICRO, 0]
    node = NodeFacts(capacity=None, gpu_memory_mib=0)
    assert [held(pod, node)[2] for pod in (a_pod(), reservation)] == [GPU_MICRO, 0]


def test_a_node_is_not_overcommitted_by_a_reservation_whose_sharers_have_gone():
    reservation = builders.a_pod(
        "res", group="", node="n1", phase="Running", gpus=1, gpu_groups=("dev",)
    )
    whole = builders.a_pod(node="n1", phase="Running", gpus=1)
    world, writer = World(), builders.Writer()
    rows = (a_node(gpus=1), a_group(), reservation, whole)
    fold(world, *map(seen, rows), writer=writer)
    assert overcommitted(world) == []
    second = builders.a_pod("two", node="n1", phase="Running", gpus=1)
    fold(world, seen(second), writer=writer)
    assert overcommitted(world) == ["n1"]
