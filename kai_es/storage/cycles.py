"""`kai-es cycles`: recorded cycles in order of time."""

from collections.abc import Sequence
from typing import Final

import sqlalchemy
from sqlalchemy import Engine

from kai_es.ports.reports import CycleLine, ShardCycles
from kai_es.storage.engine import mapped, to_ms, to_time

LIMIT: Final = 10_000
"""Lines of one answer; a day of a busy scheduler has more."""

_LINES: Final = sqlalchemy.text(
    'SELECT shard, cycle, batch_offset, "offset", time, binds, evictions, pipelines, pending,'
    " took_ms, verdict, digest FROM cycle WHERE time >= :start AND time < :end"
    " AND (CAST(:shard AS text) IS NULL OR shard = :shard)"
    " ORDER BY time DESC, shard DESC, cycle DESC LIMIT :limit"
)
_SHARDS: Final = sqlalchemy.text(
    "SELECT shard, min(cycle), max(cycle) FROM cycle GROUP BY shard ORDER BY shard"
)


def shards(engine: Engine) -> Sequence[ShardCycles]:
    """The shards that have cycles, by name."""
    with mapped("listing shards"), engine.connect() as connection:
        return [ShardCycles(*row) for row in connection.execute(_SHARDS).all()]


def cycles(
    engine: Engine,
    *,
    start_ms: int,
    end_ms: int,
    limit: int = LIMIT,
    shard: str | None = None,
) -> Sequence[CycleLine]:
    """The newest cycles in [start, end) of a shard (None = of all), oldest first."""
    with mapped("listing cycles"), engine.connect() as connection:
        rows = connection.execute(
            _LINES,
            {
                "start": to_time(start_ms),
                "end": to_time(end_ms),
                "limit": limit,
                "shard": shard,
            },
        ).all()
    return [
        CycleLine(
            shard=row[0],
            cycle=row[1],
            offset=row[2],
            seen_offset=row[3],
            time_ms=to_ms(row[4]),
            binds=row[5],
            evictions=row[6],
            pipelines=row[7],
            pending=row[8],
            ms=row[9],
            verdict=row[10],
            digest=row[11],
        )
        for row in reversed(rows)
    ]
