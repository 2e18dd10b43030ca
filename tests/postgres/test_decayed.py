import asyncio
import math

import pytest

from kai_es.ports.errors import UnavailableError
from kai_es.ports.stores import Window
from kai_es.storage.decayed import PostgresDecayedUsage
from kai_es.storage.engine import connect_to
from tests.books.story import HOUR, MINUTE, START, Story, a_node, a_pod, a_queue, alive
from tests.postgres.test_usage_books import keep

pytestmark = pytest.mark.postgres

NOON = START + 2 * HOUR  # 12:00:00


def usage(engine, window, now=NOON):
    store = PostgresDecayedUsage(engine, lambda shard, now_ms: window)
    return asyncio.run(store.decayed(shard="default", now_ms=now))


def gpu(engine, start, half_life=None, now=NOON):
    found = usage(engine, Window(start, half_life), now).by_queue
    return {queue: shares["gpu"] for queue, shares in sorted(found.items())}


@pytest.fixture
def example(database):
    """fairness.md §15.5: 16 GPUs; three teams of one department."""
    story = Story()
    teams = [a_queue(f"team-{name}", parent="dept") for name in "abc"]
    story.batch(
        START,
        story.upsert(a_node(gpus=16)),
        story.upsert(a_queue("dept")),
        *(story.upsert(team) for team in teams),
    )

    def pod(name, gpus, start, end):
        more = {"gpus": gpus, "queue": f"team-{name}", "node": "n1"}
        events.append((start, story.upsert(a_pod(f"p-{name}", phase="Running", **more))))
        if end:
            events.append((end, story.upsert(a_pod(f"p-{name}", phase="Succeeded", **more))))

    events = []
    pod("a", 8, 3620, 5450)  # 11:00:20 - 11:30:50
    pod("b", 4, 6300, None)  # 11:45:00, still running
    pod("c", 16, 6005, 6050)  # 11:40:05 - 11:40:50
    for second, row in sorted(events, key=lambda event: event[0]):
        story.batch(START + second * 1000, row)
    story.batch(NOON, alive(NOON))
    keep(database, story.batches)
    return database


@pytest.mark.parametrize(
    ("start", "half_life", "expected"),
    [
        (NOON - HOUR, None, (0.329167, 0.254167, 0.062500, 0.012500)),
        (NOON - HOUR, 30 * MINUTE, (0.284200, 0.171858, 0.097631, 0.014710)),
        (NOON - 45 * MINUTE, None, (0.275926, 0.175926, 0.083333, 0.016667)),
    ],
)
def test_worked_example(example, start, half_life, expected):
    found = gpu(example, start, half_life)
    assert list(found) == ["dept", "team-a", "team-b", "team-c"]
    assert list(found.values()) == pytest.approx(expected, abs=5e-7)


def test_as_of_is_the_last_batch_folded(example):
    found = usage(example, Window(NOON - HOUR))
    assert found.as_of_ms == NOON
    assert found.as_of > 0
    assert usage(example, None) == ({}, found.as_of, NOON)


def test_open_intervals_go_on_behind_the_books(example):
    assert gpu(example, NOON, now=NOON + HOUR) == {"dept": 0.25, "team-b": 0.25}


def test_ages_far_beyond_the_half_life_do_not_underflow(example):
    found = gpu(example, 0, half_life=1, now=NOON + 24 * HOUR)
    assert found["team-b"] == pytest.approx(0.25)
    assert found["team-a"] == 0.0


@pytest.fixture
def burst(database):
    """10 GPU·h one hour before `NOON`: 600 GPUs for one minute; a capacity of 610 GPU·h in all."""
    story = Story()
    more = {"gpus": 600, "queue": "q", "node": "n1"}
    start = NOON - HOUR - MINUTE // 2
    story.batch(
        start,
        story.upsert(a_node(gpus=600)),
        story.upsert(a_queue("q")),
        story.upsert(a_pod(phase="Running", **more)),
    )
    story.batch(start + MINUTE, story.upsert(a_pod(phase="Succeeded", **more)))
    story.batch(NOON, alive(NOON))
    keep(database, story.batches)
    return database


@pytest.mark.parametrize("half_life", [None, 0, -1])
def test_field_case_7_half_life_left_out_is_no_decay(burst, half_life):
    capacity = 600 * (1 + 1 / 120)  # GPU·h
    assert gpu(burst, START, half_life)["q"] * capacity == pytest.approx(10)


def test_field_case_7_half_life_of_an_hour_halves(burst):
    decayed_capacity = 600 / math.log(2) * (1 - 0.5 ** (1 + 1 / 120))
    assert gpu(burst, START, HOUR)["q"] * decayed_capacity == pytest.approx(5, rel=1e-4)


def test_field_case_8_small_steps_are_not_lost(database):
    """1 GPU held 168 h, half-life 168 h, folded every 5 minutes: 0.5 of what it would be for ever.

    Each step adds 1 − 0.5^(5/10080) = 0.000344.
    """
    week = 168 * HOUR
    story = Story()
    more = {"gpus": 1, "queue": "q", "node": "n1"}
    story.batch(START - 60 * week, story.upsert(a_node(gpus=1)), story.upsert(a_queue("q")))
    story.batch(START, story.upsert(a_pod(phase="Running", **more)))
    for step in range(1, 168 * 12 + 1):
        story.batch(START + step * 5 * MINUTE, alive(START + step * 5 * MINUTE))
    keep(database, story.batches, cuts=set(range(0, 2018, 50)))
    one_step = gpu(database, START - 60 * week, week, now=START + 5 * MINUTE)["q"]
    assert one_step == pytest.approx(0.000344, abs=5e-7)
    assert gpu(database, START - 60 * week, week, now=START + week)["q"] == pytest.approx(0.5)


def test_database_away_is_unavailable(database):
    engine = connect_to("postgresql://nobody@127.0.0.1:1/none")
    with pytest.raises(UnavailableError, match="decayed usage"):
        usage(engine, Window(NOON - HOUR))


def test_pods_on_down_nodes_do_not_count_but_the_capacity_does(database):
    story = Story()
    more = {"gpus": 4, "queue": "q", "node": "n1"}
    story.batch(
        START,
        story.upsert(a_node(gpus=4)),
        story.upsert(a_node("n2", gpus=4)),
        story.upsert(a_queue("q")),
        story.upsert(a_pod(phase="Running", **more)),
    )
    story.batch(START + HOUR, story.upsert(a_node(gpus=4, ready=False)))
    story.batch(NOON, alive(NOON))
    keep(database, story.batches)
    assert gpu(database, START) == {"q": pytest.approx(4 / 16)}
