"""Gang predicates of a job: ready, satisfied, elastic, stale, should pipeline.

Every function takes counts by pod set (`tree.Counts`), never tasks, so that the core can answer
them from columns.

Reference: pkg/scheduler/api/podgroup_info/job_info.go (scheduler-core §5.12).
"""

import enum
from collections.abc import Sequence

from kai_es.scheduler.flags import GANG_EVERY_POD_SET, STALE_EVERY_POD_SET, Flags
from kai_es.scheduler.jobs.tree import Counts, JobTree, PodSet, SubGroupSet, holds, leaves_below


def ready_for_scheduling(tree: JobTree, ungated: Counts) -> bool:
    """Whether enough pods exist to start the job.

    Args:
        tree: of the job.
        ungated: alive tasks that are not gated.
    """
    return holds(tree.root, ungated)


def gang_satisfied(tree: JobTree, used: Counts, flags: Flags) -> bool:
    """Whether the job runs with what it needs; a victim search must end in this.

    Args:
        tree: of the job.
        used: active-used tasks.
        flags: rule flags in force.
    """
    if GANG_EVERY_POD_SET in flags:  # compat: job_info.go IsGangSatisfied
        return all(used[leaf.leaf] >= leaf.min_available for leaf in tree.leaves)
    return holds(tree.root, used)


def elastic(tree: JobTree, total: Counts) -> bool:
    """Whether some pod set has more tasks than it needs, in whatever status."""
    return any(total[leaf.leaf] > leaf.min_available for leaf in tree.leaves)


def stale_leaves(tree: JobTree, used: Counts, *, succeeded: bool, flags: Flags) -> tuple[int, ...]:
    """The pod sets whose running tasks are of no use to their gang; empty = not stale.

    If the job has lost what it needs as a whole, that is every pod set. If only an optional
    sub-group is short of its own minimum, it is the pod sets of that sub-group.

    Args:
        tree: of the job.
        used: active-used tasks.
        succeeded: a task of the job has succeeded; such a job is never stale.
        flags: rule flags in force.

    Returns:
        `PodSet.leaf` numbers, rising.
    """
    everything = tuple(range(len(tree.leaves)))
    if succeeded or not any(used[leaf] for leaf in everything):
        return ()
    if STALE_EVERY_POD_SET in flags:  # compat: job_info.go IsStale
        short = any(used[leaf.leaf] < leaf.min_available for leaf in tree.leaves)
        return everything if short else ()
    if not holds(tree.root, used):
        return everything
    found: list[int] = []
    _useless(tree.root, used, found)
    return tuple(sorted(found))


def _useless(group: SubGroupSet, used: Counts, found: list[int]) -> None:
    """Adds the used leaves of members that do not hold below a set that does."""
    for member in group.members:
        if not holds(member, used):
            found.extend(leaf.leaf for leaf in leaves_below(member) if used[leaf.leaf])
        elif not isinstance(member, PodSet):
            _useless(member, used, found)


def should_pipeline(tree: JobTree, allocated: Counts, pipelined: Counts) -> bool:
    """Whether the job must wait as a whole because some pod set needs a task that waits.

    Args:
        tree: of the job.
        allocated: active-allocated tasks, pipelined ones included.
        pipelined: pipelined tasks.
    """
    return any(
        pipelined[leaf.leaf] > 0
        and allocated[leaf.leaf] - pipelined[leaf.leaf] < leaf.min_available
        for leaf in tree.leaves
    )


class Elasticity(enum.IntEnum):
    """Where a job stands against its minimum; the lower is served first."""

    BELOW = 0
    EXACT = 1
    ABOVE = 2


def elasticity(tree: JobTree, allocated: Counts) -> Elasticity:
    """The job's place for the order plugin `elastic`; every pod set counts, optional or not.

    Args:
        tree: of the job.
        allocated: active-allocated tasks.
    """
    above = False
    for leaf in tree.leaves:
        have = allocated[leaf.leaf]
        if have < leaf.min_available:
            return Elasticity.BELOW
        above = above or have > leaf.min_available
    return Elasticity.ABOVE if above else Elasticity.EXACT


def sub_group_is_gang(tree: JobTree) -> bool:
    """Whether some pod set needs more than one task (the texts of §12.2 differ)."""
    return any(leaf.min_available > 1 for leaf in tree.leaves)


def reduced(tree: JobTree, present: Sequence[int]) -> JobTree:
    """The tree of a partial job: minimums lowered to what the partial job has (§10.1).

    Args:
        tree: of the whole job.
        present: tasks of the partial job by leaf.
    """
    root = _reduce(tree.root, present)
    leaves = tuple(leaf for leaf in leaves_below(root))
    return JobTree(root, leaves, tree.leaf_of)


def _reduce(group: SubGroupSet, present: Sequence[int]) -> SubGroupSet:
    members: list[PodSet | SubGroupSet] = []
    with_tasks = 0
    for member in group.members:
        with_tasks += any(present[leaf.leaf] for leaf in leaves_below(member))
        if isinstance(member, PodSet):
            minimum = min(member.min_available, present[member.leaf])
            members.append(PodSet(member.name, minimum, member.leaf, member.topology))
        else:
            members.append(_reduce(member, present))
    needed = None if group.min_sub_group is None else min(group.min_sub_group, with_tasks)
    return SubGroupSet(group.name, tuple(members), needed, group.topology)
