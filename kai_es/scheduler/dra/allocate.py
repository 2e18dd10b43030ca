"""Which devices of a node claims get, all of them together or none.

A search in a fixed order that takes back what leads nowhere. Devices of one request are tried in
rising order only, since their order does not matter. The work is bounded.

Reference: k8s.io/dynamic-resource-allocation/structured without optional features (plugins §10.4).
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from kai_es.kube.cel import CelError
from kai_es.kube.devices import (
    AllocatedDevice,
    Allocation,
    DeviceClass,
    DeviceConstraint,
    DeviceRequest,
)
from kai_es.kube.objects import Node
from kai_es.scheduler.dra.pools import Offer

RESULTS_MAX: Final = 32
"""Devices of one claim, a limit of the API."""
STEPS_MAX: Final = 5_000
"""Devices that a search looks at; far more than a node has, and some milliseconds of work."""


class Wanted(NamedTuple):
    """A claim that has no devices yet."""

    name: str
    requests: tuple[DeviceRequest, ...]
    constraints: tuple[DeviceConstraint, ...] = ()
    config: Any = None


class AllocationError(Exception):
    """Why claims get no devices on a node: claim, request and what is the matter."""


class _Slot(NamedTuple):
    """One device to be found."""

    claim: int
    request: DeviceRequest
    label: str
    candidates: Sequence[Offer]


class _Pick(NamedTuple):
    claim: int
    label: str
    admin: bool
    offer: Offer


def allocate(
    wanted: Sequence[Wanted],
    offers: Sequence[Offer],
    classes: Mapping[str, DeviceClass],
    *,
    node: Node,
    is_free: Callable[[Offer], bool],
) -> list[Allocation]:
    """Devices for claims on one node.

    Args:
        wanted: the claims.
        offers: what can be used on the node.
        classes: by name.
        node: the node.
        is_free: whether a device may be taken.

    Raises:
        AllocationError: they do not get what they want there.
    """
    search = _Search(wanted, offers, classes, is_free)
    picks = search.run()
    return [_allocation(n, claim, picks, classes, node) for n, claim in enumerate(wanted)]


class _Search:
    def __init__(
        self,
        wanted: Sequence[Wanted],
        offers: Sequence[Offer],
        classes: Mapping[str, DeviceClass],
        is_free: Callable[[Offer], bool],
    ) -> None:
        self._wanted = wanted
        self._offers = offers
        self._classes = classes
        self._is_free = is_free
        self._picks: list[_Pick] = []
        self._used: set[str] = set()
        self._steps = 0
        self._short: tuple[int, str] = (0, "")

    def run(self) -> list[_Pick]:
        plans = [
            self._plans(n, request)
            for n, one in enumerate(self._wanted)
            for request in one.requests
        ]
        if not self._place(plans, 0):
            claim, label = self._short
            raise AllocationError(
                f"claim {self._wanted[claim].name}: no devices for request {label}"
            )
        return self._picks

    # -- what each request may be met by

    def _plans(self, claim: int, request: DeviceRequest) -> list[list[_Slot]]:
        """Ways to meet a request, each a list of devices to be found; the first one first."""
        options = request.alternatives or (request,)
        plans: list[list[_Slot]] = []
        for option in options:
            label = option.name if option is request else f"{request.name}/{option.name}"
            slots = self._slots(claim, option, label)
            if slots is not None:
                plans.append(slots)
        if not plans:
            self._short = self._short if self._short[1] else (claim, request.name)
        return plans

    def _slots(self, claim: int, request: DeviceRequest, label: str) -> list[_Slot] | None:
        candidates = [offer for offer in self._offers if self._suits(claim, offer, request)]
        free = [offer for offer in candidates if request.admin or self._is_free(offer)]
        if request.mode == "All":
            if not candidates or len(free) < len(candidates):
                return None
            return [_Slot(claim, request, label, [offer]) for offer in candidates]
        if request.mode != "ExactCount" or request.count > len(free):
            return None
        if request.count > RESULTS_MAX:
            raise AllocationError(
                f"claim {self._wanted[claim].name}: request {label} wants {request.count} devices, "
                f"a claim has at most {RESULTS_MAX}"
            )
        return [_Slot(claim, request, label, free)] * request.count

    def _suits(self, claim: int, offer: Offer, request: DeviceRequest) -> bool:
        found = self._classes.get(request.device_class)
        if found is None:
            raise AllocationError(
                f"claim {self._wanted[claim].name}: device class {request.device_class} "
                "does not exist"
            )
        try:
            return offer.tolerated(request.tolerations) and all(
                offer.matches(text) for text in (*found.selectors, *request.selectors)
            )
        except CelError as exc:
            raise AllocationError(
                f"claim {self._wanted[claim].name}: selector of request {request.name} fails "
                f"for device {offer.key}: {exc}"
            ) from exc

    # -- search

    def _place(self, plans: list[list[list[_Slot]]], at: int) -> bool:
        """Whether all requests from `at` on can be met."""
        if at == len(plans):
            return True
        return any(self._fill(slots, 0, 0, plans, at) for slots in plans[at])

    def _fill(
        self,
        slots: list[_Slot],
        n: int,
        start: int,
        plans: list[list[list[_Slot]]],
        at: int,
    ) -> bool:
        """Whether the n-th device of a request, and all that follows, can be found."""
        if n == len(slots):
            return self._place(plans, at + 1)
        slot = slots[n]
        is_same = n > 0 and slots[n - 1].candidates is slot.candidates
        for position in range(start if is_same else 0, len(slot.candidates)):
            self._steps += 1
            if self._steps > STEPS_MAX:
                raise AllocationError(f"no devices found among {STEPS_MAX} choices")
            offer = slot.candidates[position]
            if not self._take(slot, offer):
                continue
            if self._fill(slots, n + 1, position + 1, plans, at):
                return True
            self._give_back(slot, offer)
        if (slot.claim, slot.label) > self._short or not self._short[1]:
            self._short = (slot.claim, slot.label)
        return False

    def _take(self, slot: _Slot, offer: Offer) -> bool:
        admin = slot.request.admin
        if not admin and offer.key in self._used:
            return False
        pick = _Pick(slot.claim, slot.label, admin, offer)
        if not all(self._agrees(one, pick) for one in self._wanted[slot.claim].constraints):
            return False
        if not admin:
            self._used.add(offer.key)
        self._picks.append(pick)
        return True

    def _give_back(self, slot: _Slot, offer: Offer) -> None:
        self._picks.pop()
        if not slot.request.admin:
            self._used.discard(offer.key)

    def _agrees(self, constraint: DeviceConstraint, pick: _Pick) -> bool:
        """Whether a device goes with those picked before it."""
        name = constraint.match or constraint.distinct
        if not name or not _is_of(pick.label, constraint.requests):
            return True
        value = pick.offer.device.attributes.get(name)
        if value is None:
            return False
        others = (
            one.offer.device.attributes.get(name)
            for one in self._picks
            if one.claim == pick.claim and _is_of(one.label, constraint.requests)
        )
        if constraint.match:
            return all(type(other) is type(value) and other == value for other in others)
        return all(other != value for other in others)


def _is_of(label: str, requests: tuple[str, ...]) -> bool:
    """Whether a request, or one of its alternatives, is among these; () = all."""
    return not requests or label in requests or label.split("/", maxsplit=1)[0] in requests


def _allocation(
    n: int, claim: Wanted, picks: Sequence[_Pick], classes: Mapping[str, DeviceClass], node: Node
) -> Allocation:
    mine = [pick for pick in picks if pick.claim == n]
    return Allocation(
        devices=tuple(
            AllocatedDevice(pick.label, *pick.offer.id, admin=pick.admin) for pick in mine
        ),
        node_selector=_selector(mine, node),
        config=list(_config(claim, mine, classes)) or None,
    )


def _selector(picks: Sequence[_Pick], node: Node) -> Any:
    """Where an allocation can be used, None = everywhere."""
    places = [pick.offer.nodes for pick in picks]
    if all(place.everywhere for place in places):
        return None
    selectors = [place.selector for place in places if not place.everywhere]
    if selectors[0] is not None and all(one == selectors[0] for one in selectors):
        return selectors[0]
    field = {"key": "metadata.name", "operator": "In", "values": [node.name]}
    return {"nodeSelectorTerms": [{"matchFields": [field]}]}


def _config(
    claim: Wanted, picks: Sequence[_Pick], classes: Mapping[str, DeviceClass]
) -> Iterator[Any]:
    """Parameters of the classes of its devices, then its own."""
    used = {}
    for request in claim.requests:
        for option in request.alternatives or (request,):
            label = option.name if option is request else f"{request.name}/{option.name}"
            used[label] = option.device_class
    for label in dict.fromkeys(pick.label for pick in picks):
        for one in classes[used[label]].config or ():
            yield {"source": "FromClass", "requests": [label], **one}
    for one in claim.config or ():
        yield {"source": "FromClaim", **one}
