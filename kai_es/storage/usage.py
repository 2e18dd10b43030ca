"""Rows of the usage projection: intervals of allocation, request, capacity; queues and nodes."""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple, TypeVar

import sqlalchemy
from sqlalchemy import Connection, Engine

from kai_es.ports.books import Digest, Place
from kai_es.ports.stores import DivergedError
from kai_es.storage import offsets, rollup
from kai_es.storage.copy import (
    INFINITY,
    copy_lines,
    driver,
    number,
    stamp,
    text,
    text_array,
)
from kai_es.storage.digest import digest_of
from kai_es.storage.engine import mapped, to_ms, to_time
from kai_es.storage.planner import by_key
from kai_es.storage.schema import Partitions
from projectors.facts import (
    BOOKED,
    Allocation,
    Belongs,
    Capacity,
    NodeVersion,
    QueueVersion,
    Request,
)
from projectors.runs import UNCERTAIN_START, Closed, Opened, RunRows
from projectors.usage import Stored, UsageRows

NAME: Final = offsets.USAGE
TABLES: Final = (
    "allocation_interval",
    "request_interval",
    "capacity_interval",
    "node_version",
    "queue_version",
)
_BELONGS: Final = ("queue_path", "namespace", "pod", "user_name", "kind", "gang", "gang_uid")
_SPAN: Final = ("start_at", "end_at", "start_offset", "end_offset", "uncertain")

V = TypeVar("V")


class _Table(NamedTuple):
    """How intervals of one kind are stored.

    key:    column of `Opened.key`.
    columns: after those of `_SPAN` and `key`.
    lines:  the tails of the COPY lines of one value; an interval of a pod is one line a resource.
    """

    name: str
    key: str
    columns: tuple[str, ...]
    lines: Callable[[Any], Iterable[str]]


