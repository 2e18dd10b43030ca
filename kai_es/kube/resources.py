"""Kubernetes resource lists as amounts in the units of `PodSpec.requests`.

Reference: pkg/scheduler/api/resource_info (scheduler-core §5.2). Every name that ends in `gpu` is
the dimension `gpu`; names that Kubernetes gives no meaning to (`foo`) weigh nothing.
"""

from collections.abc import Callable, Mapping
from functools import lru_cache
from operator import itemgetter
from typing import Final

from kai_es.kube.devices import IMPLICIT_RESOURCE
from kai_es.kube.errors import InvalidObjectError
from kai_es.kube.labels import CPU, GPU, GPU_MICRO, MEMORY, MIG_PREFIX, PODS
from kai_es.kube.quantity import AMOUNT_MAX, capacity_floor, request_ceil

Quantity = str | int | float
Amounts = dict[str, int]
_Rounding = Callable[..., int]

_PLAIN: Final = frozenset({MEMORY, PODS, "ephemeral-storage", "storage"})
_DEVICES_MAX: Final = AMOUNT_MAX // GPU_MICRO
_CACHED: Final = 16_384  # distinct resource lists: one per workload shape, not per pod
_IGNORED: Final = 0


_NOTHING: Final[Mapping[str, int]] = {}


def requested(raw: Mapping[str, Quantity] | None, *, what: str, field: str) -> Mapping[str, int]:
    """What a container asks for; fractions of a whole-device resource count as one device.

    `pods` is not read: every task has one. Zero amounts are left out. Do not change the result,
    it is shared.

    Raises:
        InvalidObjectError: names `what` and `field.<resource>`.
    """
    if not raw:
        return _NOTHING
    try:
        return _requested(tuple(raw.items()))
    except InvalidObjectError as exc:
        raise InvalidObjectError(what, f"{field}.{exc.problem}") from exc


def offered(raw: Mapping[str, Quantity] | None, *, what: str, field: str) -> Amounts:
    """What a node has; zero amounts are kept, they make a dimension known.

    Raises:
        InvalidObjectError: names `what` and `field.<resource>`.
    """
    if not raw:
        return {}
    try:
        return dict(_offered(tuple(raw.items())))
    except InvalidObjectError as exc:
        raise InvalidObjectError(what, f"{field}.{exc.problem}") from exc


def extended_requests(
    raw: Mapping[str, Quantity], *, what: str
) -> tuple[tuple[str, int, int], ...]:
    """Extended resources of a container: name, place among its sorted names, whole amount.

    Raises:
        InvalidObjectError: names `what` and the resource.
    """
    try:
        return _extended(tuple(raw.items()))
    except InvalidObjectError as exc:
        raise InvalidObjectError(what, f"resources.requests.{exc.problem}") from exc


@lru_cache(maxsize=_CACHED)
def _extended(items: tuple[tuple[str, Quantity], ...]) -> tuple[tuple[str, int, int], ...]:
    found = []
    for place, (name, value) in enumerate(sorted(items, key=itemgetter(0))):
        if not (_is_extended(name) or name.startswith(IMPLICIT_RESOURCE)):
            continue
        amount = request_ceil(value, scale=1, what="", field=name)
        if amount:
            found.append((name, place, amount))
    return tuple(found)


def _is_extended(name: str) -> bool:
    domain, slash, _ = name.partition("/")
    native = domain.endswith("kubernetes.io") or name.startswith("requests.")
    return bool(slash) and not native


@lru_cache(maxsize=_CACHED)
def _requested(items: tuple[tuple[str, Quantity], ...]) -> Mapping[str, int]:
    amounts = _amounts(items, request_ceil)
    amounts.pop(PODS, None)
    return {name: amount for name, amount in amounts.items() if amount}


@lru_cache(maxsize=_CACHED)
def _offered(items: tuple[tuple[str, Quantity], ...]) -> Mapping[str, int]:
    return _amounts(items, capacity_floor)


def _amounts(items: tuple[tuple[str, Quantity], ...], rounding: _Rounding) -> Amounts:
    amounts: Amounts = {}
    for name, value in items:
        scale = _scale(name)
        if scale == _IGNORED:
            rounding(value, scale=1, what="", field=name)  # still no place for nonsense
        elif name.endswith(GPU):
            amounts[GPU] = amounts.get(GPU, 0) + _gpu_micro(name, value, rounding)
        else:
            amounts[name] = rounding(value, scale=scale, what="", field=name)
    return amounts


def _gpu_micro(name: str, value: Quantity, rounding: _Rounding) -> int:
    devices = rounding(value, scale=1, what="", field=name)
    if devices > _DEVICES_MAX:
        raise InvalidObjectError("", f"{name} is {value!r}, want at most {_DEVICES_MAX} devices")
    return devices * GPU_MICRO


def _scale(name: str) -> int:
    """Units per whole of a resource; `_IGNORED` for a name without meaning.

    Reference: IsScalarResourceName of Kubernetes: extended, hugepages, prefixed native and
    attachable-volume names count in thousandths.
    """
    if name == CPU:
        return 1000
    if name in _PLAIN or name.startswith(MIG_PREFIX) or name.endswith(GPU):
        return 1
    extended = "/" in name and not name.startswith("requests.")
    if extended or name.startswith(("hugepages-", "attachable-volumes-")):
        return 1000
    return _IGNORED
