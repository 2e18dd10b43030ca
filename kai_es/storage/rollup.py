"""Usage by hour, day and month: computed once, when the books have passed the bucket.

Per level there is a watermark: every bucket that ends there or earlier is stored. The projection's
time only rises, so a bucket below it is final, unless rows are rewound or repaired; whoever does
that sets `dirty_from`, and the next roll-up goes back to it. Months that ended `FREEZE_MS` ago are
frozen with all that is in them: bills went out.
"""

import contextlib
import datetime
from collections.abc import Iterator
from typing import Final, NamedTuple

import sqlalchemy
from sqlalchemy import Connection, Engine

from kai_es.storage import offsets
from kai_es.storage.engine import mapped, to_time
from kai_es.storage.sweep import HELD, NODES, QUEUES

FREEZE_MS: Final = 7 * 24 * 3_600_000
"""As long as sources are kept: later nothing can be refolded from them."""
HOURS_A_TRANSACTION: Final = 24
WORK_MEM: Final = "64MB"
"""The sweep of an hour with 35,000 running pods sorts half a million points; not on disk."""

_BELOW: Final = {"day": "hour", "month": "day"}

_HOUR_USAGE: Final = sqlalchemy.text(
    f"WITH {HELD}, {QUEUES} INSERT INTO usage_hour"
    " SELECT :lo, queue, resource, requested, allocated, quota, over_quota, unlimited"
    " FROM queue_time"
)
_HOUR_CAPACITY: Final = sqlalchemy.text(
    f"WITH {HELD}, {NODES} INSERT INTO capacity_hour"
    " SELECT :lo, node_pool, gpu_type, resource, sum(capacity), sum(allocated), sum(idle),"
    " sum(down), sum(over) FROM node_time GROUP BY node_pool, gpu_type, resource"
)
_FIRST: Final = sqlalchemy.text(
    "SELECT least((SELECT min(start_at) FROM allocation_interval),"
    " (SELECT min(start_at) FROM request_interval), (SELECT min(start_at) FROM capacity_interval),"
    " (SELECT min(start_at) FROM queue_version))"
)


class Level(NamedTuple):
    """State of one level. `watermark`, `frozen`: None = −infinity."""

    watermark: datetime.datetime | None
    dirty_from: datetime.datetime | None
    frozen: datetime.datetime | None


def roll_up(engine: Engine) -> bool:
    """Store the next buckets that the usage projection has passed; go back where rows changed.

    Returns:
        Whether there are more: call again.
    """
    with mapped("rewinding roll-ups"), frozen_view(engine) as connection:
        _go_back(connection)
    with mapped("rolling up usage"), frozen_view(engine) as connection:
        more = _hours(connection)
        for level in ("day", "month"):
            _sum_up(connection, level)
        _freeze(connection)
    return more


def levels(connection: Connection) -> dict[str, Level]:
    """State of all levels, locked until the transaction ends."""
    rows = connection.execute(
        sqlalchemy.text(
            "SELECT level, nullif(watermark, '-infinity'), dirty_from,"
            " nullif(frozen, '-infinity') FROM rollup_level FOR UPDATE"
        )
    )
    return {row[0]: Level(row[1], row[2], row[3]) for row in rows}


def floor(time: datetime.datetime, level: str) -> datetime.datetime:
    """Start of the bucket that holds a time, in UTC."""
    start = time.replace(minute=0, second=0, microsecond=0)
    if level == "hour":
        return start
    return start.replace(hour=0) if level == "day" else start.replace(hour=0, day=1)


def after(start: datetime.datetime, level: str) -> datetime.datetime:
    """End of the bucket that begins at `start`."""
    if level == "month":
        return floor(start + datetime.timedelta(days=31), level)
    return start + datetime.timedelta(**{f"{level}s": 1})


