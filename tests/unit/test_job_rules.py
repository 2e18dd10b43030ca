"""Tables of scheduler-core §5.11 to §5.15."""

import pytest

from kai_es.kube.objects import PodGroup, SubGroup
from kai_es.scheduler import flags
from kai_es.scheduler.jobs import delay, gang, minimal, order, select
from kai_es.scheduler.jobs.tree import (
    DEPTH_MAX,
    FRESH_TREE,
    PodSet,
    SubGroupError,
    SubGroupSet,
    held_members,
    holds,
    number_leaves,
    parse_sub_groups,
    tree_error,
    tree_of,
)


def a_group(*subs: SubGroup, **fields) -> PodGroup:
    return PodGroup(uid="u", namespace="ns", name="g", sub_groups=subs, **fields)


def a_tree(*members, needed=None):
    below = tuple(sorted(members, key=lambda member: member.name))
    return number_leaves(SubGroupSet("", below, needed))


def a_leaf(name: str, minimum: int) -> PodSet:
    return PodSet(name, minimum, -1)


def a_set(name: str, *members, needed=None) -> SubGroupSet:
    return SubGroupSet(name, tuple(sorted(members, key=lambda member: member.name)), needed)


def by_name(tree, **values):
    return [values[leaf.name] for leaf in tree.leaves]


def chosen(tree, active, pending, *, compat=False, available=None):
    """Names of the leaves of the tasks to allocate, one per task."""

    def take(leaf, n):
        return [tree.leaves[leaf].name] * min(n, pending[tree.leaves[leaf].name])

    allocated = by_name(tree, **active)
    if available is None:
        available = [a + pending[leaf.name] for a, leaf in zip(allocated, tree.leaves, strict=True)]
    return select.tasks_to_allocate(
        tree,
        allocated,
        available,
        take,
        order=order.member_by_need,
        flags=flags.ALL if compat else flags.NONE,
    )


@pytest.mark.parametrize(
    ("minimum", "active", "pending", "n"), [(4, 0, 6, 4), (4, 3, 3, 1), (4, 4, 2, 1), (4, 4, 0, 0)]
)
def test_one_pod_set_asks_for_what_is_missing_then_grows_by_one(minimum, active, pending, n):
    tree = tree_of(a_group(min_member=minimum))
    assert chosen(tree, {"default": active}, {"default": pending}) == ["default"] * n


@pytest.mark.parametrize("compat", [False, True])
def test_gang_asks_for_every_missing_member_at_once(compat):
    tree = a_tree(a_leaf("a", 1), a_leaf("b", 1), a_leaf("c", 1))
    got = chosen(tree, {"a": 1, "b": 0, "c": 0}, {"a": 0, "b": 1, "c": 1}, compat=compat)
    assert got == ["b", "c"]


def test_optional_set_waits_until_the_gang_runs_and_then_comes_whole():
    tree = a_tree(a_leaf("a", 2), a_leaf("b", 2), a_leaf("c", 2), needed=2)
    pending = {"a": 2, "b": 2, "c": 2}
    assert chosen(tree, {"a": 0, "b": 0, "c": 0}, pending) == ["a", "a", "b", "b"]
    later = chosen(tree, {"a": 2, "b": 2, "c": 0}, {"a": 0, "b": 0, "c": 2})
    assert later == ["c", "c"]


def test_gang_is_formed_by_the_member_that_has_the_pods():
    tree = a_tree(a_leaf("a", 2), a_leaf("b", 2), needed=1)
    active, pending = {"a": 0, "b": 0}, {"a": 1, "b": 2}
    assert chosen(tree, active, pending) == ["b", "b"]
    assert chosen(tree, active, pending, compat=True) == ["a"]


def test_gang_asks_only_for_the_number_of_members_it_misses():
    tree = a_tree(a_leaf("a", 1), a_leaf("b", 1), a_leaf("c", 1), needed=2)
    active, pending = {"a": 1, "b": 0, "c": 0}, {"a": 0, "b": 1, "c": 1}
    assert chosen(tree, active, pending) == ["b"]
    assert chosen(tree, active, pending, compat=True) == ["b", "c"]


