"""Whether a queue may take from others, from whom, and how much.

Paths are those of the queue tree, upwards: a queue's row, its parent's, … its root's. All numbers
are of the moment before the search for this job began; what the scenario takes is subtracted here.

Reference: pkg/scheduler/plugins/proportion/reclaimable/** (fairness §6).
"""

import enum
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple, TypeAlias

from kai_es.kube.labels import UNLIMITED
from kai_es.scheduler.fairness.vectors import (
    NOTHING,
    RESOURCES,
    Resource,
    Vector,
    added,
    fits,
    subtracted,
)
from kai_es.scheduler.flags import CONSOLIDATING_RECLAIM_FREE, Flags

Path: TypeAlias = tuple[int, ...]
"""Queue rows, the leaf first and its root last."""

Names: TypeAlias = tuple[bool, bool, bool]
"""Which resources an amount names."""


class QueueBook(NamedTuple):
    """What reclaim looks at of one queue."""

    deserved: Vector
    fair_share: Vector
    allocatable: Vector
    allocated: Vector
    non_preemptible: Vector


Book: TypeAlias = Callable[[int], QueueBook]
"""The numbers of a queue by its row."""


class Reclaimer(NamedTuple):
    """The job that wants to reclaim: what its next tasks ask for."""

    path: Path
    requested: Vector
    names: Names
    preemptible: bool


class Unit(NamedTuple):
    """Tasks of one victim job that go together.

    moved: the scenario has placed them again, so they only lose the work of their restart.
    """

    amounts: Vector
    names: Names
    moved: bool = False


class VictimQueue(NamedTuple):
    """What a scenario takes from one leaf queue, in order."""

    path: Path
    units: Sequence[Unit]


class Objection(enum.Enum):
    """Why a scenario, or a reclaim as such, is not fair."""

    OVER_FAIR_SHARE = "the queue would be above its fair share"
    OVER_DESERVED = "a non-preemptible job would be above its queue's quota"
    VICTIM_WITHIN_SHARE = "the victim's queue is within its share"
    DISRUPTS_DESERVED = "over deserved, would disrupt a queue below deserved"
    SIBLING_WORSE_OFF = "a sibling queue would be less served than the reclaiming side"


class Verdict(NamedTuple):
    """An objection with the queue rows that it is about: the reclaiming side's, the other's."""

    objection: Objection
    mine: int
    other: int


def can_reclaim(queue: QueueBook, requested: Vector, *, preemptible: bool) -> Objection | None:
    """Whether a job may take from other queues at all; only its own leaf is looked at."""
    if not fits(added(queue.allocated, requested), queue.fair_share):
        return Objection.OVER_FAIR_SHARE
    if not preemptible and not fits(added(queue.non_preemptible, requested), queue.deserved):
        return Objection.OVER_DESERVED
    return None


def leveled(mine: Path, other: Path) -> tuple[int, int]:
    """The two queues that compete: where the paths part, seen from the roots.

    Where one path is a part of the other, the last common queue twice.
    """
    for x, y in zip(reversed(mine), reversed(other), strict=False):
        if x != y:
            return x, y
    shorter = min(mine, other, key=len)
    return shorter[0], shorter[0]


def may_be_victim(reclaimer: Reclaimer, victim: Path, book: Book) -> Objection | None:
    """Whether jobs of a leaf queue are worth a look as victims. Equal for all jobs of the queue.

    A cheap necessary condition of `ScenarioCheck`, but for one case, as in the reference: a side
    that is above its quota only in resources that are not asked for is no candidate.
    """
    x, y = leveled(reclaimer.path, victim)
    mine, other = book(x), book(y)
    if fits(added(mine.allocated, reclaimer.requested), mine.deserved):
        candidate = quota_candidate(other.allocated, other.deserved, reclaimer.requested)
        return None if candidate else Objection.VICTIM_WITHIN_SHARE
    if not fits(other.allocated, other.allocatable):
        return None
    return Objection.DISRUPTS_DESERVED


def is_shielded(reclaimer: Reclaimer, victim: Path, book: Book) -> bool:
    """Whether no task of a leaf queue may be taken, because the leaf is below its own quota.

    Only a reclaimer that would be above its own is held off. A necessary condition of
    `ScenarioCheck` too: a queue that would spoil every scenario must not enter one. Not under
    compat.
    """
    if within_deserved(book(reclaimer.path[0]), reclaimer.requested):
        return False
    _, level = leveled(reclaimer.path, victim)
    return _is_under(book(victim[0]).allocated, _leaf_quota(victim, level, book))


def _is_under(left: Vector, quota: Vector) -> bool:
    """Below the quota in every resource; one that has neither quota nor use is not looked at."""
    return left != quota and all(left[r] < quota[r] or left[r] == quota[r] == 0 for r in RESOURCES)


