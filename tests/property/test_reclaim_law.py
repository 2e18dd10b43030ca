"""Reclaim takes nothing from a queue that is short for one that has more than its own."""

import pytest

from kai_es.scheduler.config import Config
from kai_es.scheduler.decide import open_session, run_action
from kai_es.scheduler.fairness.reclaim import leveled
from kai_es.scheduler.fairness.vectors import fits
from kai_es.scheduler.framework.statement import EVICT
from kai_es.scheduler.framework.statuses import PIPELINED
from tests.scheduler_world import World
from tests.scheduler_world.random_cluster import PROFILES, RandomCluster

CONFIG = Config(withheld=())


class Watch:
    """Compares the queues before and after every search that ends with evictions."""

    def __init__(self, session):
        self.session = session
        self.start = []
        self.broken = []
        self.n_lost = 0
        self._record = session.ledger.record
        session.ext.solution_start.append(self._starts)
        session.ledger.record = self._recorded

    def _starts(self, job):
        self.job = job
        self.start = list(self.session.shares.allocated)

    def _recorded(self, done, action, cause=None):
        self._record(done, action, cause)
        if action != "reclaim" or not any(op.kind == EVICT for op in done):
            return
        left = list(self.start)
        lost = {}
        for op in done:
            if op.kind == EVICT and self.session.status[op.task] != PIPELINED:
                lost.setdefault(self.session.job(op.task), []).append(op)
        for victim, ops in lost.items():
            self._look(victim, left)
            for op in ops:
                self.n_lost += 1
                amount = self.session.fair(op.task, op.node)
                for row in self.session.columns.queues.path[victim.queue]:
                    left[row] = tuple(a - b for a, b in zip(left[row], amount, strict=True))

    def _look(self, victim, left):
        shares, paths = self.session.shares, self.session.columns.queues.path
        mine, other = paths[self.job.queue], paths[victim.queue]
        level = leveled(mine, other)
        above = other[1 : other.index(level[1]) + 1]
        for x, y, caps in ((mine[0], other[0], above), (*level, ())):
            # a quota is worth no more than that of the queues above it
            own = [min(shares.deserved[row][r] for row in (y, *caps)) for r in range(3)]
            short = all(a < b for a, b in zip(left[y], own, strict=True))
            if short and not fits(shares.allocated[x], shares.deserved[x]):
                names = self.session.columns.queues.names
                self.broken.append(f"{names[x]} took from {names[y]}, which has {left[y]}")


def reclaimed(snapshot):
    session = open_session(snapshot, CONFIG, World().inputs())
    watch = Watch(session)
    for action in CONFIG.actions:
        run_action(session, action)
    return watch


def check(profile, seeds):
    n_lost = 0
    for seed in seeds:
        watch = reclaimed(RandomCluster(profile, seed).world.snapshot)
        assert watch.broken == [], seed
        n_lost += watch.n_lost
    assert n_lost > 0, "no cluster in which anything was taken"


@pytest.mark.parametrize("profile", ["fair", "reclaim", "everything"])
def test_no_short_queue_gives_to_one_above_its_own(profile):
    check(profile, range(30))


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("profile", PROFILES)
def test_no_short_queue_gives_on_many_clusters(profile):
    check(profile, range(300))
