"""What a pod asks for and holds of shared GPUs, as statuses count it.

Reference: pkg/podgroupcontroller/utilities/pods, pkg/common/resources (apis §3.7). Memory is in the
MB that node labels state, without the scheduler's rounding.
"""

import re
from collections.abc import Mapping
from fractions import Fraction
from typing import Final

from kai_es.kube.errors import InvalidObjectError
from kai_es.kube.labels import GPU_MEMORY_LABEL
from kai_es.kube.objects import Node, Pod
from kai_es.kube.quantity import parse_quantity
from kai_es.status.amounts import MICRO, Amounts

GPU_RESOURCE: Final = "nvidia.com/gpu"
MEMORY_RESOURCE: Final = "run.ai/gpu.memory"
FRACTION: Final = "Fraction"
"""Type of what a pod has received that shares a device."""
AMD_MEMORY_PREFIX: Final = "beta.amd.com/gpu.vram"

_INTEGER: Final = re.compile(r"[+-]?[0-9]{1,18}")
_MEGA: Final = 10**6


class UnknownShareError(Exception):
    """How much of a device a pod holds cannot be told; says why."""


def requested(pod: Pod) -> Amounts:
    """What a pod asks for by fraction or by memory of devices."""
    gpu = pod.spec.gpu
    devices = max(gpu.count, 1)
    if gpu.memory_mib:
        return {MEMORY_RESOURCE: gpu.memory_mib * devices * MICRO}
    if _is_fraction(pod):
        return {GPU_RESOURCE: round(gpu.portion * MICRO) * devices}
    return {}


def received(pod: Pod, node: Node | None) -> Amounts:
    """What a pod holds of shared devices.

    compat: of several devices only one is counted, unlike in what is requested (apis §3.7).

    Raises:
        UnknownShareError: its node does not say how much memory a device has.
    """
    return {GPU_RESOURCE: allocated_fraction(pod, node)} if pod.received == FRACTION else {}


def allocated_fraction(pod: Pod, node: Node | None) -> int:
    """The share of one device, in millionths.

    Raises:
        UnknownShareError: the pod shares no device, or its node is not known well enough.
    """
    gpu = pod.spec.gpu
    if gpu.memory_mib:
        return fraction_of_memory(gpu.memory_mib, pod.node, node)
    if _is_fraction(pod):
        return round(gpu.portion * MICRO)
    raise UnknownShareError(
        "cannot calculate fraction because the pod doesn't a fraction or memory annotation"
    )


def fraction_of_memory(memory: int, name: str, node: Node | None) -> int:
    """The share of one of a node's devices that has so much memory, in millionths.

    Raises:
        UnknownShareError: the node is not there, or does not say.
    """
    try:
        whole = gpu_memory(name, node)
    except UnknownShareError as exc:
        raise UnknownShareError(f"failed extract node gpu memory for node {name} : {exc}") from exc
    return round(Fraction(memory * MICRO, whole))


def gpu_memory(name: str, node: Node | None) -> int:
    """Memory of one of a node's devices in MB.

    Raises:
        UnknownShareError: the node is not there, or does not say.
    """
    if node is None:
        raise UnknownShareError(f'nodes "{name}" not found')
    for memory_of, vendor in ((nvidia_memory, "nvidia"), (amd_memory, "amd")):
        try:
            memory = memory_of(node.labels)
        except UnknownShareError as exc:
            raise UnknownShareError(
                f"failed to extract memory from {vendor} node gpu memory label. error: {exc}"
            ) from exc
        if memory:
            return memory
    raise UnknownShareError(
        "failed to extract memory from gpu node nither nvidia not amd memory labels has been "
        f"found for: {name}"
    )


def nvidia_memory(labels: Mapping[str, str]) -> int:
    """What the label of NVIDIA's discovery says, 0 = there is none.

    Raises:
        UnknownShareError: it is no integer.
    """
    text = labels.get(GPU_MEMORY_LABEL)
    if text is None:
        return 0
    if not _INTEGER.fullmatch(text):
        raise UnknownShareError(f'strconv.Atoi: parsing "{text}": invalid syntax')
    return int(text)


def amd_memory(labels: Mapping[str, str]) -> int:
    """What the key of AMD's label says (`…vram.64G`), 0 = there is none.

    Raises:
        UnknownShareError: it is no quantity.
    """
    for key in sorted(labels):
        if not key.startswith(AMD_MEMORY_PREFIX):
            continue
        size = key.removeprefix(AMD_MEMORY_PREFIX).removeprefix(".")
        try:
            return int(parse_quantity(size, what="", field=key) / _MEGA)
        except InvalidObjectError as exc:
            raise UnknownShareError(
                f"failed to parse amd memory resource size. Label: {key}, regex match: {size}, "
                "error: quantities must match the regular expression "
                "'^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
            ) from exc
    return 0


def _is_fraction(pod: Pod) -> bool:
    return 0 < pod.spec.gpu.portion < 1
