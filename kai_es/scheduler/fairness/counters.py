"""What tasks weigh in the books of their queues.

Three counters exist per queue, each over all jobs below it (fairness §2.7):

* A, *allocated*: tasks that are Allocated, Binding, Bound or Running, at what they were granted;
* N, *non-preemptible*: the part of A that belongs to jobs that nobody may displace;
* Req, *requested*: A, and Pending tasks at what they ask for.

Tasks in every other status weigh nothing: a pod being deleted stops counting at once, a gated one
does not count yet. During a session A and N follow every trial change; Req, fair shares and usage
stay as they were when it opened.

GPUs are counted differently from place to place (fairness §2.5), since a request by device memory
has no share of a device before it is placed; the functions here name the places.

Reference: pkg/scheduler/plugins/proportion/{proportion.go,utils/utils.go}.
"""

from kai_es.kube.labels import GPU_MICRO
from kai_es.kube.objects import GpuRequest
from kai_es.scheduler.flags import DRA_WEIGHS_NOTHING, Flags


def memory_in_devices(memory_mib: int, device_mib: int | None) -> int:
    """The share of devices that an amount of device memory is, in gpu_micro, rounded down.

    Args:
        memory_mib: over all devices of the request.
        device_mib: memory of the device to weigh by: the smallest of the shard for requests and
            queue order (the most expensive reading), the largest for the capacity check of a job
            (the cheapest, so that it refuses only what fits nowhere); None = no device is known,
            such requests weigh nothing.
    """
    if device_mib is None or device_mib <= 0:
        return 0
    return memory_mib * GPU_MICRO // device_mib


def gpu_on_node(gpu: GpuRequest, *, quota: int, dra: int, device_mib: int, flags: Flags) -> int:
    """What a request weighs in the capacity check of one node, in gpu_micro.

    Args:
        gpu: the request.
        quota: what it weighs wherever it goes, memory aside: devices, claims, MIG slices.
        dra: the part of `quota` that comes from resource claims.
        device_mib: memory of each device of the node.
        flags: rule flags in force.
    """
    claims = 0 if DRA_WEIGHS_NOTHING in flags else dra  # compat: node_info.go
    if gpu.mig:
        return quota - dra + claims
    memory = gpu.memory_mib or int(gpu.portion * device_mib)
    if gpu.memory_mib <= 0 and gpu.portion >= 1.0:
        return gpu.count * GPU_MICRO + claims
    if device_mib <= 0:
        return claims
    hundredths = -(-100 * memory // device_mib)
    return gpu.count * hundredths * (GPU_MICRO // 100) + claims
