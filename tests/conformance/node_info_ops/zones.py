"""NUMA zones and amounts of cases in our units, for the files `numa_plugin` and `numa_topology`.

Numbers count CPU in thousandths, memory in bytes and devices whole; strings are quantities.
"""

from collections.abc import Mapping
from typing import Any

from kai_es.kube.labels import CPU, GPU, GPU_MICRO, MEMORY
from kai_es.kube.resources import offered
from kai_es.scheduler.numa.alignment import Placement, Zones

Raw = Mapping[str, Any]


def our_name(name: str) -> str:
    return GPU if name.endswith(GPU) else name


def amounts_of(raw: Raw | None) -> dict[str, int]:
    found: dict[str, int] = {}
    for name, value in (raw or {}).items():
        if isinstance(value, str):
            found |= offered({name: value}, what="case", field="amount")
        else:
            found[our_name(name)] = round(value * _unit(name))
    return found


def _unit(name: str) -> int:
    if name.endswith(GPU):
        return GPU_MICRO
    return 1 if name in (CPU, MEMORY) else 1000


def zones_of(raw: Raw) -> Zones:
    return Zones(
        raw["policy"],
        raw["scope"],
        tuple(zone["id"] for zone in raw["zones"]),
        frozenset(our_name(name) for name in raw["alignedResources"]),
        tuple(amounts_of(zone["allocatable"]) for zone in raw["zones"]),
        tuple(amounts_of(zone["available"]) for zone in raw["zones"]),
    )


def shown_zones(zones: Zones, room: Any) -> list[Raw]:
    parts = zip(zones.names, zones.allocatable, room, strict=True)
    return [
        {"id": name, "allocatable": dict(allocatable), "available": dict(left)}
        for name, allocatable, left in parts
    ]


def placement_of(raw: Any) -> Placement:
    return tuple((part["zoneIndex"], amounts_of(part["amount"])) for part in raw or ())


def shown(placement: Placement) -> list[Raw]:
    return [{"zoneIndex": zone, "amount": dict(amounts)} for zone, amounts in placement]


def in_our_units(value: Any) -> Any:
    """What a case expects, with its amounts in our units."""
    if isinstance(value, Mapping):
        return {
            key: amounts_of(part)
            if key in ("amount", "allocatable", "available")
            else in_our_units(part)
            for key, part in value.items()
        }
    if isinstance(value, list):
        return [in_our_units(part) for part in value]
    return value
