"""Reservation pods hold no GPU of their own in any figure: their sharers do."""

from kai_es.kube.labels import APP_LABEL, GPU, GPU_MICRO, RESERVATION_APP
from kai_es.kube.objects import Pod, PodSpec
from kai_es.runtime.stranded import asked
from projectors.facts import NodeFacts, held


def a_pod(**labels):
    return Pod(
        uid="p", namespace="ns", name="p", labels=labels, spec=PodSpec(requests={GPU: GPU_MICRO})
    )


def test_reservation_pods_hold_no_gpu():
    reservation = a_pod(**{APP_LABEL: RESERVATION_APP})
    assert [asked(pod) for pod in (a_pod(), reservation)] == [GPU_MICRO, 0]
    node = NodeFacts(capacity=None, gpu_memory_mib=0)
    assert [held(pod, node)[2] for pod in (a_pod(), reservation)] == [GPU_MICRO, 0]
