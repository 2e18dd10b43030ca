"""Laws of gangs: what is asked for completes them, what is given up keeps them if it can."""

from hypothesis import given
from hypothesis import strategies as st

from kai_es.scheduler import flags
from kai_es.scheduler.jobs import gang, order, select
from kai_es.scheduler.jobs.tree import PodSet, SubGroupSet, holds, leaves_below, number_leaves


@st.composite
def sets(draw, depth=2):
    members = []
    for n in range(draw(st.integers(1, 3))):
        if depth and draw(st.booleans()):
            inner = draw(sets(depth - 1))
            members.append(SubGroupSet(f"s{n}", inner.members, inner.min_sub_group))
        else:
            members.append(PodSet(f"p{n}", draw(st.integers(0, 3)), -1))
    needed = draw(st.one_of(st.none(), st.integers(0, len(members))))
    return SubGroupSet("", tuple(sorted(members, key=lambda member: member.name)), needed)


@st.composite
def jobs(draw):
    tree = number_leaves(draw(sets()))
    n = len(tree.leaves)
    allocated = draw(st.lists(st.integers(0, 4), min_size=n, max_size=n))
    pending = draw(st.lists(st.integers(0, 4), min_size=n, max_size=n))
    return tree, allocated, pending


def asked(tree, allocated, pending, rules=flags.NONE):
    def take(leaf, n):
        assert n > 0
        return [leaf] * min(n, pending[leaf])

    available = [a + p for a, p in zip(allocated, pending, strict=True)]
    return select.tasks_to_allocate(
        tree, allocated, available, take, order=order.member_by_need, flags=rules
    )


@given(jobs())
def test_what_a_ready_job_asks_for_makes_it_hold(job):
    tree, allocated, pending = job
    available = [a + p for a, p in zip(allocated, pending, strict=True)]
    after = list(allocated)
    for leaf in asked(tree, allocated, pending):
        after[leaf] += 1
    assert all(a <= b for a, b in zip(after, available, strict=True))
    if holds(tree.root, available):
        assert holds(tree.root, after)


@given(jobs())
def test_no_smaller_request_below_the_minimum(job):
    """Leaving out any one task of a gang's request leaves the gang short."""
    tree, allocated, pending = job
    available = [a + p for a, p in zip(allocated, pending, strict=True)]
    if holds(tree.root, allocated) or not holds(tree.root, available):
        return
    tasks = asked(tree, allocated, pending)
    for left_out in set(tasks):
        after = list(allocated)
        for leaf in tasks:
            after[leaf] += 1
        after[left_out] -= 1
        assert not holds(tree.root, after)


@given(jobs(), st.sampled_from((flags.NONE, flags.ALL)))
def test_job_grows_until_everything_runs(job, rules):
    tree, allocated, pending = job
    allocated, pending = list(allocated), list(pending)
    for _ in range(sum(pending) + 1):
        tasks = asked(tree, allocated, pending, rules)
        if not tasks:
            break
        for leaf in tasks:
            allocated[leaf] += 1
            pending[leaf] -= 1
    stuck = holds(tree.root, [a + p for a, p in zip(allocated, pending, strict=True)])
    if rules == flags.NONE and stuck and holds(tree.root, allocated):
        for leaf in tree.leaves:  # nothing is left that could run by itself
            assert pending[leaf.leaf] == 0 or not can_grow(tree.root, allocated, pending)


def can_grow(member, allocated, pending):
    if isinstance(member, PodSet):
        return pending[member.leaf] > 0
    if holds(member, allocated):
        return any(can_grow(child, allocated, pending) for child in member.members)
    available = [a + p for a, p in zip(allocated, pending, strict=True)]
    return holds(member, available) and any(pending[leaf.leaf] for leaf in leaves_below(member))


@given(jobs())
def test_evictions_keep_the_gang_as_long_as_they_can_and_end_with_nothing(job):
    tree, allocated, _ = job
    left = list(allocated)
    for _ in range(sum(allocated) + 1):

        def take(leaf, n, left=left):
            return [leaf] * min(n, left[leaf])

        tasks, more = select.tasks_to_evict(tree, left, take, order=order.member_by_need)
        after = list(left)
        for leaf in tasks:
            after[leaf] -= 1
        assert min(after) >= 0
        assert more == any(after)
        if holds(tree.root, left) and len(tasks) < sum(left):
            assert holds(tree.root, after)
        left = after
        if not any(left):
            return
        assert tasks
    raise AssertionError("evictions never end")


@given(jobs())
def test_fast_path_equals_the_walk(job):
    tree, allocated, pending = job
    one = number_leaves(SubGroupSet("", tree.leaves[:1]))
    two = number_leaves(SubGroupSet("", (SubGroupSet("x", tree.leaves[:1]),)))
    for rules in (flags.NONE, flags.ALL):
        assert asked(one, allocated[:1], pending[:1], rules) == asked(
            two, allocated[:1], pending[:1], rules
        )


@given(jobs())
def test_stale_leaves_are_used_and_of_no_use(job):
    tree, used, _ = job
    lost = gang.stale_leaves(tree, used, succeeded=False, flags=flags.NONE)
    if not holds(tree.root, used):
        assert bool(lost) == any(used)
        return
    after = [0 if leaf in lost else n for leaf, n in enumerate(used)]
    assert holds(tree.root, after)
    assert gang.stale_leaves(tree, after, succeeded=False, flags=flags.NONE) == ()
    assert all(used[leaf] for leaf in lost)


@given(jobs())
def test_partial_job_is_satisfied_by_what_it_has(job):
    tree, allocated, _ = job
    partial = gang.reduced(tree, allocated)
    assert [leaf.leaf for leaf in partial.leaves] == list(range(len(tree.leaves)))
    if holds(tree.root, allocated):
        assert holds(partial.root, allocated)
