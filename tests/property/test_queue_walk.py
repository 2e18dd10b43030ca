"""The lazy walk against a naive one that looks for the best job anew each time."""

from hypothesis import given
from hypothesis import strategies as st

from kai_es.scheduler import flags
from kai_es.scheduler.jobs.walk import QueueWalk, WalkRules

PARENTS = (-1, -1, 0, 0, 1, 2, 2)  # leaves: 3, 4, 5, 6
LEAVES = (3, 4, 5, 6)
JOBS = st.lists(st.tuples(st.sampled_from(LEAVES), st.integers(0, 9)), max_size=14)


class Shares:
    """Queues that get worse with every job they were given."""

    def __init__(self, weights):
        self.weights = weights
        self.served = [0] * len(PARENTS)

    def key(self, row, _job, _freed):
        return (self.served[row] * self.weights[row], row)

    def serve(self, row):
        while row >= 0:
            self.served[row] += 1
            row = PARENTS[row]


def naive_pop(shares, jobs):
    """The best job by walking down from the best root among queues that hold a job."""
    holding = set()
    for leaf, _ in jobs:
        row = leaf
        while row >= 0:
            holding.add(row)
            row = PARENTS[row]
    row = -1
    while any(PARENTS[child] == row and child in holding for child in range(len(PARENTS))):
        below = [c for c in range(len(PARENTS)) if PARENTS[c] == row and c in holding]
        row = min(below, key=lambda child: shares.key(child, None, None))
    job = min(job for queue, job in jobs if queue == row)
    return row, job


@given(JOBS, st.lists(st.integers(1, 5), min_size=7, max_size=7), st.data())
def test_equals_the_naive_walk_while_served_queues_only_get_worse(jobs, weights, data):
    shares = Shares(weights)
    # jobs of one leaf are told apart by their place
    left = [(row, (number, n)) for n, (row, number) in enumerate(jobs)]
    walk = QueueWalk(
        PARENTS, WalkRules(shares.key, lambda job: job[1]), [(r, (r, j)) for r, j in left]
    )
    while left:
        want = naive_pop(shares, left)
        assert walk.pop() == want
        left.remove(want)
        shares.serve(want[0])
        if data.draw(st.booleans()):
            again = (want[0], (want[1][0] + 10, want[1][1]))
            if want[1][0] < 20:
                left.append(again)
                walk.push(want[0], again)
    assert walk.pop() is None
    assert not walk


@given(JOBS, st.integers(1, 4))
def test_bounded_leaves_keep_their_best_jobs(jobs, depth):
    numbered = [(row, (number, n)) for n, (row, number) in enumerate(jobs)]
    rules = WalkRules(lambda row, _j, _f: row, lambda job: job[1], depth=depth)
    walk = QueueWalk(PARENTS, rules, [(r, (r, j)) for r, j in numbered])
    popped = []
    while walk:
        popped.append(walk.pop())
    for leaf in LEAVES:
        mine = sorted(job for row, job in numbered if row == leaf)
        assert [job for row, job in popped if row == leaf] == mine[:depth]


@given(JOBS)
def test_unbounded_order_is_the_same_under_compat(jobs):
    def order_of(rules):
        numbered = [(row, (number, n)) for n, (row, number) in enumerate(jobs)]
        walk = QueueWalk(
            PARENTS,
            WalkRules(lambda row, _j, _f: row, lambda job: job, flags=rules),
            numbered,
        )
        popped = []
        while walk:
            popped.append(walk.pop())
        return popped

    assert order_of(flags.NONE) == order_of(flags.ALL)


@given(JOBS, st.randoms(use_true_random=False))
def test_order_of_arrival_does_not_matter(jobs, random):
    numbered = [(row, (number, n)) for n, (row, number) in enumerate(jobs)]
    shuffled = list(numbered)
    random.shuffle(shuffled)

    def order_of(given_jobs):
        walk = QueueWalk(PARENTS, WalkRules(lambda r, j, _f: (j, r), lambda j: j), given_jobs)
        popped = []
        while walk:
            popped.append(walk.pop())
        return popped

    assert order_of(numbered) == order_of(shuffled)