def test_members_without_pods_are_asked_when_nobody_else_can_form_the_gang():
    tree = a_tree(a_leaf("a", 2), a_leaf("b", 2), needed=2)
    assert chosen(tree, {"a": 0, "b": 0}, {"a": 1, "b": 2}) == ["b", "b", "a"]


def evicted(tree, active):
    def take(leaf, n):
        name = tree.leaves[leaf].name
        return [name] * min(n, active[name])

    counts = by_name(tree, **active)
    return select.tasks_to_evict(tree, counts, take, order=order.member_by_need)


def test_surplus_tasks_go_first_then_surplus_sets_then_everything():
    tree = a_tree(a_leaf("a", 2), a_leaf("b", 2), a_leaf("c", 2), needed=2)
    assert evicted(tree, {"a": 3, "b": 2, "c": 2}) == (["a"], True)
    assert evicted(tree, {"a": 2, "b": 2, "c": 2}) == (["c", "c"], True)
    assert evicted(tree, {"a": 2, "b": 2, "c": 0}) == (["a", "a", "b", "b"], False)


def test_gang_that_does_not_hold_goes_whole():
    tree = a_tree(a_set("s", a_leaf("a", 2)), a_leaf("b", 1))
    assert evicted(tree, {"a": 1, "b": 0}) == (["a"], False)


def test_stale_sub_group_does_not_take_the_satisfied_one_with_it():
    """Field case 25."""
    tree = a_tree(a_leaf("c", 2), a_leaf("e", 2), needed=1)
    used = by_name(tree, c=2, e=1)
    lost = gang.stale_leaves(tree, used, succeeded=False, flags=flags.NONE)
    assert [tree.leaves[leaf].name for leaf in lost] == ["e"]
    everything = gang.stale_leaves(tree, used, succeeded=False, flags=flags.ALL)
    assert [tree.leaves[leaf].name for leaf in everything] == ["c", "e"]


@pytest.mark.parametrize("active_flags", [flags.NONE, flags.ALL])
def test_gang_short_of_a_needed_set_is_stale_as_a_whole(active_flags):
    tree = a_tree(a_leaf("c", 2), a_leaf("e", 2))
    used = by_name(tree, c=2, e=1)
    assert gang.stale_leaves(tree, used, succeeded=False, flags=active_flags) == (0, 1)
    assert gang.stale_leaves(tree, used, succeeded=True, flags=active_flags) == ()
    assert gang.stale_leaves(tree, [0, 0], succeeded=False, flags=active_flags) == ()


def test_unfilled_optional_set_does_not_spoil_a_solved_search():
    tree = a_tree(a_leaf("a", 1), a_leaf("b", 1), needed=1)
    assert gang.gang_satisfied(tree, [1, 0], flags.NONE)
    assert not gang.gang_satisfied(tree, [1, 0], flags.ALL)


def test_job_waits_whole_when_a_pipelined_task_is_needed():
    tree = tree_of(a_group(min_member=2))
    assert gang.should_pipeline(tree, [2], [1])
    assert not gang.should_pipeline(tree, [3], [1])
    assert not gang.should_pipeline(tree, [2], [0])


def test_partial_job_needs_no_more_than_it_has():
    tree = a_tree(a_set("s", a_leaf("a", 2), a_leaf("b", 2), needed=2), a_leaf("c", 3), needed=2)
    partial = gang.reduced(tree, by_name(tree, a=1, b=0, c=0))
    assert by_name(tree, a=1, b=0, c=0) == [leaf.min_available for leaf in partial.leaves]
    assert partial.root.needed == 1
    assert holds(partial.root, by_name(tree, a=1, b=0, c=0))


