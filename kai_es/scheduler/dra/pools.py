"""The devices that can be used on a node.

Of a pool only the slices of its highest generation count, and only when all of them are there.
Devices are in the order of driver, pool, slice name, and of their slice.

Reference: k8s.io/dynamic-resource-allocation/structured, which the reference calls (plugins §10.4).
"""

from collections.abc import Iterable
from typing import Any, Final

from kai_es.kube.cel import CelError, SeenDevice
from kai_es.kube.devices import Device, DeviceId, DeviceTaint, DeviceToleration, ResourceSlice
from kai_es.kube.objects import Node
from kai_es.scheduler.solve.node_affinity import RequiredNodes

_KEEPS_AWAY: Final = frozenset({"NoSchedule", "NoExecute"})


class Offer:
    """One device, with where it can be used and what is known of its matches."""

    __slots__ = ("_known", "_seen", "device", "id", "key", "nodes")

    def __init__(self, device: Device, found: ResourceSlice, nodes: "Place") -> None:
        self.id = DeviceId(found.driver, found.pool, device.name)
        self.key = str(self.id)
        self.device = device
        self.nodes = nodes
        self._seen: SeenDevice | None = None
        self._known: dict[str, bool | CelError] = {}

    def matches(self, expression: str) -> bool:
        """Whether a selector chooses it.

        Raises:
            CelError: that cannot be told.
        """
        known = self._known.get(expression)
        if known is None:
            known = self._known[expression] = self._match(expression)
        if isinstance(known, CelError):
            raise known
        return known

    def _match(self, expression: str) -> bool | CelError:
        try:
            if self._seen is None:
                self._seen = SeenDevice(self.device, self.id.driver)
            return self._seen.matches(expression)
        except CelError as exc:
            return exc

    def tolerated(self, tolerations: Iterable[DeviceToleration]) -> bool:
        """Whether a request puts up with the taints of the device."""
        return all(
            any(_tolerates(one, taint) for one in tolerations)
            for taint in self.device.taints
            if taint.effect in _KEEPS_AWAY
        )


def _tolerates(toleration: DeviceToleration, taint: DeviceTaint) -> bool:
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    return toleration.operator == "Exists" or toleration.value == taint.value


class Place:
    """Where devices can be used: one node, all, or those that a selector chooses."""

    __slots__ = ("_required", "everywhere", "node", "selector")

    def __init__(self, node: str, selector: Any, *, everywhere: bool) -> None:
        self.node = node
        self.everywhere = everywhere
        self.selector = selector
        terms = None if selector is None else selector.get("nodeSelectorTerms") or ()
        self._required = None if terms is None else RequiredNodes({}, terms)

    def has(self, node: Node) -> bool:
        """Whether a node is there."""
        if self.everywhere:
            return True
        if self._required is not None:
            return self._required.matches(node.name, node.labels)
        return self.node == node.name


class Pools:
    """All devices on offer. Build it anew when slices change."""

    def __init__(self, slices: Iterable[ResourceSlice]) -> None:
        self._of_node: dict[str, list[Offer]] = {}
        self._wide: list[Offer] = []
        self._known: dict[str, tuple[Node, tuple[Offer, ...]]] = {}
        for found in _complete(slices):
            for device in found.devices:
                if not device.split:
                    self._add(Offer(device, found, _place(found, device)))

    def _add(self, offer: Offer) -> None:
        if offer.nodes.node:
            self._of_node.setdefault(offer.nodes.node, []).append(offer)
        else:
            self._wide.append(offer)

    def at(self, node: Node) -> tuple[Offer, ...]:
        """Devices that can be used on a node."""
        known = self._known.get(node.name)
        if known is None or known[0] is not node:
            wide = [offer for offer in self._wide if offer.nodes.has(node)]
            offers = (*self._of_node.get(node.name, ()), *wide)
            known = self._known[node.name] = (node, offers)
        return known[1]


def _complete(slices: Iterable[ResourceSlice]) -> Iterable[ResourceSlice]:
    """Slices of whole pools, in order."""
    pools: dict[tuple[str, str], list[ResourceSlice]] = {}
    for found in slices:
        pools.setdefault((found.driver, found.pool), []).append(found)
    for _, pool in sorted(pools.items()):
        newest = max(found.generation for found in pool)
        current = [found for found in pool if found.generation == newest]
        if len(current) >= max(found.n_slices for found in current):
            yield from sorted(current, key=lambda found: found.name)


def _place(found: ResourceSlice, device: Device) -> Place:
    """A slice that says nothing leaves it to each of its devices."""
    if found.node or found.all_nodes or found.node_selector is not None:
        return Place(found.node, found.node_selector, everywhere=found.all_nodes)
    return Place(device.node, device.node_selector, everywhere=device.all_nodes)
