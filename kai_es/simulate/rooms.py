"""What a node has room for, as its kubelet sees it.

Sums are made here anew, not taken from `kai_es.kube`: the kubelet is the independent witness of
over-commitment.

Reference: k8s.io/kubernetes/pkg/kubelet/lifecycle/predicate.go, pkg/kubelet/cm/devicemanager.
"""

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from kai_es.kube.quantity import capacity_floor, request_ceil

Object = dict[str, Any]


class Holder(Protocol):
    """A pod that holds something of a node."""

    @property
    def resources(self) -> Mapping[str, int]:
        """Amounts, in the units of `requested`."""
        ...

    @property
    def devices(self) -> tuple[int, ...]:
        """Numbers of whole GPUs."""
        ...


@dataclass(slots=True)
class NodeRoom:
    """A node and who is on it. `homeless`: pods bound to it before it was there."""

    allocatable: dict[str, int] | None = None
    held: dict[str, Holder] = field(default_factory=dict)
    homeless: dict[str, Object] = field(default_factory=dict)

    def free(self, resource: str) -> int:
        """What is left of a resource."""
        used = sum(held.resources.get(resource, 0) for held in self.held.values())
        return (self.allocatable or {}).get(resource, 0) - used

    def take_devices(self, n_devices: int) -> tuple[int, ...]:
        """The lowest free device numbers."""
        busy = {number for held in self.held.values() for number in held.devices}
        return tuple(itertools.islice((n for n in itertools.count() if n not in busy), n_devices))


def offered(node: Object) -> dict[str, int]:
    """What a node has for pods, in the units of `requested`.

    Raises:
        InvalidObjectError: an amount is no quantity.
    """
    name = f"Node {node['metadata']['name']}"
    return _amounts((node.get("status") or {}).get("allocatable"), capacity_floor, name)


def requested(pod: Object) -> dict[str, int]:
    """What a pod asks for: the sum of its containers, or of its greediest init container.

    CPU in millicores, memory and ephemeral storage in bytes, others as counts. What it gets by a
    claim for extended resources its node need not offer.

    Raises:
        InvalidObjectError: an amount is no quantity.
    """
    spec = pod["spec"]
    name = f"Pod {pod['metadata']['namespace']}/{pod['metadata']['name']}"
    total: dict[str, int] = {}
    peaks: list[dict[str, int]] = []
    for container in spec.get("initContainers") or ():
        asked = _asked(container, name)
        if container.get("restartPolicy") == "Always":
            _add(total, asked)
            asked = {}
        # An init container runs beside the sidecars started before it.
        peaks.append({k: total.get(k, 0) + asked.get(k, 0) for k in total.keys() | asked.keys()})
    for container in spec.get("containers") or ():
        _add(total, _asked(container, name))
    for peak in peaks:
        for key, amount in peak.items():
            total[key] = max(total.get(key, 0), amount)
    _add(total, _amounts(spec.get("overhead"), request_ceil, name))
    claimed = (pod.get("status") or {}).get("extendedResourceClaimStatus") or {}
    for mapping in claimed.get("requestMappings") or ():
        total.pop(mapping["resourceName"], None)
    return total | {"pods": 1}


def _asked(container: Object, name: str) -> dict[str, int]:
    return _amounts((container.get("resources") or {}).get("requests"), request_ceil, name)


def _amounts(raw: Mapping[str, Any] | None, rounding: Any, what: str) -> dict[str, int]:
    return {
        key: rounding(value, scale=1000 if key == "cpu" else 1, what=what, field=key)
        for key, value in (raw or {}).items()
    }


def _add(total: dict[str, int], more: Mapping[str, int]) -> None:
    for key, amount in more.items():
        total[key] = total.get(key, 0) + amount


def lacking(room: NodeRoom, resources: Mapping[str, int]) -> tuple[str, str]:
    """Why a node refuses a pod: the kubelet's reason and message, "" = it does not."""
    for key, amount in sorted(resources.items()):
        free = room.free(key)
        if not amount or amount <= free:
            continue
        if "/" in key:
            return "UnexpectedAdmissionError", (
                f"Allocate failed due to requested number of devices unavailable for {key}. "
                f"Requested: {amount}, Available: {max(0, free)}, which is unexpected"
            )
        capacity = (room.allocatable or {}).get(key, 0)
        return f"OutOf{key}", (
            f"Node didn't have enough resource: {key}, requested: {amount}, used: "
            f"{capacity - free}, capacity: {capacity}"
        )
    return "", ""
