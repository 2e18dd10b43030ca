"""Which tasks of a job to place next, and which to give up next.

Both walk the sub-group tree and ask for tasks of a pod set through a callback, so that the core
decides what qualifies and in which order it holds tasks.

Reference: pkg/scheduler/api/podgroup_info/{allocation_info,eviction_info}.go (scheduler-core
§5.13, §5.14).
"""

from collections.abc import Callable, Sequence
from typing import Final, Generic, TypeAlias, TypeVar

from kai_es.scheduler.flags import GANG_MEMBERS_BY_ORDER, Flags
from kai_es.scheduler.jobs.order import MemberKey
from kai_es.scheduler.jobs.tree import (
    Counts,
    JobTree,
    Member,
    PodSet,
    SubGroupSet,
    held_members,
    holds,
)
from kai_es.snapshot.status import TaskStatus

T = TypeVar("T")

Take: TypeAlias = Callable[[int, int], Sequence[T]]
"""`take(leaf, n)`: up to n qualifying tasks of a pod set, in order."""

ALL_TASKS: Final = 2**31 - 1
"""As `n` of `Take`: more than any pod set holds."""


def should_allocate(status: TaskStatus, *, virtual: bool, real: bool) -> bool:
    """Whether a task may be placed.

    Args:
        status: of the task.
        virtual: the status exists only in an uncommitted statement.
        real: False in a simulation, where a victim evicted a moment ago may be placed again.
    """
    if status is TaskStatus.PENDING:
        return True
    return not real and virtual and status is TaskStatus.RELEASING


def tasks_to_allocate(
    tree: JobTree,
    allocated: Counts,
    available: Counts,
    take: Take[T],
    *,
    order: MemberKey,
    flags: Flags,
) -> list[T]:
    """The tasks of the job's next attempt.

    Below its minimum a job asks for exactly the tasks that are missing; above it for one task, or
    for one optional sub-group's gang.

    Args:
        tree: of the job.
        allocated: active-allocated tasks.
        available: tasks that are or could be allocated: alive and not gated, in a simulation also
            those virtually released. Tells which members could form a gang.
        take: pending tasks (in a simulation also virtually released ones), in task order.
        order: order of the members of a set.
        flags: rule flags in force.
    """
    if len(tree.leaves) == 1 and len(tree.root.members) == 1 and tree.root.needed == 1:
        (leaf,) = tree.leaves  # equal to the walk below; nearly every job is of this shape
        return list(take(leaf.leaf, max(leaf.min_available - allocated[leaf.leaf], 1)))
    walk = _Allocation(allocated, available, take, order, by_order=GANG_MEMBERS_BY_ORDER in flags)
    return walk.collect(tree.root)


class _Allocation(Generic[T]):
    """One walk for tasks to allocate."""

    def __init__(
        self,
        allocated: Counts,
        available: Counts,
        take: Take[T],
        order: MemberKey,
        *,
        by_order: bool,
    ) -> None:
        self.allocated = allocated
        self.available = available
        self.take = take
        self.order = order
        self.by_order = by_order

    def collect(self, group: SubGroupSet) -> list[T]:
        members = _sorted(group.members, self.allocated, self.order)
        held = held_members(group, self.allocated)
        if held >= group.needed:
            return self._first_that_grows(members)
        tasks: list[T] = []
        for member in self._gang(members, missing=group.needed - held, needed=group.needed):
            tasks.extend(self._lacking(member))
        return tasks

    def _gang(self, members: Sequence[Member], *, missing: int, needed: int) -> Sequence[Member]:
        """The members that are to make a set hold: those that have the pods for it come first."""
        if self.by_order:  # compat: allocation_info.go takes the first K members as they come
            return members[:needed]
        short = [member for member in members if not holds(member, self.allocated)]
        short.sort(key=lambda member: not holds(member, self.available))
        return short[:missing]

    def _lacking(self, member: Member) -> Sequence[T]:
        if holds(member, self.allocated):
            return ()
        if isinstance(member, PodSet):
            return self.take(member.leaf, member.min_available - self.allocated[member.leaf])
        return self.collect(member)

    def _first_that_grows(self, members: Sequence[Member]) -> list[T]:
        for member in members:
            if isinstance(member, PodSet):
                lacking = member.min_available - self.allocated[member.leaf]
                tasks = list(self.take(member.leaf, max(lacking, 1)))
            else:
                tasks = self.collect(member)
            if tasks:
                return tasks
        return []


def tasks_to_evict(
    tree: JobTree, allocated: Counts, take: Take[T], *, order: MemberKey
) -> tuple[list[T], bool]:
    """The tasks that a victim gives up next, and whether it would have more after them.

    First surplus tasks one by one, then surplus sub-groups whole, then everything at once.

    Args:
        tree: of the job.
        allocated: active-allocated tasks.
        take: active-allocated tasks, in reversed task order.
        order: order of the members of a set; walked backwards here.
    """
    tasks = _Eviction(allocated, take, order).surplus(tree.root)
    if not tasks:  # whole gang; the reference leaves the order of pod sets open, ours is by name
        tasks = [task for leaf in tree.leaves for task in take(leaf.leaf, ALL_TASKS)]
    return tasks, len(tasks) < sum(allocated)


class _Eviction(Generic[T]):
    """One walk for tasks to evict."""

    def __init__(self, allocated: Counts, take: Take[T], order: MemberKey) -> None:
        self.allocated = allocated
        self.take = take
        self.order = order

    def surplus(self, group: SubGroupSet) -> list[T]:
        """What can go while the set still holds; empty if nothing can."""
        held = held_members(group, self.allocated)
        if held == 0:
            return []
        members = _sorted(group.members, self.allocated, self.order)[::-1]
        if self._has_surplus(group):
            for member in members:
                if not isinstance(member, PodSet):
                    tasks = self.surplus(member)
                elif self._has_surplus(member):
                    tasks = list(self.take(member.leaf, 1))
                else:
                    continue
                if tasks:
                    return tasks
        if held > group.needed:
            for member in members:
                if tasks := self._all_of(member):
                    return tasks
        return []

    def _has_surplus(self, member: Member) -> bool:
        if isinstance(member, PodSet):
            return self.allocated[member.leaf] > member.min_available
        if held_members(member, self.allocated) > member.needed:
            return True
        return any(self._has_surplus(child) for child in member.members)

    def _all_of(self, member: Member) -> list[T]:
        if isinstance(member, PodSet):
            return list(self.take(member.leaf, ALL_TASKS))
        members = _sorted(member.members, self.allocated, self.order)[::-1]
        return [task for child in members for task in self._all_of(child)]


def _sorted(members: tuple[Member, ...], counts: Counts, order: MemberKey) -> Sequence[Member]:
    if len(members) == 1:
        return members
    return sorted(members, key=lambda member: order(member, counts))