@contextlib.contextmanager
def frozen_view(engine: Engine) -> Iterator[Connection]:
    """A transaction that sees the books at one moment, whatever is committed meanwhile."""
    with engine.connect() as connection:
        steady = connection.execution_options(isolation_level="REPEATABLE READ")
        with steady.begin():
            steady.execute(sqlalchemy.text(f"SET LOCAL work_mem = '{WORK_MEM}'"))
            yield steady


def _go_back(connection: Connection) -> None:
    """Where rows below a watermark changed, forget the buckets from there on."""
    for name, level in levels(connection).items():
        if level.dirty_from is None:
            continue
        target = floor(level.dirty_from, name)
        if level.frozen is not None:
            target = max(target, level.frozen)
        for table in ("usage", "capacity"):
            connection.execute(
                sqlalchemy.text(f"DELETE FROM {table}_{name} WHERE bucket >= :target"),
                {"target": target},
            )
        connection.execute(
            sqlalchemy.text(
                "UPDATE rollup_level SET watermark = least(watermark, :target), dirty_from = NULL"
                " WHERE level = :level"
            ),
            {"target": target, "level": name},
        )


def _hours(connection: Connection) -> bool:
    """Compute the next hours; tells whether there are more."""
    place = offsets.read(connection, offsets.USAGE)
    first = connection.execute(_FIRST).scalar_one()
    if place.offset == -1 or first is None:
        return False
    watermark = levels(connection)["hour"].watermark
    horizon = floor(to_time(place.time_ms), "hour")
    start = floor(first, "hour")
    lo = max(start, watermark) if watermark is not None else start
    for _ in range(HOURS_A_TRANSACTION):
        if lo >= horizon:
            break
        hi = after(lo, "hour")
        connection.execute(_HOUR_USAGE, {"lo": lo, "hi": hi})
        connection.execute(_HOUR_CAPACITY, {"lo": lo, "hi": hi})
        lo = hi
    if watermark is None or lo > watermark:
        _advance(connection, "hour", lo)
    return lo < horizon


def _sum_up(connection: Connection, level: str) -> None:
    """Compute days from hours, months from days."""
    below = _BELOW[level]
    state = levels(connection)
    source = state[below].watermark
    if source is None:
        return
    horizon = floor(source, level)
    watermark = state[level].watermark
    if watermark is not None and watermark >= horizon:
        return
    values = {"level": level, "lo": watermark or to_time(0), "hi": horizon}
    bucket = "date_trunc(:level, bucket, 'UTC')"
    connection.execute(
        sqlalchemy.text(
            f"INSERT INTO usage_{level} SELECT {bucket}, queue, resource, sum(requested),"
            " sum(allocated), sum(quota), sum(over_quota), bool_or(unlimited)"
            f" FROM usage_{below} WHERE bucket >= :lo AND bucket < :hi GROUP BY 1, 2, 3"
        ),
        values,
    )
    connection.execute(
        sqlalchemy.text(
            f"INSERT INTO capacity_{level} SELECT {bucket}, node_pool, gpu_type, resource,"
            " sum(capacity), sum(allocated), sum(idle), sum(down), sum(over)"
            f" FROM capacity_{below} WHERE bucket >= :lo AND bucket < :hi GROUP BY 1, 2, 3, 4"
        ),
        values,
    )
    _advance(connection, level, horizon)


def _freeze(connection: Connection) -> None:
    """Freeze the months that ended long ago, at every level."""
    place = offsets.read(connection, offsets.USAGE)
    month = levels(connection)["month"].watermark
    if place.offset == -1 or month is None:
        return
    frozen = min(floor(to_time(max(place.time_ms - FREEZE_MS, 0)), "month"), month)
    connection.execute(
        sqlalchemy.text("UPDATE rollup_level SET frozen = :frozen WHERE frozen < :frozen"),
        {"frozen": frozen},
    )


def _advance(connection: Connection, level: str, to: datetime.datetime) -> None:
    connection.execute(
        sqlalchemy.text("UPDATE rollup_level SET watermark = :to WHERE level = :level"),
        {"to": to, "level": level},
    )
