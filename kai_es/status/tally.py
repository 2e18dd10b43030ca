"""Sums of pods by group and of groups by queue, kept up to date by differences.

Equal to summing everything anew after each change (`tests/property/test_status.py`); how a pod or
a group counted before is remembered, so a change costs what changed, not what is there.
"""

from collections.abc import Mapping
from typing import NamedTuple

from kai_es.snapshot.snapshot import GroupKey
from kai_es.status.amounts import Amounts, count
from kai_es.status.shares import NOTHING, Share


class Sums:
    """What pods ask for and hold; `fixed`: what those hold that nobody may take the place of."""

    __slots__ = ("allocated", "fixed", "requested")

    def __init__(self) -> None:
        self.requested: dict[str, int] = {}
        self.allocated: dict[str, int] = {}
        self.fixed: dict[str, int] = {}

    def add(self, share: Share, *, fixed: bool, times: int = 1) -> None:
        """Count a share in so many times; −1 takes it out."""
        count(self.requested, share.requested, times)
        count(self.allocated, share.allocated, times)
        if fixed:
            count(self.fixed, share.allocated, times)

    def add_all(self, other: "Sums") -> None:
        """Count everything of another in."""
        count(self.requested, other.requested)
        count(self.allocated, other.allocated)
        count(self.fixed, other.fixed)

    def as_tuple(self) -> tuple[Amounts, Amounts, Amounts]:
        """For comparisons."""
        return self.requested, self.allocated, self.fixed


class Place(NamedTuple):
    """Where a group counts: its queue, and whether nobody may take the place of its pods."""

    queue: str
    fixed: bool


class Tally:
    """The sums.

    groups: by namespace and name, of pods that name it, whether it is there or not.
    queues: by name, of groups that name it, without the queues below.
    changed_groups, changed_queues: since somebody emptied them.
    """

    def __init__(self) -> None:
        self.groups: dict[GroupKey, Sums] = {}
        self.queues: dict[str, Sums] = {}
        self.changed_groups: dict[GroupKey, None] = {}
        self.changed_queues = False
        self._pods: dict[str, tuple[GroupKey, Share]] = {}
        self._places: dict[GroupKey, Place] = {}

    def set_pod(self, uid: str, key: GroupKey | None, share: Share) -> None:
        """A pod of this group counts so; no group = it counts nowhere."""
        old = self._pods.get(uid)
        if key is None or share == NOTHING:
            new = None
            self._pods.pop(uid, None)
        else:
            new = self._pods[uid] = (key, share)
        if old == new:
            return
        for entry, times in ((old, -1), (new, 1)):
            if entry is not None:
                self._count(*entry, times)

    def place(self, key: GroupKey, place: Place | None) -> None:
        """A group counts there; None = it is not there."""
        old = self._places.get(key)
        if old == place:
            return
        sums = self.groups.get(key)
        if place is None:
            del self._places[key]
        else:
            self._places[key] = place
        self.changed_groups[key] = None
        if sums is None:
            return
        whole = Share(sums.requested, sums.allocated)
        for one, times in ((old, -1), (place, 1)):
            if one is not None:
                self._count_queue(one, whole, times)

    def place_of(self, key: GroupKey) -> Place | None:
        """Where a group counts."""
        return self._places.get(key)

    def _count(self, key: GroupKey, share: Share, times: int) -> None:
        sums = self.groups.setdefault(key, Sums())
        sums.add(share, fixed=False, times=times)
        if not sums.requested and not sums.allocated:
            del self.groups[key]
        self.changed_groups[key] = None
        place = self._places.get(key)
        if place is not None:
            self._count_queue(place, share, times)

    def _count_queue(self, place: Place, share: Share, times: int) -> None:
        sums = self.queues.setdefault(place.queue, Sums())
        sums.add(share, fixed=place.fixed, times=times)
        if not sums.requested and not sums.allocated:
            del self.queues[place.queue]
        self.changed_queues = True


def with_children(own: Mapping[str, Sums], parents: Mapping[str, str]) -> dict[str, Sums]:
    """Sums of queues with all queues below them.

    Args:
        own: by queue, of its own groups.
        parents: of every queue, "" = a root; a cycle is gone round once.
    """
    totals = {name: Sums() for name in parents}
    for queue, sums in own.items():
        seen: set[str] = set()
        name = queue
        while name in totals and name not in seen:
            totals[name].add_all(sums)
            seen.add(name)
            name = parents[name]
    return totals