def _leaf_quota(path: Path, level: int, book: Book) -> Vector:
    """What a leaf is guaranteed: its quota, at most that of the queues above it up to a level."""
    quota = book(path[0]).deserved
    for row in path[1 : path.index(level) + 1]:
        above = book(row).deserved
        quota = (min(quota[0], above[0]), min(quota[1], above[1]), min(quota[2], above[2]))
    return quota


def quota_candidate(allocated: Vector, deserved: Vector, requested: Vector) -> bool:
    """Whether a queue above its quota is a victim for a request within one's own quota.

    Of the resources that are asked for and have a quota: some is above it, or none is below.
    """
    below = False
    for resource in RESOURCES:
        if requested[resource] > 0 and deserved[resource] < UNLIMITED:
            if allocated[resource] > deserved[resource]:
                return True
            below = below or allocated[resource] < deserved[resource]
    return not below


# -- the two strategies


def stays_above_share(remaining: Vector, other: QueueBook) -> bool:
    """*Maintain fair share*: the other side is still above its part in some resource."""
    return not fits(remaining, other.allocatable)


def within_deserved(mine: QueueBook, requested: Vector) -> bool:
    """The reclaiming side stays within its quota in every resource."""
    return fits(added(mine.allocated, requested), mine.deserved)


def above_deserved(remaining: Vector, other: QueueBook) -> bool:
    """The other side is above its quota in some resource."""
    return not fits(remaining, other.deserved)


def may_take(mine: QueueBook, requested: Vector, remaining: Vector, other: QueueBook) -> bool:
    """Whether a unit may be taken: by one of the strategies, the second being *guarantee quota*.

    Args:
        mine: the reclaiming side.
        requested: by the reclaimer.
        remaining: of the other side before the unit is taken.
        other: the other side.
    """
    return stays_above_share(remaining, other) or (
        within_deserved(mine, requested) and above_deserved(remaining, other)
    )


def may_move(mine: QueueBook, requested: Vector, other: QueueBook) -> bool:
    """Whether tasks of the other side may be restarted elsewhere.

    They lose no share, only work: a reclaimer within its quota may ask for that, and a side above
    its own quota must bear it.
    """
    return within_deserved(mine, requested) or above_deserved(other.allocated, other)


# -- the validator of scenarios


class ScenarioCheck:
    """Judges what scenarios take for one reclaimer; one object serves all scenarios of a search.

    Args:
        reclaimer: who reclaims.
        book: numbers of the queues before the search.
        multiplier: `relcaimerSaturationMultiplier`, at least 1.
        flags: rule flags in force.
    """

    def __init__(
        self,
        reclaimer: Reclaimer,
        book: Book,
        *,
        multiplier: float = 1.0,
        flags: Flags = frozenset(),
    ) -> None:
        self._reclaimer = reclaimer
        self._numbers = book
        self._multiplier = multiplier
        self._books: dict[int, QueueBook] = {}
        # compat: only the level at which the paths part is looked at
        self._shields = CONSOLIDATING_RECLAIM_FREE not in flags and not within_deserved(
            book(reclaimer.path[0]), reclaimer.requested
        )
        self._remaining: dict[int, Vector] = {}
        self._involved: dict[int, Names] = {}

    def objection(self, victims: Iterable[VictimQueue], parents: Sequence[int]) -> Verdict | None:
        """Why the scenario is not fair; None = it is.

        Args:
            victims: what it takes, a leaf queue once each.
            parents: by queue row, negative at a root.
        """
        self._remaining.clear()
        self._involved.clear()
        for victim in sorted(victims, key=lambda victim: victim.path):
            verdict = self._take(victim)
            if verdict is not None:
                return verdict
        return self._reclaiming_side(parents)

    def _take(self, victim: VictimQueue) -> Verdict | None:
        """Step A: whether each unit may be taken."""
        x, y = leveled(self._reclaimer.path, victim.path)
        mine, other = self._book(x), self._book(y)
        requested = self._reclaimer.requested
        for unit in victim.units:
            if unit.moved:
                if not may_move(mine, requested, other):
                    return Verdict(Objection.DISRUPTS_DESERVED, x, y)
            elif not may_take(mine, requested, self._left(y), other):
                return Verdict(Objection.VICTIM_WITHIN_SHARE, x, y)
            if self._shields and self._protected(victim.path, y):
                leaf = self._reclaimer.path[0]
                return Verdict(Objection.DISRUPTS_DESERVED, leaf, victim.path[0])
            if not unit.moved:
                self._subtract(victim.path, unit)
        return None

    def _protected(self, path: Path, level: int) -> bool:
        """Whether a leaf below its own quota would give way to one above its own."""
        return _is_under(self._left(path[0]), _leaf_quota(path, level, self._book))

    def _book(self, row: int) -> QueueBook:
        found = self._books.get(row)
        if found is None:
            found = self._books[row] = self._numbers(row)
        return found

    def _left(self, row: int) -> Vector:
        left = self._remaining.get(row)
        return self._book(row).allocated if left is None else left

    def _subtract(self, path: Path, unit: Unit) -> None:
        for row in path:
            self._remaining[row] = subtracted(self._left(row), unit.amounts)
            before = self._involved.get(row, (False, False, False))
            self._involved[row] = (
                before[0] or unit.names[0],
                before[1] or unit.names[1],
                before[2] or unit.names[2],
            )

    def _reclaiming_side(self, parents: Sequence[int]) -> Verdict | None:
        """Step B: whether the reclaiming side stays within bounds, on every level."""
        reclaimer = self._reclaimer
        for row in reclaimer.path:
            queue = self._book(row)
            mine = added(self._left(row), reclaimer.requested)
            for sibling in sorted(self._remaining):
                if sibling == row or parents[sibling] != parents[row]:
                    continue
                if self._worse_off(queue, mine, sibling):
                    return Verdict(Objection.SIBLING_WORSE_OFF, row, sibling)
            fixed = added(queue.non_preemptible, reclaimer.requested)
            if not reclaimer.preemptible and not fits(fixed, queue.deserved):
                return Verdict(Objection.OVER_DESERVED, row, row)
        return None

    def _worse_off(self, queue: QueueBook, mine: Vector, sibling: int) -> bool:
        """Whether a sibling would be no better served than the reclaiming side above its share."""
        share = self._book(sibling).fair_share
        left, involved = self._remaining[sibling], self._involved[sibling]
        for resource in RESOURCES:
            if not (involved[resource] or self._reclaimer.names[resource]):
                continue
            if not 0 < share[resource] < UNLIMITED:
                continue
            ratio = saturation(mine[resource], queue.fair_share[resource])
            if ratio > 1.0 and ratio * self._multiplier >= saturation(
                left[resource], share[resource]
            ):
                return True
        return False


