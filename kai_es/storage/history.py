"""Rows of the history projection: cycles, decisions, runs of pending reasons, bind attempts."""

import asyncio
import re
from collections.abc import Iterator, Sequence
from typing import Final

import msgspec
import sqlalchemy
from sqlalchemy import Connection, Engine

from kai_es.events.decisions import Bind, Evict, Op, Pipeline, Reason, Verdict
from kai_es.events.requests import Refused
from kai_es.ports.books import Digest, Place
from kai_es.ports.stores import DivergedError
from kai_es.storage import offsets
from kai_es.storage.copy import NULL, copy_lines, driver, stamp, text, text_array
from kai_es.storage.digest import digest_of
from kai_es.storage.engine import mapped, to_time
from kai_es.storage.planner import by_key
from kai_es.storage.schema import Partitions
from projectors.history import (
    AttemptRow,
    CycleRow,
    DecisionRow,
    HistoryRows,
    OpenRun,
    RunBegun,
    RunChanged,
    RunEnded,
    Runs,
    codes_of,
    kind_of_op,
    outcome_of,
    shares_of,
)

NAME: Final = offsets.HISTORY
TABLES: Final = ("cycle", "decision", "pending_reason", "bind_attempt")
VERDICTS: Final = {
    Verdict.OPEN: "open",
    Verdict.NO_EVICT: "no-evict",
    Verdict.CLOSED: "closed",
}

_CYCLE: Final = (
    *("time", "batch_offset", "shard", "cycle", "epoch", '"offset"', "now_at", "verdict"),
    *("gate_reasons", "binds", "evictions", "pipelines", "pending", "took_ms", "took"),
    *("digest", "config_digest", "usage_as_of", "usage_stale", "flags"),
)
_DECISION: Final = (
    *("time", "batch_offset", "shard", "cycle", "n", "decision", "pod_uid", "namespace", "pod"),
    *("gang_uid", "gang", "queue", "node", "node_uid", "rule", "beneficiary", "score"),
    *("gang_size", "moved", "message", "shares", "supersedes"),
)
_REASON: Final = (
    *("shard", "gang_uid", "first_cycle", "code", "codes", "reasons"),
    *("namespace", "gang", "queue", "first_at", "first_offset"),
)
_ATTEMPT: Final = (
    *("time", "batch_offset", "n", "request_id", "attempt", "binder", "pod_uid", "outcome"),
    *("final", "code", "node", "status", "reason", "message", "duration_ms"),
)
_NUL: Final = re.compile(r"(?<!\\)((?:\\\\)*)\\u0000")  # jsonb has none, see `copy.text`
_encoder: Final = msgspec.json.Encoder(order="deterministic")


