"""Proof of the books: allocated + idle + down = capacity × time + over, exactly.

Both sides are computed apart: allocated and capacity × time from the intervals, idle, down and over
from the sweep. The rules that intervals must obey are checked with it: one pod is on one node at a
time, a node has one capacity at a time, nothing ends before it starts.
"""

import datetime
from typing import Final, NamedTuple

import sqlalchemy
from sqlalchemy import Connection, Engine

from kai_es.storage import offsets
from kai_es.storage.engine import mapped, to_time
from kai_es.storage.rollup import after, floor, frozen_view
from kai_es.storage.sweep import HELD, MS, NODES

EXACT: Final = "exact"

_FIRST: Final = sqlalchemy.text(
    "SELECT least((SELECT min(start_at) FROM allocation_interval),"
    " (SELECT min(start_at) FROM capacity_interval))"
)
_BUCKET: Final = sqlalchemy.text(
    f"""
    WITH {HELD}, {NODES},
    swept AS (
      SELECT node, resource, sum(allocated) AS allocated, sum(idle) AS idle, sum(down) AS down,
             sum(over) AS over FROM node_time GROUP BY node, resource),
    counted_held AS (
      SELECT node, resource, sum(amount::numeric * {MS.format("t - s")}) AS held
      FROM held GROUP BY node, resource),
    counted_capacity AS (
      SELECT node, resource, sum(amount::numeric * {MS.format("t - s")}) AS capacity
      FROM capacity GROUP BY node, resource)
    SELECT node, resource, coalesce(h.held, 0), s.idle, s.down, c.capacity, s.over, s.allocated
    FROM counted_capacity AS c
    LEFT JOIN swept AS s USING (node, resource)
    LEFT JOIN counted_held AS h USING (node, resource)
    WHERE coalesce(h.held, 0) + s.idle + s.down IS DISTINCT FROM c.capacity + s.over
       OR coalesce(h.held, 0) IS DISTINCT FROM s.allocated
    ORDER BY node, resource LIMIT 1
    """
)
_OVERLAP: Final = """
    SELECT {key}, resource, start_at FROM (
      SELECT {key}, resource, start_at,
             lag(end_at) OVER w AS former_end
      FROM {table}
      WINDOW w AS (PARTITION BY {key}, resource ORDER BY start_at, start_offset)) AS interval
    WHERE former_end > start_at ORDER BY {key}, resource LIMIT 1
"""
_OVERLAPS: Final = {
    table: sqlalchemy.text(_OVERLAP.format(table=table, key=key))
    for table, key in (
        ("allocation_interval", "pod_uid"),
        ("request_interval", "pod_uid"),
        ("capacity_interval", "node"),
    )
}
_BOTH: Final = sqlalchemy.text(
    "SELECT a.pod_uid, a.resource, a.start_at FROM allocation_interval AS a"
    " JOIN request_interval AS r ON r.pod_uid = a.pod_uid AND r.resource = a.resource"
    " AND r.start_at < a.end_at AND r.end_at > a.start_at LIMIT 1"
)


class Violation(NamedTuple):
    """The first thing found wrong, in words for people."""

    text: str

    def __str__(self) -> str:
        return self.text


def check_identity(
    engine: Engine,
    *,
    start: datetime.datetime | None = None,
    end: datetime.datetime | None = None,
) -> Violation | None:
    """Check the books per node, resource and hour; None = exact.

    Args:
        engine: the database.
        start: default the first interval.
        end: default the projection's time.
    """
    with mapped("checking the usage identity"), frozen_view(engine) as connection:
        return _overlaps(connection) or _hours(connection, start, end)


def _overlaps(connection: Connection) -> Violation | None:
    for table, statement in _OVERLAPS.items():
        row = connection.execute(statement).one_or_none()
        if row is not None:
            return Violation(f"{table}: intervals of {row[0]} ({row[1]}) overlap at {row[2]}")
    row = connection.execute(_BOTH).one_or_none()
    if row is not None:
        return Violation(f"pod {row[0]} ({row[1]}) waits and runs at once at {row[2]}")
    return None


def _hours(
    connection: Connection, start: datetime.datetime | None, end: datetime.datetime | None
) -> Violation | None:
    place = offsets.read(connection, offsets.USAGE)
    lo = start or connection.execute(_FIRST).scalar_one()
    end = end or to_time(place.time_ms)
    while lo is not None and lo < end:
        hi = min(after(floor(lo, "hour"), "hour"), end)
        row = connection.execute(_BUCKET, {"lo": lo, "hi": hi}).one_or_none()
        if row is not None:
            node, resource, held, idle, down, capacity, over, swept = row
            return Violation(
                f"{node} {resource} {lo:%Y-%m-%dT%H:%M:%SZ}: allocated {held} (swept {swept}) + "
                f"idle {idle} + down {down} is not capacity × time {capacity} + over {over}"
            )
        lo = hi
    return None
