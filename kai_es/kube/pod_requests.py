"""What a pod asks for: containers, sidecars, start-up peaks, overhead, GPU annotations.

Reference: pkg/scheduler/api/pod_info/pod_info.go (scheduler-core §5.3, request computation).
"""

import re
from collections.abc import Mapping
from typing import Final, NamedTuple

from kai_es.kube.errors import InvalidObjectError
from kai_es.kube.labels import (
    GPU,
    GPU_FRACTION,
    GPU_FRACTION_DEVICES,
    GPU_MEMORY,
    GPU_MICRO,
    MIG_PREFIX,
    PODS,
)
from kai_es.kube.objects import ContainerRequest, GpuRequest
from kai_es.kube.quantity import AMOUNT_MAX
from kai_es.kube.raw_pod import RawContainer, RawSpec
from kai_es.kube.resources import Amounts, requested

_INTEGER: Final = re.compile(r"[+-]?[0-9]{1,18}")
_FLOAT: Final = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]{1,3})?")
_MAX_LEN: Final = 64  # of an annotation that is meant as a number
_NO_GPU: Final = GpuRequest()
_ALWAYS: Final = "Always"


class Asked(NamedTuple):
    """The result: `PodSpec.requests`, `gpu`, `request_type` and `legacy_mig`."""

    requests: dict[str, int]
    gpu: GpuRequest
    request_type: str
    legacy_mig: bool


def asked(spec: RawSpec, annotations: Mapping[str, str], *, what: str) -> Asked:
    """The effective request of a pod.

    Whole devices are in `requests["gpu"]` and in `gpu`; shares, device memory and MIG profiles in
    `gpu`, MIG profiles also under their names in `requests`.

    Raises:
        InvalidObjectError: an amount that is none, negative, or too large in sum.
    """
    total = _peak(spec, what=what)
    for name, amount in requested(spec.overhead, what=what, field="spec.overhead").items():
        if name != GPU and not name.startswith(MIG_PREFIX):
            total[name] = total.get(name, 0) + amount
    for name, amount in total.items():
        if amount > AMOUNT_MAX:
            raise InvalidObjectError(
                what, f"the sum of requests of {name} is {amount}, want < 2^61"
            )
    gpu, request_type, legacy = _gpu_of(total, annotations, what=what)
    if request_type not in ("Regular", "MigInstance"):
        total.pop(GPU, None)
    if legacy or request_type in ("Fraction", "GpuMemory"):
        total = {n: a for n, a in total.items() if n != GPU and not n.startswith(MIG_PREFIX)}
    total.update(gpu.mig)
    total[PODS] = 1
    return Asked(total, gpu, request_type, legacy)


def by_container(spec: RawSpec, need: Asked, *, what: str) -> tuple[ContainerRequest, ...]:
    """What each container asks for, init containers first; () = one that asks for all of it.

    Raises:
        InvalidObjectError: an amount that is none.
    """
    found = [
        ContainerRequest(
            "sidecar" if one.restart_policy == _ALWAYS else "init",
            dict(_of(one, f"spec.initContainers[{n}]", what=what)),
        )
        for n, one in enumerate(spec.init_containers or ())
    ]
    found += [
        ContainerRequest("", dict(_of(one, f"spec.containers[{n}]", what=what)))
        for n, one in enumerate(spec.containers or ())
    ]
    whole = {name: amount for name, amount in need.requests.items() if name != PODS}
    return () if len(found) == 1 and found[0].requests == whole else tuple(found)


def _peak(spec: RawSpec, *, what: str) -> Amounts:
    """Steady sum of containers and sidecars, or the highest peak while the pod starts.

    An ordinary init container runs beside the sidecars declared before it. Example: containers
    1 + 1 CPU, init containers sidecar 0.5, ordinary 2, sidecar 0.25, ordinary 1: steady 2.75,
    peaks 2.5 and 1.75, so 2.75.
    """
    steady: Amounts = {}
    for n, container in enumerate(spec.containers or ()):
        _add(steady, _of(container, f"spec.containers[{n}]", what=what))
    if not spec.init_containers:
        return steady
    sidecars: Amounts = {}
    peaks: list[Amounts] = []
    for n, container in enumerate(spec.init_containers):
        request = _of(container, f"spec.initContainers[{n}]", what=what)
        if container.restart_policy == _ALWAYS:
            _add(sidecars, request)
        else:
            peaks.append(_add(dict(sidecars), request))
    _add(steady, sidecars)
    for peak in peaks:
        for name, amount in peak.items():
            steady[name] = max(steady.get(name, 0), amount)
    return steady


