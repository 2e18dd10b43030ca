"""What of a pod has to be aligned: for the pod as a whole, and container by container.

Reference: pkg/scheduler/plugins/numa (plugins §15.2).
"""

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from kai_es.kube.labels import CPU, MEMORY, PODS
from kai_es.kube.objects import ContainerRequest, PodSpec

CORE: Final = 1000
SHARED_POOLS: Final = (CPU, MEMORY)
"""With huge pages the resources that are no devices: aligned for Guaranteed pods alone."""
HUGE_PAGES: Final = "hugepages-"

Amounts = Mapping[str, int]


class Units(NamedTuple):
    """Requests that are aligned one by one.

    pod:        of the pod as a whole, for scope `pod`.
    concurrent: of sidecars and containers, which share the zones, for scope `container`.
    serial:     of ordinary init containers, each of which has the zones to itself.
    """

    pod: Amounts
    concurrent: tuple[Amounts, ...]
    serial: tuple[Amounts, ...]


def is_device(resource: str) -> bool:
    """Whether a resource is aligned for pods that are not Guaranteed too."""
    return resource not in SHARED_POOLS and not resource.startswith(HUGE_PAGES)


def units_of(spec: PodSpec) -> Units:
    """The requests of a pod; CPU only of containers that get whole cores of their own."""
    containers = spec.containers or (
        ContainerRequest("", {name: n for name, n in spec.requests.items() if name != PODS}),
    )
    aligned = [(one.kind, _aligned(one.requests, spec)) for one in containers]
    concurrent = [amounts for kind, amounts in aligned if kind == "sidecar"]
    concurrent += [amounts for kind, amounts in aligned if not kind]
    pod = _peak(aligned)
    for name, amount in spec.overhead.items():
        if name != CPU:
            pod[name] = pod.get(name, 0) + amount
    return Units(pod, tuple(concurrent), tuple(a for kind, a in aligned if kind == "init"))


def _aligned(requests: Amounts, spec: PodSpec) -> Amounts:
    cores = spec.guaranteed and requests.get(CPU, 0) % CORE == 0
    return {name: n for name, n in requests.items() if n > 0 and (name != CPU or cores)}


def _peak(containers: Iterable[tuple[str, Amounts]]) -> dict[str, int]:
    """The steady sum, or what an init container needs beside the sidecars before it, if more."""
    steady: dict[str, int] = {}
    sidecars: dict[str, int] = {}
    peaks: list[dict[str, int]] = []
    for kind, amounts in containers:
        if kind == "init":
            peaks.append(_plus(dict(sidecars), amounts))
            continue
        _plus(steady, amounts)
        if kind == "sidecar":
            _plus(sidecars, amounts)
    for peak in peaks:
        for name, amount in peak.items():
            steady[name] = max(steady.get(name, 0), amount)
    return steady


def _plus(total: dict[str, int], more: Amounts) -> dict[str, int]:
    for name, amount in more.items():
        total[name] = total.get(name, 0) + amount
    return total
