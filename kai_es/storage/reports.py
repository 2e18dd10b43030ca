"""`report usage`: sums over a stretch of time, grouped by what people pay for."""

import datetime
from collections.abc import Iterable, Mapping
from typing import Any, Final

import sqlalchemy
from sqlalchemy import Connection, Engine

from kai_es.ports.reports import Bucket, By, ClusterSum, GroupSum, UsageSums
from kai_es.storage import offsets
from kai_es.storage.cover import Piece, cover
from kai_es.storage.engine import mapped, to_ms, to_time
from kai_es.storage.rollup import floor, frozen_view
from kai_es.storage.sweep import HELD, MS, NODES, QUEUES

_MS: Final = MS.format("part.t - part.s")
_COLUMN: Final = {
    By.NAMESPACE: "namespace",
    By.USER: "user_name",
    By.KIND: "kind",
    By.NODE_POOL: "node_pool",
    By.GPU_TYPE: "gpu_type",
}
_NODE_GROUPS: Final = frozenset({By.NODE_POOL, By.GPU_TYPE})

_FACTS: Final = ("capacity_interval", "queue_version", "request_interval", "allocation_interval")
_LEVELS: Final = sqlalchemy.text(
    "SELECT level, nullif(watermark, '-infinity') FROM rollup_level WHERE dirty_from IS NULL"
)
_LIVE_QUEUES: Final = (
    f"WITH {HELD}, {QUEUES} SELECT CAST(:lo AS timestamptz), queue, resource, requested,"
    " allocated, quota, over_quota, unlimited FROM queue_time"
)
_STORED_QUEUES: Final = (
    "SELECT {bucket}, queue, resource, sum(requested), sum(allocated), sum(quota),"
    " sum(over_quota), bool_or(unlimited) FROM usage_{level}"
    " WHERE bucket >= :lo AND bucket < :hi GROUP BY 1, 2, 3"
)
_LIVE_GROUPS: Final = (
    f"WITH {HELD},"
    f" had AS (SELECT b, {{column}} AS g, resource, sum(amount::numeric * {_MS}) AS amount"
    "  FROM held {cut_held} GROUP BY 1, 2, 3),"
    f" wanted AS (SELECT b, {{column}} AS g, resource, sum(amount::numeric * {_MS}) AS amount"
    "  FROM waiting {cut_waiting} GROUP BY 1, 2, 3)"
    " SELECT b, g, resource, coalesce(w.amount, 0), coalesce(h.amount, 0)"
    " FROM had AS h FULL JOIN wanted AS w USING (b, g, resource)"
)
_LIVE_NODES: Final = (
    f"WITH {HELD}, {NODES} SELECT CAST(:lo AS timestamptz), {{column}}, resource, sum(capacity),"
    " sum(allocated), sum(idle), sum(down), sum(over) FROM node_time GROUP BY 2, 3"
)
_STORED_NODES: Final = (
    "SELECT {bucket}, {column}, resource, sum(capacity), sum(allocated), sum(idle), sum(down),"
    " sum(over) FROM capacity_{level} WHERE bucket >= :lo AND bucket < :hi GROUP BY 1, 2, 3"
)
_LIVE_WAITING: Final = (
    f"WITH {HELD} SELECT b, resource, sum(amount::numeric * {_MS})"
    " FROM waiting {cut_waiting} GROUP BY 1, 2"
)
_WHOLE: Final = (
    "CROSS JOIN LATERAL (SELECT CAST(:lo AS timestamptz) AS b, {name}.s, {name}.t) AS part"
)
_CUT: Final = (
    "CROSS JOIN LATERAL (SELECT b, greatest({name}.s, b) AS s, least({name}.t, b + step) AS t"
    " FROM (SELECT interval '1 {cut}' AS step) AS bucket CROSS JOIN LATERAL generate_series("
    "date_trunc('{cut}', {name}.s, 'UTC'), {name}.t - interval '1 microsecond', step) AS b) AS part"
)
"""An interval's part in every bucket it reaches into, `s` to `t` of `part`: a sum needs one query
then, however many buckets there are. A sweep does not: its levels have to begin in each."""

_SINCE: Final = sqlalchemy.text(
    "SELECT CASE WHEN "
    + " OR ".join(f"EXISTS (SELECT FROM {table} WHERE start_at <= :lo)" for table in _FACTS)
    + " THEN CAST(:lo AS timestamptz) ELSE least("
    + ", ".join(f"(SELECT min(start_at) FROM {table})" for table in _FACTS)
    + ") END"
)
"""Where the books begin, or :lo when that is later; NULL = they are empty."""

Key = tuple[int | None, str, str]
"""Bucket, group, resource."""


