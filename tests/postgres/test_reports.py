import json
from decimal import Decimal

import pytest
import sqlalchemy
from hypothesis import given
from hypothesis import strategies as st

from kai_es.ports.reports import Bucket, By
from kai_es.storage.reports import PostgresReports
from kai_es.usage.report import render
from tests.books.story import (
    HOUR,
    MINUTE,
    START,
    Story,
    a_group,
    a_node,
    a_pod,
    a_queue,
    alive,
)
from tests.books.strategies import stories
from tests.postgres.test_usage_books import SHARED, _push_time, keep, roll_up, wipe

pytestmark = pytest.mark.postgres


@pytest.fixture
def two_teams(database):
    """Two pools, two teams of one department, one pod that waited half an hour."""
    story = Story()
    story.batch(
        START,
        story.upsert(a_queue("dept", gpu=6)),
        story.upsert(a_queue("a", parent="dept", gpu=2)),
        story.upsert(a_queue("b", parent="dept")),
        story.upsert(a_node("n1", gpus=8, pool="train", gpu="H100")),
        story.upsert(a_node("n2", gpus=4, pool="serve", gpu="L40")),
        story.upsert(a_group("ga", "a", kind="PyTorchJob")),
        story.upsert(a_group("gb", "b", kind="Deployment")),
        story.upsert(a_pod("pa", gpus=4, group="ga", user="ada")),
    )
    running = {"phase": "Running"}
    story.batch(
        START + 30 * MINUTE,
        story.upsert(a_pod("pa", gpus=4, group="ga", user="ada", node="n1", **running)),
    )
    story.batch(
        START + 60 * MINUTE,
        story.upsert(a_pod("pb", gpus=4, group="gb", user="bob", node="n2", **running)),
    )
    story.batch(
        START + 90 * MINUTE,
        story.upsert(a_pod("pa", gpus=4, group="ga", user="ada", node="n1", phase="Succeeded")),
    )
    story.batch(START + 120 * MINUTE, alive(START))
    keep(database, story.batches)
    return PostgresReports(database)


def gpu(reports, by, bucket=None, start=START, end=START + 2 * HOUR):
    """Rows of the JSON form for the resource gpu: group -> numbers."""
    sums = reports.usage(by, start_ms=start, end_ms=end, bucket=bucket)
    document = json.loads(render(sums, by, bucket, "json"), parse_float=Decimal)
    rows = [row for row in document["rows"] if row["resource"] == "gpu"]
    cluster = [row for row in document["cluster"] if row["resource"] == "gpu"]
    return rows, cluster


def numbers(rows, *names):
    return {
        (row.get("bucket"), row["group"]) if "bucket" in row else row["group"]: tuple(
            None if row.get(name) is None else float(row[name]) for name in names
        )
        for row in rows
    }


@pytest.mark.parametrize("rolled", [False, True])
def test_by_queue_counts_the_subtree(two_teams, database, rolled):
    if rolled:
        roll_up(database)
    rows, cluster = gpu(two_teams, By.QUEUE)
    assert numbers(rows, "requested", "allocated", "quota", "over_quota") == {
        "a": (6, 4, 4, 2),
        "b": (4, 4, None, 0),
        "dept": (10, 8, 12, 1),
    }
    assert numbers(cluster, "capacity", "allocated", "idle", "down", "over") == {
        "(cluster)": (24, 8, 16, 0, 0)
    }


@pytest.mark.parametrize(
    ("by", "expected"),
    [
        (By.NAMESPACE, {"team": (10, 8)}),
        (By.USER, {"ada": (6, 4), "bob": (4, 4)}),
        (By.KIND, {"PyTorchJob": (6, 4), "Deployment": (4, 4)}),
    ],
)
def test_by_other_groups(two_teams, by, expected):
    rows, _ = gpu(two_teams, by)
    assert numbers(rows, "requested", "allocated") == expected


@pytest.mark.parametrize(
    ("by", "names"),
    [(By.NODE_POOL, ("train", "serve")), (By.GPU_TYPE, ("H100", "L40"))],
)
def test_by_nodes_shows_idle_and_down(two_teams, by, names):
    rows, _ = gpu(two_teams, by)
    first, second = names
    assert numbers(rows, "requested", "allocated", "idle", "down") == {
        first: (4, 4, 12, 0),
        second: (4, 4, 4, 0),
        "(none)": (2, 0, 0, 0),
    }


