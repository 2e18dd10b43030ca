"""Evictions come to an end: what gave way does not take its place back, to give way again."""

import pytest

from kai_es.events.decisions import Evict
from kai_es.scheduler import flags
from kai_es.scheduler.config import Config
from tests.scheduler_world.life import Life
from tests.scheduler_world.random_cluster import PROFILES, RandomCluster

CYCLES = 20
SETTLED = 10  # cycles; a chain of jobs that each make room for the next needs a few
QUICK = 8  # seeds per profile
LONG = 150

# without precedence for whom the room was made, these move one pod in every other cycle for ever
KNOWN = [
    ("fair", 36),
    ("fair", 165),
    ("basic", 51),
    ("basic", 99),
    ("basic", 203),
    ("preempt", 61),
    ("preempt", 166),
]


def evictions(profile, seed, rules, linger=0):
    life = Life(RandomCluster(profile, seed).world.snapshot, Config(withheld=()), rules, linger)
    return [sum(1 for op in life.run_cycle().ops if isinstance(op, Evict)) for _ in range(CYCLES)]


def check(profile, seed, linger=0):
    found = evictions(profile, seed, flags.NONE, linger)
    assert not any(found[SETTLED:]), f"{profile} {seed}: evictions by cycle {found}"


@pytest.mark.parametrize("linger", [0, 2])
@pytest.mark.parametrize("profile", PROFILES)
def test_evictions_settle(profile, linger):
    for seed in range(QUICK):
        check(profile, seed, linger)


@pytest.mark.parametrize(("profile", "seed"), KNOWN)
def test_moved_pods_do_not_come_back(profile, seed):
    check(profile, seed)


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("linger", [0, 2])
@pytest.mark.parametrize("profile", PROFILES)
def test_evictions_settle_on_many_clusters(profile, linger):
    for seed in range(QUICK, LONG):
        check(profile, seed, linger)
