"""The sub-group tree of a job, and the one test that every gang rule is made of.

The tree is static: it changes when the pod group changes, and is shared by every session. What
moves, the number of tasks per pod set in some group of statuses, is passed in as one sequence
indexed by `PodSet.leaf`, so that the core may keep it in columns.

Reference: pkg/scheduler/api/podgroup_info/subgroup_info (scheduler-core §5.11, §5.12).
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Final, TypeAlias

from kai_es.kube.labels import DEFAULT_POD_SET
from kai_es.kube.objects import PodGroup, SubGroup, TopologyConstraint

Counts: TypeAlias = Sequence[int]
"""Number of tasks by `PodSet.leaf`."""

DEPTH_MAX: Final = 64
"""Levels of sub-groups; workloads have three, and every walk of the tree recurses."""

_PLAIN_TREES: Final = 4096  # distinct minimums and constraints of jobs without sub-groups


class SubGroupError(ValueError):
    """`spec.subGroups` is no tree; the job is scheduled as one pod set with minimum 1."""


@dataclass(frozen=True, slots=True)
class PodSet:
    """A leaf: pods that are counted together.

    leaf:          position in `JobTree.leaves` and in every `Counts`.
    min_available: tasks it needs; 0 makes it optional.
    """

    name: str
    min_available: int
    leaf: int
    topology: TopologyConstraint | None = None

    @property
    def needed(self) -> int:
        """Tasks it needs."""
        return self.min_available


@dataclass(frozen=True, slots=True)
class SubGroupSet:
    """An inner node, or the root (whose name is empty).

    members:       sets and pod sets together, by name.
    min_sub_group: how many members must hold, None = all.
    needed:        members it needs, from `min_sub_group`.
    """

    name: str
    members: tuple["Member", ...]
    min_sub_group: int | None = None
    topology: TopologyConstraint | None = None
    needed: int = field(init=False)

    def __post_init__(self) -> None:
        needed = len(self.members) if self.min_sub_group is None else self.min_sub_group
        object.__setattr__(self, "needed", needed)


Member: TypeAlias = PodSet | SubGroupSet


@dataclass(frozen=True, slots=True)
class JobTree:
    """A job's sub-groups. `leaves[i].leaf == i`; leaves are in order of a walk by name."""

    root: SubGroupSet
    leaves: tuple[PodSet, ...]
    leaf_of: Mapping[str, int]

    def leaf_for(self, sub_group: str) -> int | None:
        """The pod set of a pod with this sub-group label ("" = none), None = it is in no job."""
        return self.leaf_of.get(sub_group or DEFAULT_POD_SET)


def holds(member: Member, counts: Counts) -> bool:
    """Whether a member has what it needs.

    With the counts of active-allocated tasks this is *satisfied*, with alive minus gated tasks it
    is *ready for scheduling*, with active-used tasks it is *not stale* (§5.12).
    """
    if isinstance(member, PodSet):
        return counts[member.leaf] >= member.min_available
    return held_members(member, counts) >= member.needed


def held_members(group: SubGroupSet, counts: Counts) -> int:
    """How many direct members have what they need."""
    return sum(1 for member in group.members if holds(member, counts))


def leaves_below(member: Member) -> Iterator[PodSet]:
    """Pod sets below a member, itself if it is one, in the order of a walk by name."""
    if isinstance(member, PodSet):
        yield member
        return
    for child in member.members:
        yield from leaves_below(child)


def tree_of(group: PodGroup) -> JobTree:
    """The tree that a job of this pod group is scheduled by.

    No sub-groups: one pod set `default` with the group's minimum. A broken tree: `default` with
    minimum 1, as of a job that has not been read yet (`tree_error` tells why).
    """
    if not group.sub_groups:
        minimum = 1 if group.min_member is None else max(group.min_member, 0)
        return _plain_tree(minimum, group.min_sub_group, group.topology)
    try:
        root = parse_sub_groups(group)
    except SubGroupError:
        return FRESH_TREE
    return number_leaves(root)


@lru_cache(maxsize=_PLAIN_TREES)
def _plain_tree(
    minimum: int, min_sub_group: int | None, topology: TopologyConstraint | None
) -> JobTree:
    members = (_default_set(minimum),)
    return number_leaves(SubGroupSet("", members, min_sub_group, topology))


def tree_error(group: PodGroup) -> str:
    """What is wrong with the sub-groups, "" if nothing."""
    try:
        parse_sub_groups(group)
    except SubGroupError as exc:
        return str(exc)
    return ""