def saturation(allocated: int, fair_share: int) -> float:
    """How far a queue is served: 1 = exactly its fair share."""
    if fair_share >= UNLIMITED:
        return 0.0
    if fair_share == 0:
        return math.inf if allocated > 0 else 0.0
    return allocated / fair_share


# -- what goes together


class Fate(enum.Enum):
    """What a simulation has made of an evicted task."""

    LOST = "lost"
    MOVED = "moved"
    KEPT = "kept"


class VictimTask(NamedTuple):
    """A task that a scenario evicts.

    sub_group: its pod set.
    fate:      without a place, at another place, or back where it was.
    """

    sub_group: str
    amounts: Vector
    names: Names
    fate: Fate = Fate.LOST


def victim_units(
    tasks: Sequence[VictimTask],
    min_available: Mapping[str, int],
    *,
    allow_consolidating: bool,
    flags: Flags,
) -> list[Unit]:
    """The units in which a victim job's tasks go: surplus tasks one by one, then the gang.

    Tasks that were placed again do not leave their queue, so they weigh nothing there. By default
    those that were moved are judged by `may_move` and those that kept their place are none of
    anybody's business; under compat both are free.

    Args:
        tasks: of one victim job, in the order of eviction.
        min_available: by pod set.
        allow_consolidating: `--allow-consolidating-reclaim`; if not, a moved task counts as lost.
        flags: rule flags in force.
    """
    compat = CONSOLIDATING_RECLAIM_FREE in flags
    units: list[Unit] = []
    for part in _parts(tasks, min_available):
        lost = [task for task in part if _counts_as_lost(task, allow_consolidating, compat=compat)]
        moved = [task for task in part if task.fate is Fate.MOVED and allow_consolidating]
        if lost:
            units.append(_unit(lost, moved=False))
        if moved and not compat:
            units.append(_unit(moved, moved=True))
    return units


def _counts_as_lost(task: VictimTask, allow_consolidating: bool, *, compat: bool) -> bool:
    if task.fate is Fate.LOST:
        return True
    return not allow_consolidating and (task.fate is Fate.MOVED or compat)


def _parts(tasks: Sequence[VictimTask], min_available: Mapping[str, int]) -> list[list[VictimTask]]:
    """Every surplus task alone, then all tasks that the gang needs."""
    seen: dict[str, int] = {}
    total: dict[str, int] = {}
    for task in tasks:
        total[task.sub_group] = total.get(task.sub_group, 0) + 1
    core: list[VictimTask] = []
    parts: list[list[VictimTask]] = []
    for task in tasks:
        name = task.sub_group
        seen[name] = seen.get(name, 0) + 1
        minimum = min_available.get(name, 0)
        if minimum >= total[name] or seen[name] <= minimum:
            core.append(task)
        else:
            parts.append([task])
    return [*parts, core]


def _unit(tasks: Sequence[VictimTask], *, moved: bool) -> Unit:
    amounts = NOTHING
    for task in tasks:
        amounts = added(amounts, task.amounts)
    return Unit(amounts, _named(tasks), moved)


def _named(tasks: Sequence[VictimTask]) -> Names:
    cpu, memory, gpu = (
        any(task.names[resource] for task in tasks)
        for resource in (Resource.CPU, Resource.MEMORY, Resource.GPU)
    )
    return cpu, memory, gpu
