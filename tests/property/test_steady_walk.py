"""SteadyWalk = QueueWalk when only the path of the last job changes between two pops."""

from hypothesis import given, settings
from hypothesis import strategies as st

from kai_es.scheduler.jobs.steady_walk import SteadyWalk
from kai_es.scheduler.jobs.walk import QueueWalk, WalkRules

PARENTS = [-1, 0, 0, -1, 3, 3, 4, -1]
LEAVES = (1, 2, 5, 6, 7)


class Tree:
    """Queues whose share grows with what they got."""

    def __init__(self, weights):
        self.used = [0] * len(PARENTS)
        self.weights = weights

    def key(self, row, job, _freed):
        size = 0 if job is None else job[1]
        return (self.used[row] + size) * self.weights[row], row

    def give(self, queue, size):
        while queue >= 0:
            self.used[queue] += size
            queue = PARENTS[queue]


jobs = st.lists(
    st.tuples(st.sampled_from(LEAVES), st.integers(0, 5), st.integers(0, 4)), max_size=25
)


@given(jobs, st.lists(st.integers(1, 3), min_size=8, max_size=8), st.data())
@settings(max_examples=200)
def test_both_walks_pop_the_same(raw, weights, data):
    works = [(queue, (rank, size, number)) for number, (queue, rank, size) in enumerate(raw)]
    trees = Tree(weights), Tree(weights)
    walks = [
        kind(PARENTS, WalkRules(tree.key, lambda job: (job[0], job[2])), works)
        for kind, tree in zip((QueueWalk, SteadyWalk), trees, strict=True)
    ]
    queue_of = {job: queue for queue, job in works}
    left = 60
    while walks[0] and left:
        popped = [walk.pop() for walk in walks]
        assert popped[0] == popped[1]
        job = popped[0]
        gives = data.draw(st.booleans())
        again = gives and data.draw(st.booleans())
        for walk, tree in zip(walks, trees, strict=True):
            if gives:
                tree.give(queue_of[job], job[1])
            if again:
                walk.push(queue_of[job], job)
        left -= 1
    assert bool(walks[0]) == bool(walks[1])
