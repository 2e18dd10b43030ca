"""Reservation pods hold no GPU of their own in any figure: their sharers do."""

from kai_es.kube.labels import GPU, GPU_MICRO
from kai_es.kube.objects import Pod, PodSpec
from kai_es.runtime.stranded import asked
from projectors.facts import NodeFacts, held


def a_pod(**fields):
    return Pod(uid="p", namespace="ns", name="p", spec=PodSpec(requests={GPU: GPU_MICRO}), **fields)


def test_reservation_pods_hold_no_gpu():
    """Whatever their label `app`; a pod of a group with such a label is charged."""
    reservation = a_pod(labels={"app": "my-reservations"}, gpu_groups=("dev",))
    assert asked(a_pod(gpu_groups=("dev",), group="pg")) == GPU_MICRO
    assert [asked(pod) for pod in (a_pod(), reservation)] == [GPU_MICRO, 0]
    node = NodeFacts(capacity=None, gpu_memory_mib=0)
    assert [held(pod, node)[2] for pod in (a_pod(), reservation)] == [GPU_MICRO, 0]
