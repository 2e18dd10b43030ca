import asyncio
import datetime

import pytest
import sqlalchemy
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kai_es.ports.books import Place
from kai_es.ports.stores import DivergedError
from kai_es.snapshot.world import World
from kai_es.storage import rollup
from kai_es.storage.engine import to_ms, to_time
from kai_es.storage.identity import check_identity
from kai_es.storage.usage import PostgresUsage
from projectors.runs import Moment
from projectors.usage import Usage
from tests.books.oracle import Oracle
from tests.books.story import (
    GPU,
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

pytestmark = pytest.mark.postgres

SHARED = settings(
    max_examples=25,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


def keep(engine, batches, *, cuts=None, usage=None, expected=-1):
    """Fold batches into the database; a commit after each batch whose number is in `cuts`."""
    store, usage = PostgresUsage(engine), usage or Usage()

    async def run():
        at = expected
        for n, (offset, batch) in enumerate(batches):
            usage.fold(offset, batch)
            if cuts is None or n in cuts or n == len(batches) - 1:
                to = Place(offset, batch.time)
                assert await store.commit(usage.take(), expected=at, to=to)
                at = offset

    asyncio.run(run())
    return usage


def restored(engine, batches):
    """The fold after these batches, from the open intervals in the database."""
    world, usage = World(), Usage()
    for offset, batch in batches:
        world.apply(offset, batch)
    offset, batch = batches[-1]
    usage.restore(
        world.objects,
        alive={p: row.time for p, row in world.liveness.alive.items()},
        at=Moment(batch.time, offset),
        stored=asyncio.run(PostgresUsage(engine).stored()),
    )
    return usage


def roll_up(engine):
    while rollup.roll_up(engine):
        pass


def wipe(engine):
    with engine.begin() as connection:
        for table in ("usage", "capacity"):
            for level in ("hour", "day", "month"):
                connection.execute(sqlalchemy.text(f"DELETE FROM {table}_{level}"))
        connection.execute(
            sqlalchemy.text(
                "UPDATE rollup_level SET watermark = '-infinity', dirty_from = NULL,"
                " frozen = '-infinity'"
            )
        )
    asyncio.run(PostgresUsage(engine).rewind(Place(-1, 0)))


def digest(engine):
    return asyncio.run(PostgresUsage(engine).digest())


def rows(engine, statement, **values):
    with engine.connect() as connection:
        return [tuple(row) for row in connection.execute(sqlalchemy.text(statement), values)]


@given(story=stories(), cuts=st.sets(st.integers(0, 12)))
@SHARED
def test_identity_holds_after_any_history(database, story, cuts):
    wipe(database)
    keep(database, story.batches, cuts=cuts)
    assert check_identity(database) is None
    oracle = Oracle()
    for _, batch in story.batches:
        oracle.fold(batch)
    _push_time(database, story.batches[-1][1].time + 2 * HOUR)
    roll_up(database)
    (watermark,) = rows(
        database,
        "SELECT nullif(watermark, '-infinity') FROM rollup_level WHERE level = 'hour'",
    )[0]
    if watermark is not None:
        oracle.advance(to_ms(watermark))
    stored = {}
    for resource, *sums in rows(
        database,
        "SELECT resource, sum(allocated), sum(idle), sum(down), sum(capacity), sum(over)"
        " FROM capacity_hour GROUP BY resource",
    ):
        stored[resource] = [int(value) for value in sums]
    expected = {}
    for (_, resource), sums in oracle.nodes.items():
        total = expected.setdefault(resource, [0] * 5)
        expected[resource] = [a + b for a, b in zip(total, sums, strict=True)]
    assert stored == expected
    for level in ("day", "month"):
        _same_sums(database, level)


def _push_time(engine, ms):
    """Let the projection see time pass, so that buckets are behind it."""
    with engine.begin() as connection:
        connection.execute(
            sqlalchemy.text("UPDATE projection_offset SET time = :time"), {"time": to_time(ms)}
        )


def _same_sums(engine, level):
    (upto,) = rows(
        engine,
        "SELECT coalesce(nullif(watermark, '-infinity'), '0001-01-01') FROM rollup_level"
        " WHERE level = :level",
        level=level,
    )[0]
    for table, columns in (
        ("usage", "queue, resource, sum(requested), sum(allocated), sum(quota), sum(over_quota)"),
        ("capacity", "node_pool, resource, sum(capacity), sum(allocated), sum(idle), sum(down)"),
    ):
        below = (
            f"SELECT {columns} FROM {table}_hour WHERE bucket < :upto GROUP BY 1, 2 ORDER BY 1, 2"
        )
        here = f"SELECT {columns} FROM {table}_{level} GROUP BY 1, 2 ORDER BY 1, 2"
        assert rows(engine, here) == rows(engine, below, upto=upto)


@given(story=stories(), data=st.data())
@SHARED
def test_rebuild_from_anywhere_gives_the_same_rows(database, story, data):
    wipe(database)
    keep(database, story.batches)
    live = digest(database)
    n = data.draw(st.integers(0, len(story.batches) - 1))
    offset, batch = story.batches[n]
    asyncio.run(PostgresUsage(database).rewind(Place(offset, batch.time)))
    usage = restored(database, story.batches[: n + 1])
    assert usage.take().n_rows() == 0
    if story.batches[n + 1 :]:
        keep(database, story.batches[n + 1 :], usage=usage, expected=offset, cuts=())
    assert digest(database) == live
    wipe(database)
    keep(database, story.batches, cuts=())
    assert digest(database) == live


def test_commit_of_another_offset_writes_nothing(database):
    story = Story()
    story.batch(START, story.upsert(a_node()))
    story.batch(START + 100, story.upsert(a_pod(node="n1", phase="Running")))
    keep(database, story.batches)
    before = digest(database)
    store, usage = PostgresUsage(database), Usage()
    for offset, batch in story.batches:
        usage.fold(offset, batch)
    zombie = store.commit(usage.take(), expected=-1, to=Place(9, START + 200))
    assert asyncio.run(zombie) is False
    assert digest(database) == before
    assert asyncio.run(store.place()).offset == story.batches[-1][0]


def test_lost_row_is_an_alarm_and_a_restart_repairs_it(database):
    story = Story()
    story.batch(START, story.upsert(a_node()))
    story.batch(START + 100, story.upsert(a_pod(node="n1", phase="Running")))
    usage = keep(database, story.batches)
    with database.begin() as connection:
        connection.execute(
            sqlalchemy.text("DELETE FROM allocation_interval WHERE resource = 'gpu'")
        )
    story.batch(START + 200, story.upsert(a_pod(node="n1", phase="Succeeded")))
    with pytest.raises(DivergedError, match=r"2 of 3 open rows.*rebuild usage"):
        keep(database, story.batches[2:], usage=usage, expected=story.batches[1][0])
    with database.begin() as connection:
        connection.execute(sqlalchemy.text("DELETE FROM allocation_interval"))
    usage = restored(database, story.batches[:2])
    keep(database, story.batches[2:], usage=usage, expected=story.batches[1][0])
    found = rows(
        database, "SELECT resource, start_at, end_at FROM allocation_interval ORDER BY resource"
    )
    assert found == [
        (name, to_time(START + 100), to_time(START + 200)) for name in ("cpu", "gpu", "memory")
    ]


def test_columns_of_an_allocation(database):
    story = Story()
    story.batch(
        START,
        story.upsert(a_queue("root")),
        story.upsert(a_queue("team-a", parent="root", gpu=4)),
        story.upsert(a_node()),
        story.upsert(a_group("g1", "team-a")),
        story.upsert(a_pod(group="g1", gpus=2)),
    )
    bound = story.batch(START + 500, story.upsert(a_pod(group="g1", gpus=2, node="n1")))
    keep(database, story.batches)
    assert rows(
        database,
        "SELECT start_at, end_at::text, amount, node, queue_path, namespace, pod, user_name, kind,"
        " node_pool, gpu_type, gang, gang_uid, start_offset, end_offset, uncertain"
        " FROM allocation_interval WHERE resource = 'gpu'",
    ) == [
        (
            *(to_time(START + 500), "infinity", 2 * GPU, "n1", ["root", "team-a"], "team", "p1"),
            *("ada", "PyTorchJob", "train", "H100", "g1", "group-g1", bound, None, 0),
        )
    ]
    assert rows(
        database,
        "SELECT start_at, end_at, amount, end_offset FROM request_interval WHERE resource = 'gpu'",
    ) == [(to_time(START), to_time(START + 500), 2 * GPU, bound)]
    assert rows(database, "SELECT queue, path, quota_gpu, quota_cpu FROM queue_version") == [
        ("root", ["root"], None, None),
        ("team-a", ["root", "team-a"], 4 * GPU, None),
    ]


def test_odd_names_survive_the_way_in(database):
    odd = "a\\b\"c\td\ne,{}'é\x01"
    story = Story()
    story.batch(
        START,
        story.upsert(a_node("n1", pool=odd, gpu=odd)),
        story.upsert(a_pod(odd, namespace=odd, node="n1", user=odd, queue=odd)),
    )
    keep(database, story.batches)
    found = rows(
        database,
        "SELECT DISTINCT pod, namespace, user_name, node_pool, gpu_type, queue_path[1]"
        " FROM allocation_interval",
    )
    assert found == [(odd,) * 6]


def test_gap_row_counts_at_its_own_time_and_is_uncertain_without_sign_of_life(database):
    story = Story()
    story.batch(START, story.upsert(a_node()), alive(START))
    story.batch(
        START + 30 * MINUTE,
        story.upsert(a_pod("p1", node="n1", phase="Running")),
        alive(START + 12 * MINUTE),
        story.upsert(a_pod("p2", node="n1", phase="Running")),
        ingest=[START + 10 * MINUTE, START + 12 * MINUTE, START + 12 * MINUTE + 1500],
    )
    keep(database, story.batches)
    assert rows(
        database,
        "SELECT pod, start_at, uncertain FROM allocation_interval"
        " WHERE resource = 'gpu' ORDER BY pod",
    ) == [
        ("p1", to_time(START + 10 * MINUTE), 1),
        ("p2", to_time(START + 12 * MINUTE + 1500), 0),
    ]


def test_field_case_11_node_of_eight_over_two_hours(database):
    """8-GPU node 10:00-12:00, pod of 4 GPUs 10:30-11:30, projector away 10:45-11:15."""
    story = Story()
    story.batch(START, story.upsert(a_node(gpus=8)), story.upsert(a_queue("q")))
    for minute in range(30):
        story.batch(START + minute * MINUTE + 1, alive(START + minute * MINUTE))
    pod = {"gpus": 4, "queue": "q", "node": "n1"}
    story.batch(START + 30 * MINUTE, story.upsert(a_pod(phase="Running", **pod)))
    story.batch(START + 45 * MINUTE, alive(START + 45 * MINUTE))
    cut = len(story.batches)
    story.batch(START + 75 * MINUTE, alive(START + 75 * MINUTE))
    story.batch(START + 90 * MINUTE, story.upsert(a_pod(phase="Succeeded", **pod)))
    story.batch(START + 120 * MINUTE, alive(START + 120 * MINUTE))
    keep(database, story.batches[:cut])
    usage = restored(database, story.batches[:cut])
    keep(database, story.batches[cut:], usage=usage, expected=story.batches[cut - 1][0])
    assert check_identity(database) is None
    roll_up(database)
    gpu_hour = GPU * HOUR
    assert rows(
        database,
        "SELECT sum(allocated), sum(idle), sum(down), sum(over), sum(capacity)"
        " FROM capacity_hour WHERE resource = 'gpu'",
    ) == [(4 * gpu_hour, 12 * gpu_hour, 0, 0, 16 * gpu_hour)]
    assert rows(
        database,
        "SELECT queue, sum(allocated) FROM usage_hour WHERE resource = 'gpu' GROUP BY queue",
    ) == [("q", 4 * gpu_hour)]


def test_terabyte_hours_do_not_overflow(database):
    """1 TiB for one hour is 0.43 × 2^63 byte-milliseconds; four are more than a bigint holds."""
    tib = 2**40
    story = Story()
    story.batch(
        START,
        story.upsert(a_node(memory=8 * tib)),
        story.upsert(a_pod(node="n1", phase="Running", memory=4 * tib, queue="q")),
    )
    story.batch(START + HOUR, alive(START))
    keep(database, story.batches)
    assert check_identity(database) is None
    roll_up(database)
    assert rows(database, "SELECT allocated FROM usage_hour WHERE resource = 'memory'") == [
        (4 * tib * HOUR,)
    ]


def test_shrunken_node_is_over_never_idle(database):
    story = Story()
    story.batch(
        START,
        story.upsert(a_node(gpus=8)),
        story.upsert(a_pod(node="n1", phase="Running", gpus=6)),
    )
    story.batch(START + 30 * MINUTE, story.upsert(a_node(gpus=4)))
    story.batch(START + 60 * MINUTE, alive(START))
    keep(database, story.batches)
    roll_up(database)
    unit = GPU * 30 * MINUTE
    assert rows(
        database,
        "SELECT capacity, allocated, idle, down, over FROM capacity_hour WHERE resource = 'gpu'",
    ) == [(12 * unit, 12 * unit, 2 * unit, 0, 2 * unit)]


def test_pods_of_a_node_that_is_not_ready_are_down(database):
    story = Story()
    pod = story.upsert(a_pod(node="n1", phase="Running", gpus=6, queue="q"))
    story.batch(START, story.upsert(a_node(gpus=8)), pod, story.upsert(a_queue("q", gpu=2)))
    story.batch(START + 15 * MINUTE, story.upsert(a_node(gpus=8, ready=False)))
    story.batch(START + 30 * MINUTE, story.upsert(a_node(gpus=8, cordoned=True)))
    story.batch(START + 60 * MINUTE, alive(START))
    keep(database, story.batches)
    assert check_identity(database) is None
    roll_up(database)
    unit = GPU * 15 * MINUTE
    assert rows(
        database,
        "SELECT capacity, allocated, idle, down, over FROM capacity_hour WHERE resource = 'gpu'",
    ) == [(32 * unit, 18 * unit, 2 * unit, 12 * unit, 0)]
    assert rows(
        database,
        "SELECT allocated, quota, over_quota, unlimited FROM usage_hour WHERE resource = 'gpu'",
    ) == [(18 * unit, 8 * unit, 12 * unit, False)]


def test_late_change_rewinds_the_roll_ups(database):
    story = Story()
    story.batch(START, story.upsert(a_node(gpus=8)))
    story.batch(START + HOUR // 2, story.upsert(a_pod(node="n1", phase="Running", queue="q")))
    story.batch(START + 30 * HOUR, alive(START))
    keep(database, story.batches)
    roll_up(database)
    before = rows(database, "SELECT * FROM usage_hour ORDER BY bucket, queue, resource")
    assert rows(database, "SELECT count(*) FROM usage_day") == [(3,)]
    offset, batch = story.batches[0]
    asyncio.run(PostgresUsage(database).rewind(Place(offset, batch.time)))
    assert rows(database, "SELECT count(*) FROM rollup_level WHERE dirty_from IS NOT NULL") == [
        (3,)
    ]
    usage = restored(database, story.batches[:1])
    keep(database, story.batches[1:], usage=usage, expected=offset)
    roll_up(database)
    assert rows(database, "SELECT * FROM usage_hour ORDER BY bucket, queue, resource") == before
    assert rows(database, "SELECT count(*) FROM usage_day") == [(3,)]
    assert rows(database, "SELECT count(*) FROM rollup_level WHERE dirty_from IS NOT NULL") == [
        (0,)
    ]


def test_closed_month_is_frozen(database):
    november = to_ms(datetime.datetime(2025, 11, 1, tzinfo=datetime.UTC))
    story = Story()
    story.batch(november, story.upsert(a_node(gpus=8)))
    story.batch(november + HOUR, story.upsert(a_pod(node="n1", phase="Running", queue="q")))
    story.batch(november + 38 * 24 * HOUR, alive(START))
    keep(database, story.batches)
    roll_up(database)
    frozen = rows(database, "SELECT DISTINCT frozen FROM rollup_level")
    assert frozen == [(datetime.datetime(2025, 12, 1, tzinfo=datetime.UTC),)]
    month = rows(database, "SELECT * FROM usage_month ORDER BY queue, resource")
    offset, batch = story.batches[0]
    asyncio.run(PostgresUsage(database).rewind(Place(offset, batch.time)))
    story.batches[1:] = []
    story.batch(november + 38 * 24 * HOUR, alive(START))
    usage = restored(database, story.batches[:1])
    keep(database, story.batches[1:], usage=usage, expected=offset)
    roll_up(database)
    assert rows(database, "SELECT * FROM usage_month ORDER BY queue, resource") == month
    assert rows(
        database, "SELECT count(*) FROM usage_hour WHERE bucket >= '2025-12-01' AND allocated > 0"
    ) == [(0,)]


def test_identity_check_finds_a_wrong_row(database):
    story = Story()
    story.batch(
        START,
        story.upsert(a_node(gpus=8)),
        story.upsert(a_pod(node="n1", phase="Running")),
    )
    story.batch(START + HOUR, alive(START))
    keep(database, story.batches)
    assert check_identity(database) is None
    with database.begin() as connection:
        connection.execute(
            sqlalchemy.text(
                "INSERT INTO capacity_interval SELECT node, resource, start_at + interval '1 min',"
                " end_at, amount, state, node_uid, node_pool, gpu_type, start_offset + 1"
                " FROM capacity_interval WHERE resource = 'gpu'"
            )
        )
    assert "capacity_interval: intervals of n1 (gpu) overlap" in str(check_identity(database))
