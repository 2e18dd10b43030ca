"""What a node, or a domain of nodes, has too little of.

Reference: pkg/scheduler/api/common_info/{pod_errors,job_errors}.go (scheduler-core §12.1, plugins
§7.6).
"""

import enum
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from kai_es.kube.labels import CPU, GPU, GPU_MICRO, MEMORY, MIG_PREFIX
from kai_es.kube.objects import GpuRequest
from kai_es.scheduler.reasons.amounts import CORE, GIGABYTE, humanized, three_digits
from kai_es.scheduler.reasons.fit import TOO_SMALL, JobError, in_sub_group


class Kind(enum.Enum):
    """What is short; the value is its word in texts, empty = the resource's name."""

    MIG = ""
    GPUS = "GPUs"
    GPU_MEMORY = "GPU memory"
    CPU = "CPU cores"
    MEMORY = "memory"
    OTHER = "other"


class Shortage(NamedTuple):
    """One resource that is short, amounts in its own units (MiB for GPU memory)."""

    kind: Kind
    resource: str
    requested: int
    used: int
    capacity: int

    @property
    def word(self) -> str:
        """How texts call it."""
        return self.resource if self.kind in (Kind.MIG, Kind.OTHER) else self.kind.value


def kind_of(resource: str) -> Kind:
    """The kind of a resource name."""
    if resource.startswith(MIG_PREFIX):
        return Kind.MIG
    return _KINDS.get(resource, Kind.OTHER)


_KINDS: Final[Mapping[str, Kind]] = {CPU: Kind.CPU, MEMORY: Kind.MEMORY, GPU: Kind.GPUS}


def node_shortages(
    requested: Mapping[str, int],
    used: Mapping[str, int],
    capacity: Mapping[str, int],
    *,
    gpu: GpuRequest,
    device_mib: int,
) -> list[Shortage]:
    """What a node lacks for a request: MIG profiles or GPUs, GPU memory, CPU, memory, the rest.

    Args:
        requested: amounts by resource, in the order of display; `gpu` in gpu_micro.
        used: of the node, with the devices of shared GPUs counted in.
        capacity: allocatable amounts of the node.
        gpu: the GPU request behind it.
        device_mib: memory of each device of the node.
    """
    found: list[Shortage] = []

    def look(resource: str, *, also_zero: bool = False) -> None:
        asked, taken = requested.get(resource, 0), used.get(resource, 0)
        has = capacity.get(resource, 0)
        if asked > has - taken and (asked > 0 or also_zero):
            found.append(Shortage(kind_of(resource), resource, asked, taken, has))

    profiles = [name for name in requested if name.startswith(MIG_PREFIX)]
    for name in profiles:
        look(name)
    if not profiles:
        look(GPU)
    if gpu.memory_mib > device_mib:
        found.append(Shortage(Kind.GPU_MEMORY, GPU, gpu.memory_mib, 0, device_mib))
    look(CPU, also_zero=True)
    look(MEMORY)
    for name in requested:
        if kind_of(name) is Kind.OTHER:
            look(name)
    return found


def short_text(shortage: Shortage, *, place: str = "node(s)") -> str:
    """The counted form: `node(s) didn't have enough resources: GPUs`."""
    if shortage.kind is Kind.MIG:
        return f"{place} didn't have enough of mig profile: {shortage.resource}"
    return f"{place} didn't have enough resources: {shortage.word}"


def detailed_text(shortage: Shortage, *, gpu: GpuRequest, gang: bool) -> str:
    """The form of one node, with numbers unless the task is one of several."""
    if gang:
        return (
            f"Node didn't have enough resources: {shortage.word}, "
            "taking all considerations into account"
        )
    requested, used, capacity = shortage.requested, shortage.used, shortage.capacity
    if shortage.kind is Kind.GPU_MEMORY:
        return (
            "Node didn't have enough resources: Each gpu on the node has a gpu memory capacity of "
            f"{capacity} Mib. {requested} Mib of gpu memory has been requested."
        )
    if shortage.kind in (Kind.MIG, Kind.OTHER):
        head = f"Node didn't have enough resource: {shortage.resource}"
        return f"{head}, requested: {requested}, used: {used}, capacity: {capacity}"
    head = f"Node didn't have enough resources: {shortage.word}"
    if shortage.kind is Kind.GPUS:
        asked = _devices(gpu, requested)
        shown = [three_digits(amount, GPU_MICRO) for amount in (used, capacity)]
    else:
        unit = CORE if shortage.kind is Kind.CPU else GIGABYTE
        asked, *shown = (humanized(amount, unit) for amount in (requested, used, capacity))
    return f"{head}, requested: {asked}, used: {shown[0]}, capacity: {shown[1]}"


def _devices(gpu: GpuRequest, requested: int) -> str:
    if gpu.dra and sum(gpu.dra.values()):
        return f"{sum(gpu.dra.values())} as DRA gpu claims "
    if gpu.count > 1 and 0 < gpu.portion < 1:
        return f"{gpu.count} X {gpu.portion:g}"
    return three_digits(requested, GPU_MICRO)


def with_suffix(texts: Iterable[str], suffix: str) -> list[str]:
    """Texts, each with a sentence that explains all of them."""
    return [f"{text}. {suffix}" if suffix else text for text in texts]


# -- domains of a topology


def domain_shortages(requested: Mapping[str, int], available: Mapping[str, int]) -> list[Shortage]:
    """What a domain lacks for a whole sub-group, in the order in which it asks."""
    return [
        Shortage(kind_of(name), name, asked, 0, available.get(name, 0))
        for name, asked in requested.items()
        if asked > available.get(name, 0)
    ]


def domain_error(domain: str, shortages: Sequence[Shortage], sub_group: str) -> JobError:
    """A domain is too small for a sub-group.

    Args:
        domain: its id, joined label values.
        shortages: what it lacks.
        sub_group: "" or `default` = the whole job.
    """
    detail = ", ".join(_domain_text(domain, shortage) for shortage in shortages)
    return JobError(
        TOO_SMALL,
        tuple(short_text(shortage, place="node-group(s)") for shortage in shortages),
        f"<{domain}>: {in_sub_group(detail, sub_group)}",
    )


def domain_pods_error(domain: str, *, room: int, needed: int, sub_group: str) -> JobError:
    """A domain has room for too few pods of a sub-group."""
    text = f"node-group {domain} can allocate only {room} of {needed} required pods"
    return JobError(TOO_SMALL, (text,), f"<{domain}>: {in_sub_group(text, sub_group)}")


def _domain_text(domain: str, shortage: Shortage) -> str:
    requested, available = shortage.requested, shortage.capacity
    plural = "resource"
    if shortage.kind is Kind.GPUS:
        asked, has = (three_digits(amount, GPU_MICRO) for amount in (requested, available))
    elif shortage.kind in (Kind.CPU, Kind.MEMORY):
        plural = "resources"
        unit = CORE if shortage.kind is Kind.CPU else GIGABYTE
        asked, has = (humanized(amount, unit) for amount in (requested, available))
    else:
        asked, has = str(requested), str(available)
    return (
        f"{domain} didn't have enough {plural}: {shortage.word}, "
        f"requested: {asked}, available: {has}"
    )