def parse_sub_groups(group: PodGroup) -> SubGroupSet:
    """The root of the tree that the spec describes; leaves are not numbered yet.

    Raises:
        SubGroupError: a name twice, an unknown parent, a cycle, or more than `DEPTH_MAX` levels.
    """
    by_name: dict[str, SubGroup] = {}
    for sub in group.sub_groups:
        if sub.name in by_name:
            raise SubGroupError(f"subgroup <{sub.name}> already exists")
        by_name[sub.name] = sub
    children: dict[str, list[SubGroup]] = {}
    top: list[SubGroup] = []
    for sub in group.sub_groups:
        if sub.parent is None:
            top.append(sub)
            continue
        parent = sub.parent.lower()  # compat: the reference lowers references, not names
        if parent not in by_name:
            raise SubGroupError(f"parent subgroup <{sub.parent}> of <{sub.name}> not found")
        children.setdefault(parent, []).append(sub)
    seen: list[str] = []
    members = tuple(_member(sub, children, seen, 1) for sub in sorted(top, key=_name))
    if len(seen) < len(by_name):
        lost = min(name for name in by_name if name not in seen)
        raise SubGroupError(f"subgroup <{lost}> is its own ancestor")
    return SubGroupSet("", members, group.min_sub_group, group.topology)


def _name(sub: SubGroup) -> str:
    return sub.name


def _member(
    sub: SubGroup, children: Mapping[str, list[SubGroup]], seen: list[str], depth: int
) -> Member:
    if depth > DEPTH_MAX:
        raise SubGroupError(f"subgroup <{sub.name}> is nested deeper than {DEPTH_MAX} levels")
    seen.append(sub.name)
    below = children.get(sub.name)
    if below is None:
        return PodSet(sub.name, max(sub.min_member or 0, 0), -1, sub.topology)
    members = tuple(_member(child, children, seen, depth + 1) for child in sorted(below, key=_name))
    return SubGroupSet(sub.name, members, sub.min_sub_group, sub.topology)


def _default_set(minimum: int) -> PodSet:
    return PodSet(DEFAULT_POD_SET, minimum, 0)


def number_leaves(root: SubGroupSet) -> JobTree:
    """The tree of a root, with its leaves numbered in the order of a walk by name."""
    leaves: list[PodSet] = []
    numbered = _number(root, leaves)
    assert isinstance(numbered, SubGroupSet)
    return JobTree(numbered, tuple(leaves), {leaf.name: leaf.leaf for leaf in leaves})


def _number(member: Member, leaves: list[PodSet]) -> Member:
    if isinstance(member, PodSet):
        leaf = replace(member, leaf=len(leaves))
        leaves.append(leaf)
        return leaf
    return replace(member, members=tuple(_number(child, leaves) for child in member.members))


FRESH_TREE: Final = number_leaves(SubGroupSet("", (_default_set(1),)))
"""The tree of a job before its pod group is read, or whose sub-groups are broken."""


def resolve_aliases(
    constraint: TopologyConstraint | None, aliases: Mapping[str, Mapping[str, str]]
) -> TopologyConstraint | None:
    """The constraint with level aliases replaced by node labels (§4.12).

    Args:
        constraint: of any node of a tree.
        aliases: topology -> alias -> node label.
    """
    if constraint is None or not (known := aliases.get(constraint.topology)):
        return constraint
    return TopologyConstraint(
        topology=constraint.topology,
        required=known.get(constraint.required, constraint.required),
        preferred=known.get(constraint.preferred, constraint.preferred),
    )


def with_aliases(root: SubGroupSet, aliases: Mapping[str, Mapping[str, str]]) -> SubGroupSet:
    """The tree with the aliases of all its constraints resolved."""
    resolved = _with_aliases(root, aliases)
    assert isinstance(resolved, SubGroupSet)
    return resolved


def _with_aliases(member: Member, aliases: Mapping[str, Mapping[str, str]]) -> Member:
    topology = resolve_aliases(member.topology, aliases)
    if isinstance(member, PodSet):
        return replace(member, topology=topology)
    below = tuple(_with_aliases(child, aliases) for child in member.members)
    return replace(member, members=below, topology=topology)


def without_aliases(tree: JobTree, aliases_of: Callable[[str], Mapping[str, str]]) -> JobTree:
    """The tree of a job with the aliases of all its constraints resolved."""
    names = {constraint.topology for constraint in _constraints(tree.root)}
    known = {name: found for name in sorted(names) if (found := aliases_of(name))}
    return number_leaves(with_aliases(tree.root, known)) if known else tree


def _constraints(member: Member) -> Iterator[TopologyConstraint]:
    if member.topology is not None:
        yield member.topology
    if not isinstance(member, PodSet):
        for child in member.members:
            yield from _constraints(child)


def has_constraint(group: PodGroup) -> bool:
    """Whether some part of a pod group must or should be together in a topology."""
    return group.topology is not None or any(sub.topology for sub in group.sub_groups)
