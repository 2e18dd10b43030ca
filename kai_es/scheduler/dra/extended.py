"""Extended resources that a device class serves: the claim that stands for them.

Containers and sidecars hold what they ask for. An ordinary init container has what containers that
start after it hold, and something more only for what goes beyond that; all init containers share
this extra, since they run one after another.

Reference: pkg/scheduler/plugins/dynamicresources (plugins §10.4), KEP 5004.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from kai_es.events.decisions import ContainerMapping
from kai_es.kube.devices import DeviceRequest
from kai_es.kube.objects import ExtendedContainer

_INIT = "init"


class Synthetic(NamedTuple):
    """The claim to be made: its requests by name, and which container has which of them."""

    requests: tuple[DeviceRequest, ...]
    mappings: tuple[ContainerMapping, ...]


class _Held(NamedTuple):
    container: ExtendedContainer
    request: str
    amount: int


def served(containers: Sequence[ExtendedContainer], class_of: Mapping[str, str]) -> dict[str, int]:
    """Extended resources of a pod that a class serves, with the amount that it needs at most."""
    names = sorted({name for one in containers for name, _, _ in one.requests if name in class_of})
    return {name: sum(count for _, _, count in _held(containers, name)[0]) for name in names}


def synthetic_claim(
    containers: Sequence[ExtendedContainer],
    class_of: Mapping[str, str],
    *,
    offers: Callable[[str], bool],
) -> Synthetic:
    """The claim for what a node does not offer itself.

    Args:
        containers: of a pod, in order.
        class_of: device class by extended resource.
        offers: whether the node itself offers some of a resource.
    """
    requests: list[DeviceRequest] = []
    mappings: list[ContainerMapping] = []
    for name in served(containers, class_of):
        if offers(name):
            continue
        held, used = _held(containers, name)
        requests += [
            DeviceRequest(name=one.request, device_class=class_of[name], count=one.amount)
            for one in held
        ]
        mappings += [ContainerMapping(container.name, name, request) for container, request in used]
    return Synthetic(tuple(sorted(requests, key=lambda one: one.name)), tuple(mappings))


def _held(
    containers: Sequence[ExtendedContainer], resource: str
) -> tuple[list[_Held], list[tuple[ExtendedContainer, str]]]:
    """Requests for one resource, and which container uses which."""
    asked = [
        _Held(one, f"container-{one.index}-request-{place}", count)
        for one in containers
        for name, place, count in one.requests
        if name == resource
    ]
    lasting = [one for one in asked if one.container.kind != _INIT]
    used = [(one.container, one.request) for one in lasting]
    extra: _Held | None = None
    starters = [one for one in asked if one.container.kind == _INIT]
    for one in starters:
        beyond = one.amount - _later(one, lasting)
        if beyond > (extra.amount if extra is not None else 0):
            extra = _Held(one.container, one.request, beyond)
    for one in starters:
        needed = one.amount
        for other in lasting:
            if other.container.index > one.container.index and needed > 0:
                used.append((one.container, other.request))
                needed -= other.amount
        if needed > 0 and extra is not None:
            used.append((one.container, extra.request))
    return [*lasting, extra] if extra is not None else lasting, used


def _later(one: _Held, lasting: Sequence[_Held]) -> int:
    """What containers that start after an init container hold."""
    return sum(other.amount for other in lasting if other.container.index > one.container.index)