def _of(container: RawContainer, field: str, *, what: str) -> Mapping[str, int]:
    if container.resources is None:
        return {}
    return requested(container.resources.requests, what=what, field=f"{field}.resources.requests")


def _add(total: Amounts, more: Mapping[str, int]) -> Amounts:
    for name, amount in more.items():
        total[name] = total.get(name, 0) + amount
    return total


def _gpu_of(
    total: Mapping[str, int], annotations: Mapping[str, str], *, what: str
) -> tuple[GpuRequest, str, bool]:
    """GPU request, request type, legacy MIG: steps 5 to 10 of the request computation."""
    gpu = _NO_GPU
    devices = total.get(GPU, 0) // GPU_MICRO
    mig = {name: amount for name, amount in total.items() if name.startswith(MIG_PREFIX)}
    if devices or mig:
        gpu = GpuRequest(count=devices, portion=1.0 if devices else 0.0, mig=mig)
    request_type = "Regular"
    if annotations and any(map(_bears_on_gpu, annotations)):
        gpu, request_type = _shared(gpu, annotations, what=what)
        legacy = _legacy_mig(annotations, what=what)
        if legacy:
            return GpuRequest(mig=legacy), "MigInstance", True
    return gpu, "MigInstance" if gpu.mig else request_type, False


def _bears_on_gpu(key: str) -> bool:
    return key in (GPU_FRACTION, GPU_MEMORY) or key.startswith(MIG_PREFIX)


def _shared(
    gpu: GpuRequest, annotations: Mapping[str, str], *, what: str
) -> tuple[GpuRequest, str]:
    """The request by fraction or device memory. An annotation that is no number counts as absent.

    Raises:
        InvalidObjectError: a combination whose sum would be negative or endless.
    """
    memory = _integer(annotations.get(GPU_MEMORY)) or 0
    portion = _decimal(annotations.get(GPU_FRACTION)) or 0.0
    request_type = "Regular"
    if memory > 0:
        gpu, request_type = GpuRequest(count=1, memory_mib=memory), "GpuMemory"
    if 0 < portion <= 1:
        gpu, request_type = GpuRequest(count=1, portion=portion), "Fraction"
    devices = _integer(annotations.get(GPU_FRACTION_DEVICES))
    if request_type == "Regular" or devices is None:
        return gpu, request_type
    for key, value, limit in (
        (GPU_FRACTION_DEVICES, devices, 2**31),
        (GPU_MEMORY, memory, 2**50),
        (GPU_FRACTION, portion, 2**31),
    ):
        if not 0 <= value < limit:
            raise InvalidObjectError(
                what, f"annotation {key} is {annotations.get(key)!r}, want a positive number"
            )
    return GpuRequest(count=devices, portion=portion, memory_mib=memory), request_type


def _legacy_mig(annotations: Mapping[str, str], *, what: str) -> dict[str, int]:
    mig: dict[str, int] = {}
    for key in sorted(k for k in annotations if k.startswith(MIG_PREFIX)):
        count = _integer(annotations[key])
        if count is None:
            continue
        if not 0 <= count < 2**31:
            raise InvalidObjectError(
                what, f"annotation {key} is {annotations[key]!r}, want 0 or more instances"
            )
        mig[key] = count
    return mig


def _integer(text: str | None) -> int | None:
    return int(text) if text and _INTEGER.fullmatch(text) else None


def _decimal(text: str | None) -> float | None:
    fits = text and len(text) <= _MAX_LEN and _FLOAT.fullmatch(text)
    return float(text) if text and fits else None
