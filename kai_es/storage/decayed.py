"""Decayed usage per queue, by one statement over exact intervals. Reference: fairness.md §15.

The reference sums samples; the books know every change, so the sums are integrals. An amount a held
from age o to age y (both in seconds before now) counts a × H/ln 2 × (2^(−y/H) − 2^(−o/H)), without
decay a × (o − y). What a queue used is divided by what all nodes offered in the same window,
whether they were ready or not. Nothing is decayed in place: raw intervals stay the truth, and an
hour of one milli-unit counts as much as it should.
"""

import asyncio
from collections.abc import Callable
from typing import Final

import sqlalchemy
from sqlalchemy import Connection, Engine

from kai_es.ports.stores import DecayedUsage, Window
from kai_es.storage import offsets
from kai_es.storage.engine import mapped, to_time
from kai_es.storage.rollup import frozen_view
from kai_es.storage.sweep import HELD

_HALF_LIVES_MAX: Final = 1000
"""PostgreSQL raises an underflow once 0.5^x leaves the double range, at about 1,074."""

_DECAYED: Final = sqlalchemy.text(
    f"""
    WITH {HELD},
    piece AS (
      SELECT q AS queue, resource, amount, s, t FROM held CROSS JOIN LATERAL unnest(queue_path) AS q
      UNION ALL SELECT NULL, resource, amount, s, t FROM capacity),
    aged AS (
      SELECT queue, resource, amount::float8 AS amount,
             extract(epoch FROM :hi - s)::float8 AS older,
             extract(epoch FROM :hi - t)::float8 AS younger
      FROM piece WHERE s < t),
    area AS (
      SELECT queue, resource, sum(amount * CASE
          WHEN CAST(:half AS float8) IS NULL THEN older - younger
          ELSE CAST(:half AS float8) / ln(2::float8)
            * (power(0.5::float8, least(younger / CAST(:half AS float8), {_HALF_LIVES_MAX}))
             - power(0.5::float8, least(older / CAST(:half AS float8), {_HALF_LIVES_MAX})))
        END) AS area
      FROM aged GROUP BY queue, resource)
    SELECT u.queue, u.resource, u.area / c.area
    FROM area AS u JOIN area AS c ON c.queue IS NULL AND c.resource = u.resource
    WHERE u.queue IS NOT NULL AND c.area > 0
    ORDER BY u.queue, u.resource
    """
)


class PostgresDecayedUsage:
    """`UsageStore` over the books.

    Args:
        engine: the database.
        window: shard and now in ms -> its window, None = the shard uses no history.
    """

    def __init__(self, engine: Engine, window: Callable[[str, int], Window | None]) -> None:
        self._engine = engine
        self._window = window

    async def decayed(self, *, shard: str, now_ms: int) -> DecayedUsage:
        """Usage of every queue, inner ones included, decayed to `now_ms`."""
        window = self._window(shard, now_ms)
        return await asyncio.to_thread(self._decayed, window, now_ms)

    def _decayed(self, window: Window | None, now_ms: int) -> DecayedUsage:
        with mapped("reading decayed usage"), frozen_view(self._engine) as connection:
            place = offsets.read(connection, offsets.USAGE)
            found = decayed(connection, window, now_ms=now_ms) if window is not None else {}
        return DecayedUsage(found, as_of=place.offset, as_of_ms=place.time_ms)


def decayed(connection: Connection, window: Window, *, now_ms: int) -> dict[str, dict[str, float]]:
    """Queue -> resource -> share of the cluster's capacity, 0..1. Unused ones are missing.

    A half-life of 0 or less is none: history does not vanish because somebody left it out.
    """
    half_life_ms = window.half_life_ms if (window.half_life_ms or 0) > 0 else None
    rows = connection.execute(
        _DECAYED,
        {
            "lo": to_time(window.start_ms),
            "hi": to_time(now_ms),
            "half": half_life_ms / 1000 if half_life_ms else None,
        },
    )
    found: dict[str, dict[str, float]] = {}
    for queue, resource, share in rows:
        found.setdefault(queue, {})[resource] = share
    return found
