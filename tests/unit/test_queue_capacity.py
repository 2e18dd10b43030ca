"""Facts of fairness §2.5 and §5."""

import pytest

from kai_es.kube.labels import GPU_MICRO, UNLIMITED
from kai_es.kube.objects import GpuRequest, PodSpec
from kai_es.scheduler import flags
from kai_es.scheduler.fairness.capacity import QueueRoom, Rule, over, over_capacity
from kai_es.scheduler.fairness.counters import gpu_on_node, memory_in_devices
from kai_es.scheduler.fairness.vectors import NOTHING, Resource
from kai_es.snapshot.shapes import Shape

FREE = (UNLIMITED,) * 3


@pytest.mark.parametrize(
    ("bound", "used", "requested", "resource"),
    [
        (FREE, (500, 1, 1), (1000, 1, 1), None),
        ((1000, 1, 1), NOTHING, (1000, 1, 1), None),
        ((1000, 1, 1), (500, 1, 1), (1000, 1, 1), Resource.CPU),
        ((1000, 1, 1), (500, 1, 1), (0, 1, 0), Resource.MEMORY),
        ((1000, 1, 1), (500, 1, 1), (0, 0, 1), Resource.GPU),
        ((1000, 1, 1), (1500, 1, 0), (0, 0, 1), None),
        ((5, 5, 5), (4, 4, 6), (1, 1, 0), None),
    ],
)
def test_first_resource_without_room(bound, used, requested, resource):
    assert over(bound, used, requested) == resource


def gpus(devices):
    return (0, 0, UNLIMITED if devices == -1 else round(devices * GPU_MICRO))


def refused(path, requested, *, preemptible=True):
    """(rule, queue) of a path of (limit, used, quota, non-preemptible), the leaf first."""
    rooms = [
        QueueRoom(gpus(quota), gpus(limit), gpus(used), gpus(fixed))
        for limit, used, quota, fixed in path
    ]
    refusal = over_capacity(
        tuple(range(len(path))), rooms.__getitem__, gpus(requested), preemptible=preemptible
    )
    return None if refusal is None else (refusal.rule, refusal.queue)


@pytest.mark.parametrize(
    ("path", "requested", "preemptible", "want"),
    [
        ([(3, 1, 0, 0)], 2, True, None),
        ([(3, 1, 0, 0)], 3, True, (Rule.OVER_LIMIT, 0)),
        ([(3, 2, 0, 0)] * 3, 1, True, None),
        ([(1, 0, 0, 0), (2, 1, 0, 0), (3, 3, 0, 0)], 1, True, (Rule.OVER_LIMIT, 2)),
        ([(-1, 0, 3, 1)], 10, True, None),
        ([(-1, 0, 3, 1)], 10, False, (Rule.OVER_QUOTA, 0)),
        ([(-1, 0, 1, 0), (-1, 0, 1, 1), (-1, 0, 3, 1)], 1, False, (Rule.OVER_QUOTA, 1)),
        ([(3, 3, 3, 3)], 1, False, (Rule.OVER_LIMIT, 0)),
        ([(-1, 9, -1, 9)], 9, False, None),
    ],
)
def test_path_to_the_root(path, requested, preemptible, want):
    assert refused(path, requested, preemptible=preemptible) == want


def test_memory_weighs_by_the_smallest_or_the_largest_device():
    assert memory_in_devices(2 * 8000, 16_000) == GPU_MICRO
    assert memory_in_devices(2 * 8000, 80_000) == GPU_MICRO // 5
    assert memory_in_devices(2 * 8000, None) == 0
    assert memory_in_devices(2000, 40_900) == 48_899  # field case 5: not 20 devices


def test_every_device_of_a_request_by_memory_is_charged():
    """Field case 6: 2 devices × 60 % of their memory is 1.2 devices, over a quota of 1."""
    requested = memory_in_devices(2 * 6000, 10_000) / GPU_MICRO
    assert refused([(-1, 0, 1, 0)], requested, preemptible=False) == (Rule.OVER_QUOTA, 0)
    assert on_node(GpuRequest(count=2, memory_mib=6000), 10_000) == 1_200_000


def on_node(gpu, device_mib, rules=flags.NONE):
    shape = Shape(PodSpec(requests={}, gpu=gpu, request_type="Regular"), 0)
    return gpu_on_node(gpu, quota=shape.quota, dra=shape.dra, device_mib=device_mib, flags=rules)


def test_what_a_request_weighs_on_a_node():
    assert on_node(GpuRequest(count=2, portion=1.0), 0) == 2 * GPU_MICRO
    assert on_node(GpuRequest(count=2, portion=0.5), 40_000) == GPU_MICRO
    assert on_node(GpuRequest(count=1, memory_mib=2000), 46_000) == 50_000
    assert on_node(GpuRequest(mig={"nvidia.com/mig-2g.10gb": 3}), 40_000) == 6 * GPU_MICRO
    claim = GpuRequest(dra={"gpu.example.com": 2})
    assert on_node(claim, 40_000) == 2 * GPU_MICRO
    assert on_node(claim, 40_000, flags.ALL) == 0