@pytest.mark.parametrize(
    ("subs", "error"),
    [
        ((SubGroup(name="x"), SubGroup(name="x")), "subgroup <x> already exists"),
        ((SubGroup(name="x", parent="p"),), "parent subgroup <p> of <x> not found"),
        (
            (SubGroup(name="x", parent="y"), SubGroup(name="y", parent="x")),
            "subgroup <x> is its own ancestor",
        ),
        (
            tuple(
                SubGroup(name=f"{n:03}", parent=f"{n - 1:03}" if n else None)
                for n in range(DEPTH_MAX + 1)
            ),
            f"subgroup <{DEPTH_MAX:03}> is nested deeper than {DEPTH_MAX} levels",
        ),
    ],
)
def test_broken_sub_groups_leave_the_fresh_tree(subs, error):
    with pytest.raises(SubGroupError, match=error):
        parse_sub_groups(a_group(*subs))
    assert tree_error(a_group(*subs)) == error
    assert tree_of(a_group(*subs)) is FRESH_TREE


def test_parent_reference_is_lowered_and_minimum_of_a_set_is_ignored():
    root = parse_sub_groups(
        a_group(SubGroup(name="p", min_member=9), SubGroup(name="c", parent="P", min_member=1))
    )
    (parent,) = root.members
    assert isinstance(parent, SubGroupSet)
    assert parent.needed == 1
    assert held_members(number_leaves(root).root, [1]) == 1


def test_pod_without_label_is_no_part_of_a_job_with_sub_groups():
    assert tree_of(a_group(SubGroup(name="a"))).leaf_for("") is None
    assert tree_of(a_group()).leaf_for("") == 0


@pytest.mark.parametrize(
    ("left", "right", "sign"),
    [
        ((1, 3), (2, 4), 0),
        ((1, 3), (5, 3), -1),
        ((4, 2), (9, 4), -1),
        ((10, 2), (9, 4), 1),
        ((4, 2), (8, 4), 0),
        ((5, 2), (0, 0), -1),
        ((1, 0), (0, 0), 1),
    ],
)
def test_sub_group_order_table(left, right, sign):
    keys = [order.member_by_need(PodSet("", need, 0), [have])[:-1] for have, need in (left, right)]
    assert (keys[0] > keys[1]) - (keys[0] < keys[1]) == sign


@pytest.mark.parametrize(
    ("left", "right", "default", "compat"),
    [
        (None, None, 0, 0),
        ("1", None, -1, -1),
        (None, "x", 1, 1),
        ("x", "1", 1, 1),
        ("1", "x", -1, -1),
        ("x", "y", 0, 1),
        ("5", "+5", 0, 0),
        ("1_0", "1", 1, 1),
        ("-2", "-1", 1, 1),
    ],
)
def test_task_priority_order(left, right, default, compat):
    sides = [
        {} if text is None else {"kai.scheduler/task-priority": text} for text in (left, right)
    ]
    assert order.compare_task_priority(*sides, flags.NONE) == default
    assert order.compare_task_priority(*sides, flags.ALL) == compat


def test_request_by_gpu_memory_makes_a_job_easier_unless_compat():
    vectors = {
        mib: [minimal.comparable((1,), gpu_count=1, gpu_memory_mib=mib, flags=flags.NONE)]
        for mib in (1000, 2000)
    }
    assert minimal.easier_to_schedule(vectors[1000], vectors[2000])
    assert not minimal.easier_to_schedule(vectors[2000], vectors[1000])
    same = [minimal.comparable((1,), gpu_count=1, gpu_memory_mib=1, flags=flags.ALL)]
    assert same == [(1,)]


def test_preemption_delay_counts_from_the_last_eviction():
    end = delay.preemption_delay_end(created_ms=100, last_eviction_ms=500, delay_ms=10)
    assert end == 510
    assert delay.within_preemption_delay(end, 509)
    assert not delay.within_preemption_delay(end, 510)
    assert delay.preemption_delay_end(created_ms=1, last_eviction_ms=2, delay_ms=-1) is None
