"""Facts of fairness §8."""

import pytest

from kai_es.scheduler.fairness.minruntime import (
    ResolveMethod,
    RunTimes,
    argument_ms,
    is_protected,
    keeps_minimum,
    may_be_victim,
)

QUEUES = {  # name: (parent, preempt, reclaim), seconds
    "dev": ("", 5, 10),
    "dev-team1": ("dev", None, 8),
    "dev-team2": ("dev", 3, None),
    "prod": ("", 20, 30),
    "prod-team1": ("prod", None, 25),
    "prod-team2": ("prod", 15, 35),
    "research": ("", 4, 6),
    "research-project": ("research", 7, 9),
    "orphan": ("", None, 7),
    "a": ("", None, None),
    "b": ("a", None, 600),
    "c": ("b", None, None),
    "leaf1": ("c", None, 0),
    "leaf2": ("c", None, 180),
    "d": ("b", None, 60),
    "leaf3": ("d", None, None),
}
NAMES = list(QUEUES)


def path(name):
    rows = []
    while name:
        rows.append(NAMES.index(name))
        name = QUEUES[name][0]
    return rows


def times(method="lca"):
    return RunTimes(
        preempt=[queue[1] for queue in QUEUES.values()],
        reclaim=[queue[2] for queue in QUEUES.values()],
        default_preempt=2,
        default_reclaim=1,
        method=ResolveMethod.of(method),
    )


@pytest.mark.parametrize(
    ("victim", "seconds"),
    [("prod-team2", 15), ("prod-team1", 20), ("dev-team1", 5), ("prod", 20), ("research", 4)],
)
def test_preempt(victim, seconds):
    assert times().of_preempt(path(victim)) == seconds


@pytest.mark.parametrize(
    ("method", "reclaimer", "victim", "seconds"),
    [
        ("queue", "dev-team1", "prod-team2", 35),
        ("queue", "dev-team1", "dev-team2", 10),
        ("queue", "dev-team1", "research-project", 9),
        ("lca", "dev-team1", "prod-team2", 30),
        ("lca", "dev-team2", "dev-team1", 8),
        ("lca", "prod-team1", "prod-team2", 35),
        ("lca", "prod-team2", "prod-team2", 35),
        ("lca", "dev-team1", "research-project", 6),
        ("lca", "dev-team1", "orphan", 7),
        ("nonsense", "leaf1", "leaf3", 60),
        ("lca", "leaf1", "leaf2", 180),
        ("lca", "leaf3", "leaf1", 600),
        ("lca", "leaf3", "a", 1),
    ],
)
def test_reclaim(method, reclaimer, victim, seconds):
    assert times(method).of_reclaim(path(reclaimer), path(victim)) == seconds


def test_protection_ends_on_time_and_needs_a_start():
    assert is_protected(last_start_ms=100, min_runtime_ms=50, now_ms=149)
    assert not is_protected(last_start_ms=100, min_runtime_ms=50, now_ms=150)
    assert not is_protected(last_start_ms=0, min_runtime_ms=50, now_ms=10)


def test_elastic_victim_gives_its_surplus_while_protected():
    assert may_be_victim(protected=True, elastic=True)
    assert not may_be_victim(protected=True, elastic=False)
    assert keeps_minimum({"w": 1}, {"w": 3}, {"w": 1})
    assert not keeps_minimum({"w": 2}, {"w": 3}, {"w": 2})


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("5w4d12h", 948 * 3_600_000),
        ("1.5s", 1500),
        (".5s", 500),
        ("10m5s", 605_000),
        ("1us", 1),
        ("5", 0),
        ("1h2", 0),
        ("abc", 0),
        ("1h-30m", 0),
        ("-5s", 0),
        ("", 0),
        (None, 0),
        ("9" * 80 + "s", 0),
    ],
)
def test_argument(text, ms):
    assert argument_ms(text) == ms