class PostgresReports:
    """`UsageReports` over the books."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def now_ms(self) -> int:
        """Time up to which the books are folded."""
        with mapped("reading how far the books are"), self._engine.connect() as connection:
            return offsets.read(connection, offsets.USAGE).time_ms

    def usage(
        self, by: By, *, start_ms: int, end_ms: int, bucket: Bucket | None = None
    ) -> UsageSums:
        """Usage in a stretch of time."""
        with mapped("reporting usage"), frozen_view(self._engine) as connection:
            place = offsets.read(connection, offsets.USAGE)
            hi = to_time(min(end_ms, place.time_ms))  # nobody knows what runs after that
            question = _Question(connection, to_time(start_ms), hi, bucket)
            groups = question.queues() if by is By.QUEUE else question.groups(by)
            cluster = question.cluster()
        return UsageSums(start_ms, end_ms, place.offset, groups, cluster)


class _Question:
    """One report in one transaction."""

    def __init__(
        self,
        connection: Connection,
        lo: datetime.datetime,
        hi: datetime.datetime,
        bucket: Bucket | None,
    ) -> None:
        self._connection = connection
        self._cut = bucket.value if bucket is not None else None
        stored = dict.fromkeys(("hour", "day", "month"))
        stored |= {row[0]: row[1] for row in connection.execute(_LEVELS)}
        first = connection.execute(_SINCE, {"lo": lo}).scalar_one()
        if first is None:
            lo = hi
        elif first > lo:  # a whole bucket may be stored
            lo = max(lo, floor(first, self._cut or "month"))
        self._pieces = tuple(cover(lo, hi, stored=stored, cut=self._cut))
        self._live = (Piece(None, lo, hi),) if lo < hi else ()

    def queues(self) -> list[GroupSum]:
        """Every queue with its subtree."""
        sums: dict[Key, list[int]] = {}
        unlimited: dict[Key, bool] = {}
        for key, values in self._rows(_LIVE_QUEUES, _STORED_QUEUES):
            unlimited[key] = unlimited.get(key, False) or bool(values[4])
            _add(sums, key, values[:4])
        return [
            GroupSum(
                *key,
                waiting=waiting,
                allocated=allocated,
                quota=quota,
                over_quota=over,
                unlimited=unlimited[key],
            )
            for key, (waiting, allocated, quota, over) in sums.items()
        ]

    def groups(self, by: By) -> list[GroupSum]:
        """Every group of another kind; always from intervals."""
        column = _COLUMN[by]
        sums: dict[Key, list[int]] = {}
        for piece in self._live:
            for key, values in self._run(self._in_buckets(_LIVE_GROUPS, column), piece):
                _add(sums, key, values)
        if by not in _NODE_GROUPS:
            return [GroupSum(*key, waiting=w, allocated=a) for key, (w, a) in sums.items()]
        nodes = self._nodes(column)
        return [
            GroupSum(
                *key,
                waiting=sums.get(key, [0, 0])[0],
                allocated=sums.get(key, [0, 0])[1],
                idle=nodes.get(key, [0] * 5)[2],
                down=nodes.get(key, [0] * 5)[3],
            )
            for key in {**nodes, **sums}
        ]

    def cluster(self) -> list[ClusterSum]:
        """The line of the whole cluster per resource."""
        waiting: dict[Key, list[int]] = {}
        for piece in self._live:
            for row in self._execute(self._in_buckets(_LIVE_WAITING), piece):
                _add(waiting, (self._bucket(row[0]), "", row[1]), row[2:])
        return [
            ClusterSum(
                key[0],
                key[2],
                waiting.get(key, [0])[0],
                *values,
            )
            for key, values in self._nodes("''").items()
        ]

    def _nodes(self, column: str) -> dict[Key, list[int]]:
        """Capacity, allocated, idle, down, over by a column of nodes."""
        sums: dict[Key, list[int]] = {}
        live, stored = (text.replace("{column}", column) for text in (_LIVE_NODES, _STORED_NODES))
        for key, values in self._rows(live, stored):
            _add(sums, key, values)
        return sums

    def _rows(self, live: str, stored: str) -> Iterable[tuple[Key, tuple[Any, ...]]]:
        for piece in self._pieces:
            if piece.level is None:
                yield from self._run(live, piece)
            else:
                bucket = f"date_trunc('{self._cut}', bucket, 'UTC')" if self._cut else "min(bucket)"
                text = stored.format(bucket=bucket, level=piece.level)
                if not self._cut:
                    text = text.replace("GROUP BY 1, 2, 3", "GROUP BY 2, 3")
                yield from self._run(text, piece)

    def _in_buckets(self, text: str, column: str = "") -> str:
        """A statement whose sums are cut into the buckets of the report."""
        part = _CUT if self._cut else _WHOLE
        held, waiting = (part.format(name=name, cut=self._cut) for name in ("held", "waiting"))
        return text.format(column=column, cut_held=held, cut_waiting=waiting)

    def _run(self, text: str, piece: Piece) -> Iterable[tuple[Key, tuple[Any, ...]]]:
        for row in self._execute(text, piece):
            yield (self._bucket(row[0]), row[1], row[2]), row[3:]

    def _execute(self, text: str, piece: Piece) -> Iterable[tuple[Any, ...]]:
        values: Mapping[str, object] = {"lo": piece.lo, "hi": piece.hi}
        for row in self._connection.execute(sqlalchemy.text(text), values):
            yield tuple(row)

    def _bucket(self, time: datetime.datetime) -> int | None:
        return to_ms(floor(time, self._cut)) if self._cut else None


def _add(sums: dict[Key, list[int]], key: Key, values: Iterable[Any]) -> None:
    numbers = [int(value) for value in values]
    held = sums.get(key)
    sums[key] = numbers if held is None else [a + b for a, b in zip(held, numbers, strict=True)]
