"""Raw Node to `Node`. Reference: pkg/scheduler/api/node_info (scheduler-core §4.3)."""

import re
from collections.abc import Mapping
from typing import Final

import msgspec

from kai_es.kube.labels import GPU, GPU_COUNT_LABEL, GPU_MEMORY_LABEL, NVIDIA_GPU
from kai_es.kube.objects import Node, Taint
from kai_es.kube.resources import Quantity, offered
from kai_es.kube.shape import Labels, Metadata, shaped, uid_of
from kai_es.kube.times import time_ms

KIND: Final = "Node"
DEFAULT_GPU_MEMORY_MIB: Final = 100

_INTEGER: Final = re.compile(r"[+-]?[0-9]{1,18}")
_BYTES_FROM: Final = 2**20  # 1 TiB in MiB: no device has so much, so the label is in bytes
_MIB: Final = 2**20
_STEP_MIB: Final = 100


class RawTaint(msgspec.Struct, gc=False):
    """An entry of `spec.taints`."""

    key: str
    effect: str
    value: str | None = None


class RawNodeSpec(msgspec.Struct):
    """`spec` of a node."""

    unschedulable: bool | None = None
    taints: list[RawTaint] | None = None


class RawCondition(msgspec.Struct, gc=False):
    """An entry of `status.conditions`."""

    type: str
    status: str


class RawNodeStatus(msgspec.Struct):
    """`status` of a node."""

    allocatable: dict[str, Quantity] | None = None
    capacity: dict[str, Quantity] | None = None
    conditions: list[RawCondition] | None = None


class RawNode(msgspec.Struct):
    """A node."""

    metadata: Metadata
    spec: RawNodeSpec | None = None
    status: RawNodeStatus | None = None


def parse_node(raw: object) -> Node:
    """A node.

    Raises:
        InvalidObjectError: a field that is read has a wrong type or value.
    """
    shape = shaped(KIND, raw, RawNode)
    metadata = shape.metadata
    what = f"Node {metadata.name}"
    spec = shape.spec or RawNodeSpec()
    status = shape.status or RawNodeStatus()
    labels: Labels = metadata.labels or {}
    memory, synced = gpu_memory_mib(labels.get(GPU_MEMORY_LABEL))
    return Node(
        uid=uid_of(KIND, metadata),
        name=metadata.name,
        created_ms=time_ms(
            metadata.creation_timestamp, what=what, field="metadata.creationTimestamp"
        ),
        deleted_ms=time_ms(
            metadata.deletion_timestamp, what=what, field="metadata.deletionTimestamp"
        ),
        labels=labels,
        taints=tuple(
            Taint(key=taint.key, value=taint.value or "", effect=taint.effect)
            for taint in spec.taints or ()
        ),
        unschedulable=bool(spec.unschedulable),
        allocatable=offered(status.allocatable, what=what, field="status.allocatable"),
        capacity=offered(status.capacity, what=what, field="status.capacity"),
        conditions={c.type: c.status for c in status.conditions or ()},
        gpu_memory_mib=memory,
        gpu_memory_synced=synced,
        gpu_count=_integer(labels.get(GPU_COUNT_LABEL), default=-1),
        gpu_names=_gpu_names(status.allocatable or {}, what=what),
    )


def gpu_memory_mib(label: str | None) -> tuple[int, bool]:
    """Memory per device in MiB and whether it is known, from label `nvidia.com/gpu.memory`.

    Examples: 81559 -> 81500; 85520809984 (bytes) -> 81559 -> 81500; none -> 100, unknown. A value
    that would leave nothing counts as none: a share is divided by it.
    """
    memory = _integer(label, default=0)
    if memory >= _BYTES_FROM:
        memory //= _MIB
    memory -= memory % _STEP_MIB
    return (memory, True) if memory > 0 else (DEFAULT_GPU_MEMORY_MIB, False)


def _gpu_names(raw: Mapping[str, Quantity], *, what: str) -> tuple[str, ...]:
    field = "status.allocatable"
    names = [
        name
        for name, value in raw.items()
        if name.endswith(GPU) and any(offered({name: value}, what=what, field=field).values())
    ]
    return () if names == [NVIDIA_GPU] else tuple(sorted(names))


def _integer(text: str | None, *, default: int) -> int:
    return int(text) if text and _INTEGER.fullmatch(text) else default