@pytest.mark.parametrize("rolled", [False, True])
def test_buckets(two_teams, database, rolled):
    if rolled:
        roll_up(database)
    first, second = "2025-11-30T10:00:00Z", "2025-11-30T11:00:00Z"
    rows, cluster = gpu(two_teams, By.QUEUE, Bucket.HOUR)
    assert numbers(rows, "requested", "allocated") == {
        (first, "a"): (4, 2),
        (second, "a"): (2, 2),
        (first, "b"): (0, 0),
        (second, "b"): (4, 4),
        (first, "dept"): (4, 2),
        (second, "dept"): (6, 6),
    }
    assert numbers(cluster, "idle") == {(first, "(cluster)"): (10,), (second, "(cluster)"): (6,)}
    rows, _ = gpu(two_teams, By.USER, Bucket.DAY)
    assert numbers(rows, "allocated") == {
        ("2025-11-30T00:00:00Z", "ada"): (4,),
        ("2025-11-30T00:00:00Z", "bob"): (4,),
    }


def test_edges_are_cut(two_teams, database):
    roll_up(database)
    rows, cluster = gpu(two_teams, By.QUEUE, start=START + 45 * MINUTE, end=START + 75 * MINUTE)
    assert numbers(rows, "allocated")["dept"] == (3,)
    assert numbers(cluster, "capacity") == {"(cluster)": (6,)}


def test_empty_books(database):
    reports = PostgresReports(database)
    assert reports.now_ms() == 0
    sums = reports.usage(By.QUEUE, start_ms=START, end_ms=START + HOUR)
    assert (sums.groups, sums.cluster, sums.as_of) == ([], [], -1)


@given(
    story=stories(),
    by=st.sampled_from(By),
    bucket=st.sampled_from([None, *Bucket]),
    edges=st.tuples(st.integers(-2 * HOUR, 9 * HOUR), st.integers(1, 6 * HOUR)),
)
@SHARED
def test_stored_buckets_and_intervals_say_the_same(database, story, by, bucket, edges):
    wipe(database)
    keep(database, story.batches)
    _push_time(database, story.batches[-1][1].time + 3 * HOUR)
    reports = PostgresReports(database)
    start, end = START + edges[0], START + edges[0] + edges[1]
    live = reports.usage(by, start_ms=start, end_ms=end, bucket=bucket)
    roll_up(database)
    stored = reports.usage(by, start_ms=start, end_ms=end, bucket=bucket)
    assert render(stored, by, bucket, "csv") == render(live, by, bucket, "csv")
    for line in live.cluster:
        assert line.allocated + line.idle + line.down == line.capacity + line.over
    if by is not By.QUEUE:
        for resource in ("cpu", "memory", "gpu"):
            groups = sum(g.allocated for g in live.groups if g.resource == resource)
            assert groups == sum(c.allocated for c in live.cluster if c.resource == resource)


FAR = 253_402_300_799_000  # 9999-12-31


@pytest.mark.parametrize("rolled", [False, True])
@pytest.mark.parametrize("bucket", [None, *Bucket])
@pytest.mark.parametrize("by", By)
def test_what_is_asked_beyond_the_books_adds_nothing_and_takes_no_time(
    two_teams, database, by, bucket, rolled
):
    """Queues, nodes and a pod are open at the books' end; nobody knows how they go on."""
    if rolled:
        roll_up(database)
    held = two_teams.usage(by, start_ms=START - HOUR, end_ms=START + 2 * HOUR, bucket=bucket)
    n_statements = []
    sqlalchemy.event.listen(
        database, "before_cursor_execute", lambda *args: n_statements.append(args)
    )
    asked = two_teams.usage(by, start_ms=0, end_ms=FAR, bucket=bucket)
    assert render(asked, by, bucket, "csv") == render(held, by, bucket, "csv")
    assert (asked.start_ms, asked.end_ms) == (0, FAR), "the report says what was asked for"
    assert len(n_statements) < 20
    for start in (START + 2 * HOUR, START + 3 * HOUR):
        beyond = two_teams.usage(by, start_ms=start, end_ms=FAR, bucket=bucket)
        assert (beyond.groups, beyond.cluster) == ([], [])
