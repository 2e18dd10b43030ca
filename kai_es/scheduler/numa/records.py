"""Placements as bind requests and annotations tell them.

Reference: pkg/scheduler/plugins/numa, pkg/scheduler/framework/bind_numa.go (plugins §15.3, §15.5).
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec

from kai_es.events.decisions import ZoneAmount
from kai_es.kube.errors import InvalidObjectError
from kai_es.kube.labels import CPU, GPU, GPU_MICRO, MEMORY, NUMA_OBSERVED, NUMA_PREDICTED
from kai_es.kube.resources import offered
from kai_es.scheduler.numa.alignment import Placement

_CORE: Final = 1000
_PLAIN: Final = frozenset({MEMORY, "ephemeral-storage", "storage"})

Record = tuple[ZoneAmount, ...]


def record_of(annotations: Mapping[str, str], granted: Sequence[ZoneAmount]) -> Record:
    """What is known of a pod's zones: as seen, else as its bind request or the binder says.

    A record that makes no sense counts as absent.
    """
    return (
        _parsed(annotations.get(NUMA_OBSERVED))
        or tuple(granted)
        or _parsed(annotations.get(NUMA_PREDICTED))
    )


def _parsed(text: str | None) -> Record:
    if not text:
        return ()
    try:
        return tuple(msgspec.json.decode(text, type=list[ZoneAmount]))
    except msgspec.DecodeError:
        return ()


def placement_of(record: Iterable[ZoneAmount], names: Sequence[str]) -> Placement:
    """The placement that a record tells of, () where a zone is unknown or an amount is none."""
    numbers = {name: number for number, name in enumerate(names)}
    found: dict[int, dict[str, int]] = {}
    for part in record:
        number = numbers.get(part.zone)
        if number is None:
            return ()
        try:
            amounts = offered(part.amount, what="", field="")
        except InvalidObjectError:
            return ()
        mine = found.setdefault(number, {})
        for name, amount in amounts.items():
            mine[name] = mine.get(name, 0) + amount
    return tuple((number, found[number]) for number in sorted(found))


def zone_name(names: Sequence[str], number: int) -> str | None:
    """The name of a zone by its number, None = there is no such zone."""
    return names[number] if 0 <= number < len(names) else None


def record_from(placement: Placement, names: Sequence[str], gpus: str) -> Record:
    """A placement as quantities by the names of zones and resources on the node.

    Args:
        placement: what each zone gives.
        names: of the zones.
        gpus: the name of GPUs on the node, "" = the usual one.
    """
    return tuple(
        ZoneAmount(
            zone=names[number],
            amount={
                gpus if name == GPU and gpus else name: _quantity(name, amount)
                for name, amount in sorted(amounts.items())
            },
        )
        for number, amounts in placement
    )


def _quantity(name: str, amount: int) -> str:
    if name == GPU:
        return str(amount // GPU_MICRO)
    if name in _PLAIN:
        return str(amount)
    whole, rest = divmod(amount, _CORE)
    if rest and name == CPU:
        return f"{amount}m"
    return str(whole)
