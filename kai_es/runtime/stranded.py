"""How much of the GPUs is given out, and how much of the rest nobody waiting could use."""

from typing import NamedTuple

from kai_es.kube.labels import GPU, GPU_MICRO
from kai_es.kube.objects import Node, Pod
from kai_es.snapshot.shapes import HUNDREDTH, portion_hundredths
from kai_es.snapshot.status import ACTIVE_USED, TaskStatus
from kai_es.snapshot.world import World


class GpuFigures(NamedTuple):
    """GPUs of a cluster, in gpu_micro.

    total, allocated: whole cluster. stranded: idle on nodes with fewer idle GPUs than the
    smallest waiting GPU pod asks for, 0 if none waits.
    smallest_waiting: that pod's request, 0 if none waits.
    """

    total: int
    allocated: int
    stranded: int
    smallest_waiting: int

    def text(self) -> str:
        """One line."""
        rate = 100 * self.allocated / self.total if self.total else 0.0
        return (
            f"GPUs: {self.allocated / GPU_MICRO:g} of {self.total / GPU_MICRO:g} allocated "
            f"({rate:.1f} %), {self.stranded / GPU_MICRO:g} stranded (idle on nodes too small for "
            f"the smallest waiting GPU pod)"
        )


def gpu_figures(world: World) -> GpuFigures:
    """The figures of a world."""
    idle: dict[str, int] = {}
    total = 0
    for entry in world.objects.live.get("Node", {}).values():
        assert isinstance(entry.obj, Node)
        idle[entry.obj.name] = entry.obj.allocatable.get(GPU, 0)
        total += idle[entry.obj.name]
    allocated, waiting = 0, []
    for row in world.snapshot.pods.values():
        amount = row.state.gpu_portion * row.state.gpu_count * HUNDREDTH or asked(row.pod)
        if row.state.status in ACTIVE_USED and row.state.node in idle:
            allocated += amount
            idle[row.state.node] -= amount
        elif row.state.status == TaskStatus.PENDING and amount:
            waiting.append(amount)
    smallest = min(waiting, default=0)
    stranded = sum(amount for amount in idle.values() if 0 < amount < smallest)
    return GpuFigures(total, allocated, stranded, smallest)


def asked(pod: Pod) -> int:
    """What a pod asks of GPUs, shares included, in gpu_micro; of device memory nothing is known."""
    if pod.reserves_device:
        return 0  # it only marks a device as shared; its sharers hold it
    gpu = pod.spec.gpu
    if pod.spec.request_type == "Fraction":
        return portion_hundredths(gpu.portion) * gpu.count * HUNDREDTH
    return pod.spec.requests.get(GPU, 0)