class PostgresHistory:
    """`BooksStore` of the history projection."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._partitions = Partitions()

    async def place(self) -> Place:
        """Where the projection stands."""
        return await asyncio.to_thread(self._place)

    async def stored(self) -> Runs:
        """The open runs of reasons."""
        return await asyncio.to_thread(self._stored)

    async def commit(self, rows: HistoryRows, *, expected: int, to: Place) -> bool:
        """Write rows, if the projection is at `expected`, and take it to `to`."""
        return await asyncio.to_thread(self._commit, rows, expected, to)

    async def rewind(self, to: Place) -> int:
        """Delete what was recorded after `to`, reopen runs that ended after it."""
        return await asyncio.to_thread(self._rewind, to)

    async def digest(self) -> Digest:
        """A value of all rows."""
        return await asyncio.to_thread(digest_of, self._engine, TABLES)

    def _place(self) -> Place:
        with mapped("reading the history projection's place"), self._engine.connect() as c:
            return offsets.read(c, NAME)

    def _stored(self) -> Runs:
        with mapped("reading open runs of reasons"), self._engine.connect() as connection:
            rows = connection.execute(
                sqlalchemy.text(
                    "SELECT shard, gang_uid, first_cycle, codes FROM pending_reason"
                    " WHERE last_cycle IS NULL"
                )
            )
            return {(row[0], row[1]): OpenRun(row[2], tuple(row[3])) for row in rows}

    def _commit(self, rows: HistoryRows, expected: int, to: Place) -> bool:
        try:
            with mapped("writing history"), self._engine.begin() as connection:
                if not offsets.advance(connection, NAME, expected=expected, to=to):
                    return False
                by_key(connection)
                self._write(connection, rows)
        except BaseException:
            self._partitions.rolled_back()
            raise
        self._partitions.committed()
        return True

    def _write(self, connection: Connection, rows: HistoryRows) -> None:
        for table, timed in (
            ("cycle", rows.cycles),
            ("decision", rows.decisions),
            ("bind_attempt", rows.attempts),
        ):
            self._partitions.ensure(connection, table, {row.time_ms for row in timed})
        copy_lines(connection, "cycle", _CYCLE, map(_cycle, rows.cycles))
        copy_lines(connection, "decision", _DECISION, map(_decision, rows.decisions))
        copy_lines(connection, "pending_reason", _REASON, map(_begun, rows.begun))
        _change(connection, rows.changed)
        _end(connection, rows.ended)
        copy_lines(connection, "bind_attempt", _ATTEMPT, map(_attempt, rows.attempts))

    def _rewind(self, to: Place) -> int:
        with mapped("rewinding history"), self._engine.begin() as connection:
            # first, so that a commit under way ends before and a later one finds another place
            offsets.put(connection, NAME, to)
            touched = 0
            for statement in _REWIND:
                touched += connection.execute(statement, {"offset": to.offset}).rowcount
        return touched


_REWIND: Final = (
    *(
        sqlalchemy.text(f"DELETE FROM {table} WHERE batch_offset > :offset")
        for table in ("cycle", "decision", "bind_attempt")
    ),
    sqlalchemy.text("DELETE FROM pending_reason WHERE first_offset > :offset"),
    sqlalchemy.text(
        "UPDATE pending_reason SET last_cycle = NULL, last_at = NULL, last_offset = NULL,"
        " cycles = NULL WHERE last_offset > :offset"
    ),
)


def _cycle(row: CycleRow) -> str:
    cycle, inputs = row.cycle, row.cycle.inputs
    kinds = [kind_of_op(op) for op in cycle.decision.ops]
    return _line(
        stamp(row.time_ms),
        row.batch_offset,
        text(cycle.shard),
        cycle.cycle,
        cycle.epoch,
        cycle.offset,
        stamp(inputs.now_ms),
        VERDICTS[inputs.gate.verdict],
        text_array(inputs.gate.reasons),
        kinds.count("bind"),
        kinds.count("evict"),
        kinds.count("pipeline"),
        row.pending,
        repr(total_ms(cycle.took_ms)),
        _json(cycle.took_ms),
        cycle.digest,
        text(cycle.config_digest),
        inputs.usage_as_of,
        _boolean(inputs.usage_stale),
        text_array(inputs.flags),
    )


def total_ms(took_ms: dict[str, float]) -> float:
    """Wall time of a cycle: the entry `total` if its writer gave one, else the sum of the parts."""
    return took_ms.get("total", sum(took_ms[part] for part in sorted(took_ms)))


def _decision(row: DecisionRow) -> str:
    op = row.op
    return _line(
        stamp(row.time_ms),
        row.batch_offset,
        text(row.shard),
        row.cycle,
        row.n,
        kind_of_op(op),
        text(op.pod_uid),
        text(op.namespace),
        text(op.pod),
        text(op.group_uid),
        text(row.gang.name),
        text(row.gang.queue),
        text(op.node),
        text(op.node_uid),
        text(op.action),
        text(op.beneficiary) if isinstance(op, Evict) else "",
        repr(op.score) if isinstance(op, Bind) else NULL,
        op.gang_size if isinstance(op, Evict) else 1,
        _boolean(isinstance(op, Pipeline) and op.moved),
        text(op.message) if isinstance(op, Evict) else "",
        _shares(op),
        "" if isinstance(op, Pipeline) else text(op.supersedes),
    )


def _shares(op: Op) -> str:
    shares: dict[str, list[dict[str, object]]] = {}
    for when, share in shares_of(op):
        entry: dict[str, object] = {
            "queue": share.queue,
            "allocated": share.allocated,
            "fair_share": share.fair_share,
        }
        shares.setdefault(when, []).append(entry)
    return _json(shares) if shares else NULL


def _begun(row: RunBegun) -> str:
    return _line(
        text(row.key.shard),
        text(row.key.gang_uid),
        row.key.first_cycle,
        text(row.reasons[0].code),
        text_array(codes_of(row.reasons)),
        _json(row.reasons),
        text(row.gang.namespace),
        text(row.gang.name),
        text(row.gang.queue),
        stamp(row.time_ms),
        row.batch_offset,
    )


def _attempt(row: AttemptRow) -> str:
    result = row.result
    outcome, code, node, final = outcome_of(result)
    return _line(
        stamp(row.time_ms),
        row.batch_offset,
        row.n,
        text(result.request_id),
        result.attempt,
        text(result.binder),
        text(result.pod_uid),
        outcome,
        _boolean(final),
        text(code),
        text(node),
        result.answer.status,
        text(result.answer.reason),
        text(result.answer.message),
        0 if isinstance(result, Refused) else result.duration_ms,
    )


def _change(connection: Connection, changed: Sequence[RunChanged]) -> None:
    if changed:
        with driver(connection).cursor() as cursor:
            cursor.execute(
                b"""
                UPDATE pending_reason AS t SET reasons = v.reasons::jsonb
                FROM unnest(%s::text[], %s::text[], %s::bigint[], %s::text[])
                  AS v (shard, gang_uid, first_cycle, reasons)
                WHERE (t.shard, t.gang_uid, t.first_cycle) = (v.shard, v.gang_uid, v.first_cycle)
                """,
                (*_keys(changed), [_plain_json(row.reasons) for row in changed]),
            )
            _all_found(cursor.rowcount, changed)


def _end(connection: Connection, ended: Sequence[RunEnded]) -> None:
    if ended:
        with driver(connection).cursor() as cursor:
            cursor.execute(
                b"""
                UPDATE pending_reason AS t SET last_cycle = v.last_cycle, last_at = v.last_at,
                  last_offset = v.last_offset, cycles = v.last_cycle - v.first_cycle + 1
                FROM unnest(%s::text[], %s::text[], %s::bigint[], %s::bigint[],
                            %s::timestamptz[], %s::bigint[])
                  AS v (shard, gang_uid, first_cycle, last_cycle, last_at, last_offset)
                WHERE (t.shard, t.gang_uid, t.first_cycle) = (v.shard, v.gang_uid, v.first_cycle)
                """,
                (
                    *_keys(ended),
                    [row.last_cycle for row in ended],
                    [to_time(row.time_ms) for row in ended],
                    [row.batch_offset for row in ended],
                ),
            )
            _all_found(cursor.rowcount, ended)


def _keys(rows: Sequence[RunChanged] | Sequence[RunEnded]) -> Iterator[list[str] | list[int]]:
    yield [row.key.shard for row in rows]
    yield [row.key.gang_uid for row in rows]
    yield [row.key.first_cycle for row in rows]


def _all_found(found: int, rows: Sequence[RunChanged] | Sequence[RunEnded]) -> None:
    if found != len(rows):
        raise DivergedError(
            f"pending_reason: {found} of {len(rows)} open runs found, the first is "
            f"{rows[0].key}; somebody changed the table: run `kai-es rebuild history`"
        )


def _line(*fields: str | int) -> str:
    return "\t".join(map(str, fields)) + "\n"


def _boolean(value: bool) -> str:
    return "t" if value else "f"


def _json(value: tuple[Reason, ...] | dict[str, float] | dict[str, list[dict[str, object]]]) -> str:
    return text(_plain_json(value))


def _plain_json(value: object) -> str:
    return _NUL.sub(r"\1", _encoder.encode(value).decode())
