import pytest

from kai_es.kube.objects import GpuRequest, PodSpec
from projectors.facts import (
    NO_NODE,
    asked,
    held,
    is_allocated,
    is_waiting,
    node_facts,
    queue_version,
)
from tests.books.story import GIB, GPU, a_node, a_pod, a_queue


def a_gpu_pod(request, whole=0):
    requests = {"cpu": 1000, "memory": GIB, "gpu": whole * GPU, "pods": 1}
    pod = a_pod(gpu_request=request)
    return type(pod)(
        uid=pod.uid,
        namespace=pod.namespace,
        name=pod.name,
        spec=PodSpec(requests=requests, gpu=request),
    )


NODE = node_facts(a_node(gpu_memory_mib=40_000, gpu_memory_synced=True))


@pytest.mark.parametrize(
    ("request_", "whole", "micro"),
    [
        (GpuRequest(), 0, 0),
        (GpuRequest(count=2, portion=1.0), 2, 2 * GPU),
        (GpuRequest(count=1, portion=0.5), 0, GPU // 2),
        (GpuRequest(count=2, portion=0.25), 0, GPU // 2),
        (GpuRequest(count=1, portion=0.335), 0, 340_000),  # two decimals, halves up
        (GpuRequest(count=1, memory_mib=10_000), 0, 250_000),
        (GpuRequest(count=2, memory_mib=10_001), 0, 520_000),  # 25.0025 % is 26 hundredths
        (GpuRequest(mig={"nvidia.com/mig-2g.10gb": 3}), 0, 6 * GPU),
        (GpuRequest(dra={"gpu.nvidia.com": 2}), 0, 2 * GPU),
    ],
)
def test_devices_held(request_, whole, micro):
    assert held(a_gpu_pod(request_, whole), NODE) == (1000, GIB, micro)


def test_share_of_memory_is_unknown_without_a_node():
    pod = a_gpu_pod(GpuRequest(count=1, memory_mib=10_000))
    assert held(pod, NO_NODE)[2] == 0
    assert asked(pod, gpu_memory_min_mib=0)[2] == 0


def test_waiting_share_of_memory_is_of_the_smallest_device():
    """Reference fairness.md §2.5: 2 × 8000 MiB against 16000 is one GPU."""
    pod = a_gpu_pod(GpuRequest(count=2, memory_mib=8_000))
    assert asked(pod, gpu_memory_min_mib=16_000)[2] == GPU


def test_mig_slices_are_capacity():
    node = a_node(gpus=1)
    allocatable = node.allocatable | {"nvidia.com/mig-1g.5gb": 3, "nvidia.com/mig-3g.20gb": 1}
    facts = node_facts(type(node)(uid="u", name="n", allocatable=allocatable))
    assert facts.capacity.amounts[2] == 7 * GPU


@pytest.mark.parametrize(
    ("fields", "state"),
    [
        ({}, "up"),
        ({"cordoned": True}, "drained"),
        ({"ready": False}, "down"),
        ({"ready": False, "cordoned": True}, "down"),
        ({"deleted_ms": 1}, "down"),
    ],
)
def test_states_of_a_node(fields, state):
    assert node_facts(a_node(**fields)).capacity.state == state


@pytest.mark.parametrize(
    ("fields", "allocated", "waiting"),
    [
        ({}, False, True),
        ({"gated": True}, False, False),
        ({"deleted_ms": 5}, False, False),
        ({"phase": "Failed"}, False, False),
        ({"node": "n1"}, True, False),
        ({"node": "n1", "phase": "Running", "deleted_ms": 5}, True, False),
        ({"node": "n1", "phase": "Succeeded"}, False, False),
    ],
)
def test_which_pods_hold_and_which_wait(fields, allocated, waiting):
    pod = a_pod(**fields)
    assert (is_allocated(pod), is_waiting(pod)) == (allocated, waiting)


def test_units_of_a_queue():
    version = queue_version(a_queue("q", gpu=1.5, cpu=-1, memory=2.0), ("root", "q"))
    assert version.quota == (None, 2_000_000, 1_500_000)
    assert queue_version(a_queue("q", memory=-2.0), ()).quota[1] is None
