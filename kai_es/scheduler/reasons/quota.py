"""Texts of queue limits and quotas, and the numbers that go with them.

Reference: pkg/scheduler/api/unschedule_info.go (scheduler-core §12.2, fairness §5).
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

from kai_es.events.decisions import Arg
from kai_es.kube.labels import GPU_MICRO, UNLIMITED
from kai_es.scheduler.fairness.vectors import NOTHING, Resource, Vector
from kai_es.scheduler.reasons.amounts import CORE, GIGABYTE, humanized, raw_devices

NVIDIA_GPU: Final = "nvidia.com/gpu"


class _Words(NamedTuple):
    """How a resource is called in these texts."""

    unit: int
    limit_of: str
    amount_of: str
    requested: str


_WORDS: Final[Mapping[Resource, _Words]] = {
    Resource.GPU: _Words(GPU_MICRO, "GPUs", "GPUs", "GPUs"),
    Resource.CPU: _Words(CORE, "CPU cores", "cores", "CPU cores"),
    Resource.MEMORY: _Words(GIGABYTE, "memory", "GB", "GB memory"),
}


def over_limit_text(
    queue: str, resource: Resource, *, limit: int, allocated: int, requested: int
) -> str:
    """A queue would be above its limit.

    Args:
        queue: display name.
        resource: in which.
        limit: of the queue.
        allocated: of it.
        requested: by the job.
    """
    words = _WORDS[resource]
    shown = [f"{humanized(n, words.unit)} {words.amount_of}" for n in (limit, allocated, requested)]
    return (
        f"{queue} quota has reached the allowable limit of {words.limit_of}. "
        f"Limit is {shown[0]}, currently {shown[1]} allocated and workload requested {shown[2]}"
    )


def over_quota_text(
    queue: str, resource: Resource, *, quota: int, allocated: int, requested: int
) -> str:
    """A job that nobody may displace would take a queue above its quota.

    Args:
        queue: display name.
        resource: in which.
        quota: of the queue.
        allocated: to non-preemptible pods.
        requested: by the job.
    """
    words = _WORDS[resource]
    asked = raw_devices(requested) if resource is Resource.GPU else humanized(requested, words.unit)
    has, used = humanized(quota, words.unit), humanized(allocated, words.unit)
    return (
        f"Non-preemptible workload is over quota. Workload requested {asked} {words.requested}, "
        f"but {queue} quota is {has} {words.amount_of}, while {used} {words.amount_of} are already "
        "allocated for non-preemptible pods. Use a preemptible workload to go over quota."
    )


class Asked(NamedTuple):
    """What a job asks for where a queue refuses it.

    queue:     name of the queue object; it may be an ancestor of the job's.
    requested: by the pods that are to be placed now.
    """

    queue: str
    requested: Vector

    def args(self) -> dict[str, Arg]:
        """As arguments of a reason."""
        return {"queue_name": self.queue, **dict(zip(_ASKED, self.requested, strict=True))}

    @classmethod
    def of(cls, args: Mapping[str, Arg]) -> "Asked | None":
        """From the arguments of a reason, None = it has none of them."""
        if "queue_name" not in args:
            return None
        cpu, memory, gpu = (int(args[name]) for name in _ASKED)
        return cls(str(args["queue_name"]), (cpu, memory, gpu))


_ASKED: Final = ("asked_cpu", "asked_memory", "asked_gpu")


class QuotaNumbers(NamedTuple):
    """What the details of a refusal show of the queue that refused."""

    deserved: Vector
    limit: Vector
    allocated: Vector
    non_preemptible: Vector
    request: Vector


def quota_details(asked: Asked, queue: QuotaNumbers, *, fixed: bool) -> dict[str, object]:
    """`details` of a pod group's scheduling condition: the queue that refused, in quantities.

    Args:
        asked: by the job.
        queue: numbers of the queue.
        fixed: nobody may displace the job.
    """
    return {
        "queueDetails": {
            "name": asked.queue,
            "queueRequestedResources": quantities(queue.request),
            "queueDeservedResources": quantities(queue.deserved),
            "queueAllocatedResources": quantities(queue.allocated),
            "queueAllocatedNonPreemptibleResources": quantities(queue.non_preemptible),
            "queueResourceLimits": quantities(queue.limit),
            "podGroupRequestedResources": quantities(asked.requested),
            "podGroupRequestedNonPreemptibleResources": quantities(
                asked.requested if fixed else NOTHING
            ),
        }
    }


def quantities(vector: Vector) -> dict[str, str]:
    """A vector as Kubernetes quantities; no bound shows as −1m CPU, −1 memory and 0 GPUs."""
    cpu, memory, gpu = vector
    if gpu >= UNLIMITED:
        devices = "0"
    elif gpu >= GPU_MICRO:
        devices = str(gpu // GPU_MICRO)  # compat: the reference keeps whole devices only
    else:
        devices = f"{gpu * 1000 // GPU_MICRO}m" if gpu else "0"
    return {
        "cpu": "-1m" if cpu >= UNLIMITED else f"{cpu}m",
        "memory": "-1" if memory >= UNLIMITED else str(memory),
        NVIDIA_GPU: devices,
    }
