"""The order in which the queue tree hands out jobs (fairness §4.2)."""

from kai_es.scheduler import flags
from kai_es.scheduler.fairness.vectors import NOTHING
from kai_es.scheduler.jobs.walk import QueueWalk, WalkRules

ROOT = -1


def by_row(row, _job, _freed):
    return row


def a_walk(parents, jobs, *, queue_key=by_row, job_key=lambda job: job, **rules):
    return QueueWalk(parents, WalkRules(queue_key, job_key, **rules), jobs)


def popped(walk):
    jobs = []
    while walk:
        jobs.append(walk.pop())
    return jobs


def test_job_order_counts_only_inside_a_leaf():
    walk = a_walk([ROOT, 0, 0], [(1, 200), (2, 100), (1, 50)])
    assert popped(walk) == [50, 200, 100]


def test_branches_of_any_depth_compete_at_their_common_parent():
    parents = [ROOT, 0, 0, 2, ROOT]
    assert popped(a_walk(parents, [(3, 3), (1, 1), (4, 4)])) == [1, 3, 4]


def test_queue_is_sorted_anew_only_when_it_comes_up():
    share = {0: 0, 1: 1, 2: 2}
    walk = a_walk(
        [ROOT, ROOT, ROOT],
        [(0, 1), (0, 2), (1, 3), (2, 4)],
        queue_key=lambda row, _job, _freed: share[row],
    )
    assert walk.pop() == 1
    share[0] = 5
    assert walk.pop() == 3
    assert walk.pop() == 4
    assert walk.pop() == 2
    assert walk.pop() is None


def test_pushed_job_competes_again_and_missing_ancestors_come_back():
    walk = a_walk([ROOT, 0, 1], [])
    assert not walk
    walk.push(2, 7)
    walk.push(2, 5)
    assert walk.pop() == 5
    walk.push(2, 6)
    assert popped(walk) == [6, 7]
    walk.push(2, 1)
    assert popped(walk) == [1]


def test_victims_come_last_first_and_their_queue_counts_as_freed():
    use = {0: 300, 1: 300}
    walk = a_walk(
        [ROOT, ROOT],
        [(0, (100, "a")), (0, (99, "b")), (0, (98, "c")), (1, (100, "d")), (1, (99, "e"))],
        queue_key=lambda row, _job, freed: (use[row] - freed[0], row),
        job_key=lambda job: (-job[0], job[1]),
        victims=True,
        freed=lambda _job: (100, 0, 0),
    )
    assert [job[1] for job in popped(walk)] == ["e", "c", "d", "b", "a"]


def test_bounded_leaf_keeps_the_best_jobs():
    jobs = [(0, job) for job in (3, 1, 4, 2, 5)]
    assert popped(a_walk([ROOT], jobs, depth=2)) == [1, 2]
    assert popped(a_walk([ROOT], jobs, depth=0)) == []


def test_bounded_leaf_drops_its_last_slot_under_compat():
    jobs = [(0, job) for job in (3, 1, 4, 2, 5)]
    # heap of two: [3], [1, 3], 4 dropped, 2 above 3? no: 2 is sifted up to slot 2 only
    walk = a_walk([ROOT], jobs, depth=2, flags=flags.ALL)
    assert popped(walk) == [1, 3]


def test_freed_is_nothing_in_normal_mode():
    seen = []
    walk = a_walk(
        [ROOT, ROOT],
        [(0, 1), (1, 2)],
        queue_key=lambda row, job, freed: (seen.append((job, freed)), row)[1],
    )
    popped(walk)
    assert {freed for _, freed in seen} == {NOTHING}
    assert {job for job, _ in seen} == {1, 2}