class PostgresUsage:
    """`BooksStore` of the usage projection."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._partitions = Partitions()

    async def place(self) -> Place:
        """Where the projection stands."""
        return await asyncio.to_thread(self._place)

    async def stored(self) -> Stored:
        """The open intervals."""
        return await asyncio.to_thread(self._stored)

    async def commit(self, rows: UsageRows, *, expected: int, to: Place) -> bool:
        """Write rows, if the projection is at `expected`, and take it to `to`."""
        return await asyncio.to_thread(self._commit, rows, expected, to)

    async def rewind(self, to: Place) -> int:
        """Delete what started after `to`, reopen what ended after it."""
        return await asyncio.to_thread(self._rewind, to)

    async def digest(self) -> Digest:
        """A value of all rows."""
        return await asyncio.to_thread(digest_of, self._engine, TABLES)

    async def roll_up(self) -> bool:
        """Store the next buckets that this projection has passed; True = there are more."""
        return await asyncio.to_thread(rollup.roll_up, self._engine)

    def _place(self) -> Place:
        with mapped("reading the usage projection's place"), self._engine.connect() as connection:
            return offsets.read(connection, NAME)

    def _stored(self) -> Stored:
        with mapped("reading open intervals"), self._engine.connect() as connection:
            return Stored(*(_open_keys(connection, table) for table in _TABLES))

    def _commit(self, rows: UsageRows, expected: int, to: Place) -> bool:
        try:
            with mapped("writing usage"), self._engine.begin() as connection:
                if not offsets.advance(connection, NAME, expected=expected, to=to):
                    return False
                by_key(connection)
                self._write(connection, rows)
                _mark_dirty(connection, rows.first_ms())
        except BaseException:
            self._partitions.rolled_back()
            raise
        self._partitions.committed()
        return True

    def _write(self, connection: Connection, rows: UsageRows) -> None:
        for table, changes in zip(_TABLES, rows, strict=True):
            assert isinstance(changes, RunRows)
            _close(connection, table, changes.closed)
            if not changes.opened:
                continue
            if table.name in ("allocation_interval", "request_interval"):
                starts = {row.start_ms for row in changes.opened}
                self._partitions.ensure(connection, table.name, starts)
            copy_lines(
                connection, table.name, (*_SPAN, table.key, *table.columns), _lines(table, changes)
            )

    def _rewind(self, to: Place) -> int:
        with mapped("rewinding usage"), self._engine.begin() as connection:
            # first, so that a commit under way ends before and a later one finds another place
            offsets.put(connection, NAME, to)
            n_rows = 0
            for table in _TABLES:
                n_rows += _rewind_table(connection, table.name, to.offset)
            _mark_dirty(connection, to.time_ms)
        return n_rows


def _lines(table: _Table, changes: RunRows[Any]) -> Iterator[str]:
    for row in changes.opened:
        assert isinstance(row, Opened)
        end = INFINITY if row.end_ms is None else stamp(row.end_ms)
        head = (
            f"{stamp(row.start_ms)}\t{end}\t{row.start_offset}\t{number(row.end_offset)}\t"
            f"{row.uncertain}\t{text(row.key)}\t"
        )
        for tail in table.lines(row.value):
            yield f"{head}{tail}\n"


def _belongs(value: Belongs) -> str:
    return "\t".join(
        (
            text_array(value.queue_path),
            text(value.namespace),
            text(value.pod),
            text(value.user),
            text(value.kind),
            text(value.gang),
            text(value.gang_uid),
        )
    )


def _allocation(value: Allocation) -> Iterator[str]:
    tail = (
        f"{text(value.node)}\t{text(value.node_pool)}\t{text(value.gpu_type)}\t"
        f"{_belongs(value.belongs)}"
    )
    for resource, amount in zip(BOOKED, value.amounts, strict=True):
        if amount:
            yield f"{resource}\t{amount}\t{tail}"


def _request(value: Request) -> Iterator[str]:
    tail = f"{text(value.node_pool)}\t{text(value.gpu_type)}\t{_belongs(value.belongs)}"
    for resource, amount in zip(BOOKED, value.amounts, strict=True):
        if amount:
            yield f"{resource}\t{amount}\t{tail}"


def _capacity(value: Capacity) -> Iterator[str]:
    """One line for every resource, 0 too: a pod on a node that offers none is *over*, not lost."""
    tail = f"{value.state}\t{text(value.node_uid)}\t{text(value.node_pool)}\t{text(value.gpu_type)}"
    for resource, amount in zip(BOOKED, value.amounts, strict=True):
        yield f"{resource}\t{amount}\t{tail}"


def _node(value: NodeVersion) -> Iterator[str]:
    yield f"{text(value.uid)}\t{text(value.node_pool)}\t{text(value.gpu_type)}\t{value.state}"


def _queue(value: QueueVersion) -> Iterator[str]:
    numbers = (*value.quota, *value.limit)
    yield "\t".join(
        (
            text(value.uid),
            text(value.parent),
            text_array(value.path),
            str(value.priority),
            *(number(amount) for amount in numbers),
            *(repr(weight) for weight in value.weight),
        )
    )


_TABLES: Final = (
    _Table(
        "allocation_interval",
        "pod_uid",
        ("resource", "amount", "node", "node_pool", "gpu_type", *_BELONGS),
        _allocation,
    ),
    _Table(
        "request_interval",
        "pod_uid",
        ("resource", "amount", "node_pool", "gpu_type", *_BELONGS),
        _request,
    ),
    _Table(
        "capacity_interval",
        "node",
        ("resource", "amount", "state", "node_uid", "node_pool", "gpu_type"),
        _capacity,
    ),
    _Table("node_version", "node", ("uid", "node_pool", "gpu_type", "state"), _node),
    _Table(
        "queue_version",
        "queue",
        (
            *("uid", "parent", "path", "priority"),
            *(f"{what}_{name}" for what in ("quota", "limit", "weight") for name in BOOKED),
        ),
        _queue,
    ),
)


def _close(connection: Connection, table: _Table, closed: Sequence[Closed[Any]]) -> None:
    if not closed:
        return
    with driver(connection).cursor() as cursor:
        cursor.execute(
            f"""
            UPDATE {table.name} AS t SET end_at = v.end_at, end_offset = v.end_offset,
              uncertain = t.uncertain | v.uncertain
            FROM unnest(%s::timestamptz[], %s::text[], %s::timestamptz[], %s::bigint[],
                        %s::smallint[]) AS v (start_at, key, end_at, end_offset, uncertain)
            WHERE t.start_at = v.start_at AND t.{table.key} = v.key AND t.end_offset IS NULL
            """.encode(),
            (
                [to_time(row.start_ms) for row in closed],
                [row.key for row in closed],
                [to_time(row.end_ms) for row in closed],
                [row.end_offset for row in closed],
                [row.uncertain for row in closed],
            ),
        )
        wanted = sum(_n_rows(row.value) for row in closed)
        if cursor.rowcount != wanted and all(row.value is not None for row in closed):
            raise DivergedError(
                f"{table.name}: {cursor.rowcount} of {wanted} open rows found, the first is "
                f"{closed[0].key}; somebody changed the table: run `kai-es rebuild usage`"
            )


def _n_rows(value: object) -> int:
    """How many rows a value is stored in."""
    if isinstance(value, Allocation | Request):
        return sum(1 for amount in value.amounts if amount)
    return len(value.amounts) if isinstance(value, Capacity) else 1


def _open_keys(connection: Connection, table: _Table) -> dict[str, tuple[int, int]]:
    rows = connection.execute(
        sqlalchemy.text(
            f"SELECT DISTINCT {table.key}, start_at, start_offset FROM {table.name}"
            " WHERE end_at = 'infinity'"
        )
    )
    return {row[0]: (to_ms(row[1]), row[2]) for row in rows}


def _rewind_table(connection: Connection, table: str, offset: int) -> int:
    values = {"offset": offset, "keep": UNCERTAIN_START}
    deleted = connection.execute(
        sqlalchemy.text(f"DELETE FROM {table} WHERE start_offset > :offset"), values
    )
    reopened = connection.execute(
        sqlalchemy.text(
            f"UPDATE {table} SET end_at = 'infinity', end_offset = NULL,"
            " uncertain = uncertain & :keep WHERE end_offset > :offset"
        ),
        values,
    )
    return deleted.rowcount + reopened.rowcount


def _mark_dirty(connection: Connection, first_ms: int | None) -> None:
    """Buckets that are rolled up already and change now must be rolled up again."""
    if first_ms is not None:
        connection.execute(
            sqlalchemy.text(
                "UPDATE rollup_level SET dirty_from = least(coalesce(dirty_from, :first), :first)"
                " WHERE watermark > :first"
            ),
            {"first": to_time(first_ms)},
        )
