"""Which zones of a node give a pod what it asks for, if its policy allows it at all.

Reference: pkg/scheduler/plugins/numa (plugins §15.4).
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations
from typing import Final, NamedTuple, TypeAlias

from kai_es.kube.topologies import NumaNode
from kai_es.scheduler.numa.requests import Units

MODELLED: Final = frozenset({"restricted", "single-numa-node"})
"""Policies that can refuse a pod."""
SCORED: Final = MODELLED | {"best-effort"}
"""Policies under which pods are aligned at all."""

Amounts: TypeAlias = Mapping[str, int]
Room: TypeAlias = tuple[Amounts, ...]
"""What each zone has left."""
Placement: TypeAlias = tuple[tuple[int, Amounts], ...]
"""(number of a zone, what it gives), by number; zones that give nothing are left out."""


class Zones(NamedTuple):
    """The zones of a node, numbered in their order.

    aware: resources that every zone reports.
    """

    policy: str
    scope: str
    names: tuple[str, ...]
    aware: frozenset[str]
    allocatable: Room
    available: Room


def zones_of(node: NumaNode) -> Zones | None:
    """The zones of a node as reported, None = it has none."""
    if not node.zones:
        return None
    aware = frozenset(node.zones[0].allocatable)
    for zone in node.zones[1:]:
        aware &= frozenset(zone.allocatable)
    return Zones(
        node.policy,
        node.scope,
        tuple(zone.name for zone in node.zones),
        aware,
        tuple(zone.allocatable for zone in node.zones),
        tuple(zone.available for zone in node.zones),
    )


def align(zones: Zones, room: Room, units: Units, aligned: Iterable[str]) -> Placement | None:
    """Where a pod's requests come from.

    Args:
        zones: of the node.
        room: what they have left.
        units: of the pod.
        aligned: resources to look at.

    Returns:
        What its containers together take of the zones; None if a request cannot be aligned.
    """
    pod_scope = zones.scope == "pod"
    concurrent = (units.pod,) if pod_scope else units.concurrent
    names = sorted(aligned)
    for unit in () if pod_scope else units.serial:
        if _zones_for(zones, room, _need(unit, names)) is None:
            return None
    left = [dict(zone) for zone in room]
    taken: dict[int, dict[str, int]] = {}
    for unit in concurrent:
        need = _need(unit, names)
        chosen = _zones_for(zones, left, need)
        if chosen is None:
            return None
        _draw(need, chosen, left, taken)
    return tuple((zone, taken[zone]) for zone in sorted(taken))


def _need(unit: Amounts, names: Iterable[str]) -> dict[str, int]:
    return {name: unit[name] for name in names if unit.get(name, 0) > 0}


def _draw(
    need: Amounts,
    chosen: Sequence[int],
    left: Sequence[dict[str, int]],
    taken: dict[int, dict[str, int]],
) -> None:
    """Take a request from the chosen zones in turn, as far as each goes."""
    missing = dict(need)
    for name in need:
        for zone in chosen:
            part = min(missing[name], left[zone].get(name, 0))
            if part > 0:
                left[zone][name] -= part
                mine = taken.setdefault(zone, {})
                mine[name] = mine.get(name, 0) + part
                missing[name] -= part


def _zones_for(zones: Zones, room: Sequence[Amounts], need: Amounts) -> Sequence[int] | None:
    """The zones for one request, () = it asks for nothing that counts, None = refused."""
    if not need:
        return ()
    if zones.policy == "single-numa-node":
        return _some(room, need, 1)
    if zones.policy == "restricted":
        width = _width(zones.allocatable, need)
        return None if width is None else _some(room, need, width)
    return _greedy(room, need)


def _width(allocatable: Room, need: Amounts) -> int | None:
    """The fewest zones that could ever hold each resource, if that is one number for all."""
    widths: set[int] = set()
    for name, amount in need.items():
        total = width = 0
        for most in sorted((zone.get(name, 0) for zone in allocatable), reverse=True):
            if total >= amount:
                break
            total += most
            width += 1
        if total < amount:
            return None
        widths.add(width)
    return widths.pop() if len(widths) == 1 else None


def _some(room: Sequence[Amounts], need: Amounts, width: int) -> Sequence[int] | None:
    """The first so many zones that together have enough."""
    for chosen in combinations(range(len(room)), width):
        if all(sum(room[z].get(n, 0) for z in chosen) >= amount for n, amount in need.items()):
            return chosen
    return None


def _greedy(room: Sequence[Amounts], need: Amounts) -> Sequence[int] | None:
    """Zone by zone the one that covers most of what is missing."""
    unmet = dict(need)
    chosen: list[int] = []
    while unmet:
        covers = [
            (-sum(min(amount, max(room[z].get(n, 0), 0)) for n, amount in unmet.items()), z)
            for z in range(len(room))
            if z not in chosen
        ]
        most, zone = min(covers, default=(0, 0))
        if most == 0:
            return None
        chosen.append(zone)
        unmet = {
            n: amount - room[zone].get(n, 0)
            for n, amount in unmet.items()
            if amount > room[zone].get(n, 0)
        }
    return chosen


def charged(room: Room, placement: Placement, sign: int = -1) -> Room:
    """What is left when a placement is taken, or given back (`sign` 1)."""
    changed = list(room)
    for zone, amounts in placement:
        mine = dict(changed[zone])
        for name, amount in amounts.items():
            mine[name] = mine.get(name, 0) + sign * amount
        changed[zone] = mine
    return tuple(changed)
