"""Task shapes: what of a pod decides where it may run, interned.

Replicas of a workload share one shape, so that whatever depends on it is worked out once: fit and
scores over all nodes, amounts, texts. Shapes live as long as a pod has them.

Reference: pkg/scheduler/api/resource_info/gpu_resource_requirment.go (scheduler-core §5.2, §5.3).
"""

import math
import re
from typing import Final

import msgspec

from kai_es.kube.labels import CPU, GPU_MICRO, MEMORY
from kai_es.kube.objects import PodSpec

HUNDREDTH: Final = GPU_MICRO // 100
DEVICES_MAX: Final = 2**40
"""Devices of one request that are told apart; sums of them still fit 64 bits in gpu_micro."""

_MIG: Final = re.compile(r"nvidia\.com/mig-(\d+)g\.(\d+)gb")
_encoder: Final = msgspec.msgpack.Encoder(order="deterministic")


def portion_hundredths(portion: float) -> int:
    """A share of a device with two decimals, halves away from zero (Go's math.Round)."""
    return math.floor(portion * 100 + 0.5)


def mig_slices(profile: str) -> tuple[int, int] | None:
    """GPU slices and GB of a MIG profile's resource name, None if it is no such name."""
    match = _MIG.fullmatch(profile)
    return (int(match[1]), int(match[2])) if match else None


class Shape:
    """One interned `PodSpec` with the amounts that follow from it alone.

    code:       a number of its own, never used again; says nothing about order.
    gpu:        whole devices and fractions in gpu_micro; 0 for device memory and MIG.
    dra:        devices of resource claims, gpu_micro.
    quota:      what the request weighs in quotas before it is placed, gpu_micro: `gpu`, `dra` and
                MIG slices.
    memory_mib: device memory over all its devices, for requests by memory, else 0.
    shared:     a fraction of devices, or device memory.
    needs_gpu:  any kind of device at all.
    social:     it has rules about what other pods are near (pod affinity or anti-affinity).
    special:    other pods must look at where it is: social, or with ports of its host.
    fair:       CPU millicores, memory bytes, `quota`.
    """

    __slots__ = (
        "code",
        "dra",
        "fair",
        "gpu",
        "memory_mib",
        "needs_gpu",
        "quota",
        "shared",
        "social",
        "spec",
        "special",
        "users",
    )

    def __init__(self, spec: PodSpec, code: int) -> None:
        gpu = spec.gpu
        self.spec = spec
        self.code = code
        self.users = 0
        affinity = spec.affinity or {}
        self.social = bool(affinity.get("podAffinity") or affinity.get("podAntiAffinity"))
        self.special = self.social or bool(spec.host_ports)
        by_memory = spec.request_type == "GpuMemory"
        self.shared = by_memory or spec.request_type == "Fraction"
        self.gpu = portion_hundredths(gpu.portion) * gpu.count * HUNDREDTH
        self.dra = min(sum(gpu.dra.values()), DEVICES_MAX) * GPU_MICRO
        slices = sum((mig_slices(p) or (0, 0))[0] * n for p, n in gpu.mig.items())
        self.quota = self.gpu + self.dra + slices * GPU_MICRO
        self.memory_mib = gpu.count * gpu.memory_mib if by_memory else 0
        self.needs_gpu = bool(self.quota or by_memory or gpu.mig)
        self.fair = (spec.requests.get(CPU, 0), spec.requests.get(MEMORY, 0), self.quota)


class Shapes:
    """The live shapes.

    n_social: those with rules about other pods.
    n_ports, n_claims, n_config_maps: those that want ports of their host, claims of volumes, config
              maps; what nobody wants need not be looked at.
    """

    def __init__(self) -> None:
        self._by_key: dict[bytes, Shape] = {}
        self._next = 0
        self.n_social = self.n_ports = self.n_claims = self.n_config_maps = 0

    def take(self, spec: PodSpec) -> Shape:
        """The shape of a spec, for one more pod."""
        key = _encoder.encode(spec)
        shape = self._by_key.get(key)
        if shape is None:
            shape = self._by_key[key] = Shape(spec, self._next)
            self._next += 1
            self._count(shape, 1)
        shape.users += 1
        return shape

    def drop(self, shape: Shape) -> None:
        """One pod of this shape is gone."""
        shape.users -= 1
        if shape.users == 0:
            del self._by_key[_encoder.encode(shape.spec)]
            self._count(shape, -1)

    def _count(self, shape: Shape, sign: int) -> None:
        spec = shape.spec
        self.n_social += sign * shape.social
        self.n_ports += sign * bool(spec.host_ports)
        self.n_claims += sign * bool(spec.claims)
        self.n_config_maps += sign * bool(spec.config_maps)

    def __len__(self) -> int:
        return len(self._by_key)
