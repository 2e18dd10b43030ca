"""Amounts and requests in the form of the cases (README, conventions)."""

import math
from collections.abc import Mapping
from typing import Any

from kai_es.kube.labels import CPU, GPU, GPU_MICRO, MEMORY, MIG_PREFIX, PODS
from kai_es.kube.objects import GpuRequest, PodSpec

BASE = (CPU, MEMORY, GPU)
Amounts = Mapping[str, int]
Case = Mapping[str, Any]


def shown(amounts: Amounts) -> dict[str, Any]:
    """Amounts of a node."""
    scalars = {name: amount for name, amount in amounts.items() if name not in BASE}
    return {
        "milliCpu": amounts.get(CPU, 0),
        "memory": amounts.get(MEMORY, 0),
        "gpus": amounts.get(GPU, 0) / GPU_MICRO,
        "scalars": scalars,
    }


def amounts_of(raw: Case) -> dict[str, int]:
    """Amounts of a node, read."""
    found = {
        CPU: math.floor(raw.get("milliCpu", 0)),
        MEMORY: math.floor(raw.get("memory", 0)),
        GPU: round(raw.get("gpus", 0) * GPU_MICRO),
        PODS: 0,
    }
    return found | {name: int(amount) for name, amount in raw.get("scalars", {}).items()}


def shown_request(spec: PodSpec) -> dict[str, Any]:
    """What a pod asks for."""
    rest = {
        name: amount
        for name, amount in spec.requests.items()
        if name not in BASE and not name.startswith(MIG_PREFIX)
    }
    return {
        "milliCpu": spec.requests.get(CPU, 0),
        "memory": spec.requests.get(MEMORY, 0),
        "scalars": rest,
        "gpuCount": spec.gpu.count,
        "gpuPortion": spec.gpu.portion,
        "gpuMemoryMiB": spec.gpu.memory_mib,
        "mig": dict(spec.gpu.mig),
        "draGpuCounts": dict(spec.gpu.dra),
    }


def spec_of(raw: Case, request_type: str = "Regular", **fields: Any) -> PodSpec:
    """The spec of a pod that asks for what a case says."""
    gpu = GpuRequest(
        count=raw.get("gpuCount", 0),
        portion=raw.get("gpuPortion", 0.0),
        memory_mib=raw.get("gpuMemoryMiB", 0),
        mig=dict(raw.get("mig", {})),
        dra=dict(raw.get("draGpuCounts", {})),
    )
    requests = {CPU: raw.get("milliCpu", 0), MEMORY: raw.get("memory", 0), **gpu.mig}
    requests |= raw.get("scalars", {})
    if request_type == "Regular" and gpu.count and gpu.portion:
        requests[GPU] = gpu.count * GPU_MICRO
    requests = {name: int(amount) for name, amount in requests.items() if amount}
    return PodSpec(
        requests=requests,
        gpu=gpu,
        request_type=request_type,
        **fields,
    )
