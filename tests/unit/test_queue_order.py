"""Facts of fairness §2.3 and §4.1."""

import pytest

from kai_es.kube.labels import GPU_MICRO, UNLIMITED
from kai_es.kube.objects import Queue, QueueShare
from kai_es.scheduler import flags
from kai_es.scheduler.fairness.order import QueueStanding, queue_key
from kai_es.scheduler.fairness.shares import (
    allocatable,
    allocatable_share,
    dominant_share,
    quota_of,
    requestable,
)
from kai_es.scheduler.fairness.vectors import NOTHING

FREE = (UNLIMITED,) * 3


def gpu(devices: float) -> tuple[int, int, int]:
    return (0, 0, round(devices * GPU_MICRO))


def a_key(deserved, fair, used, priority=0, *, wanted=0.0, freed=0.0, created=0, rules=flags.NONE):
    standing = QueueStanding(
        gpu(deserved),
        gpu(fair),
        allocatable_share(gpu(deserved), gpu(fair), FREE),
        priority,
        created,
        "q",
    )
    return queue_key(standing, gpu(used), gpu(wanted), gpu(freed), gpu(100), rules)


@pytest.mark.parametrize(
    ("left", "right", "first"),
    [
        ((2, 99, 20, 0), (2, 2, 0, 0), "right"),
        ((2, 99, 20, 1), (2, 2, 0, 0), "right"),
        ((2, 99, 20, 1), (2, 2, 3, 0), "left"),
        ((2, 99, 20, 1), (2, 80, 3, 0), "left"),
        ((2, 99, 20, 0), (2, 80, 3, 0), "right"),
    ],
)
def test_starved_then_priority_then_dominant_share(left, right, first):
    assert (a_key(*left) < a_key(*right)) == (first == "left")


def test_what_the_next_job_takes_counts():
    ten = 10_000
    light = a_key(50, 50, 40, wanted=2 * 5000 / ten)
    assert light < a_key(50, 50, 40, wanted=2 * 10_000 / ten)
    assert a_key(50, 50, 40, wanted=4 * 8000 / ten) > a_key(50, 50, 40, wanted=4 * 2000 / ten)


def test_over_utilised_only_above_the_share_in_every_resource():
    def key(used, priority):
        fair = (1000, 1000, GPU_MICRO)
        standing = QueueStanding(fair, fair, fair, priority, 0, "q")
        return queue_key(standing, used, NOTHING, NOTHING, NOTHING, flags.NONE)

    over = key((1001, 1001, GPU_MICRO + 1), 9)
    assert over > key((1001, 0, 0), 0)
    assert key((1001, 1001, GPU_MICRO), 9) < key((1001, 0, 0), 0)


def test_freed_amounts_make_a_victim_queue_lighter():
    assert a_key(0, 9, 6, freed=3) < a_key(0, 9, 6)


def test_older_queue_then_name_decides():
    assert a_key(1, 1, 0, created=1) < a_key(1, 1, 0, created=2)


@pytest.mark.parametrize(
    ("deserved", "fair", "limit", "want"),
    [
        (1000, 1500, 2000, 1500),
        (1000, 1500, 600, 600),
        (2000, 1000, 3000, 2000),
        (2000, 1000, UNLIMITED, 2000),
        (UNLIMITED, 1500, UNLIMITED, UNLIMITED),
        (UNLIMITED, 1000, 2000, 2000),
    ],
)
def test_allocatable(deserved, fair, limit, want):
    assert allocatable(deserved, fair, limit) == want
    assert requestable(700, limit) == min(700, limit)


def test_dominant_share():
    share = (1000, 1000, 1000)
    assert dominant_share((500, 600, 700), share, NOTHING) == 0.7
    assert dominant_share((500, 0, 0), (0, 1000, 1000), NOTHING) == 500_000
    assert dominant_share((0, 0, 500_000), (1, 1, 0), NOTHING) == 500  # half a device
    assert dominant_share((0, 0, 700), (1, 1, UNLIMITED), (0, 0, 2000)) == 0.35
    assert dominant_share((0, 0, -5), share, NOTHING) == 0


def test_quota_of_an_object():
    queue = Queue(
        uid="u",
        name="q",
        cpu=QueueShare(quota=1500, limit=-1, weight=2),
        memory=QueueShare(quota=0.5, limit=-3, weight=1),
        gpu=QueueShare(quota=-2, limit=0.5, weight=0),
    )
    quota = quota_of(queue)
    assert quota.deserved == (1500, 500_000, -2 * GPU_MICRO)
    assert quota.limit == (UNLIMITED, UNLIMITED, GPU_MICRO // 2)
    assert quota.weight == (2, 1, 0)
