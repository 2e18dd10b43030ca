"""The tables of the books as dicts: what a store makes of the projections' rows, without SQL."""

import itertools
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, NamedTuple

from kai_es.ports.stores import DivergedError
from projectors.facts import BOOKED, Allocation, Capacity, Request
from projectors.history import (
    AttemptRow,
    CycleRow,
    DecisionRow,
    HistoryRows,
    OpenRun,
    RunBegun,
    RunEnded,
    RunKey,
    Runs,
    codes_of,
)
from projectors.runs import Closed, Opened, RunRows
from projectors.usage import Stored, UsageRows

OPEN: Final = 2**62
"""End of an interval that has none yet."""


class Interval(NamedTuple):
    """A stored interval; times in ms, `end` OPEN and `end_offset` None = not ended."""

    start: int
    end: int
    start_offset: int
    end_offset: int | None
    uncertain: int
    value: Any


Key = tuple[str, int, int]
"""Key of the value, start, start offset."""

Sums = dict[tuple[Any, ...], int]


class UsageTables:
    """Tables of the usage projection, one dict per table.

    Raises (from `write`):
        DivergedError: the rows do not fit what is stored.
    """

    NAMES: Final = ("allocations", "requests", "capacities", "nodes", "queues")

    def __init__(self) -> None:
        self.tables: dict[str, dict[Key, Interval]] = {name: {} for name in self.NAMES}
        self._open: dict[str, dict[str, Key]] = {name: {} for name in self.NAMES}

    def write(self, rows: UsageRows) -> None:
        """Apply changes: ends first, then beginnings."""
        tables: Sequence[RunRows[Any]] = rows
        for name, changes in zip(self.NAMES, tables, strict=True):
            for closed in changes.closed:
                self._end(name, closed)
            for opened in changes.opened:
                self._begin(name, opened)

    def _end(self, name: str, row: Closed[Any]) -> None:
        table = self.tables[name]
        at = self._open[name].pop(row.key, None)
        if at is None or table[at].start != row.start_ms or table[at].value != row.value:
            raise DivergedError(f"{name}: no such open interval as {row}")
        table[at] = table[at]._replace(
            end=row.end_ms,
            end_offset=row.end_offset,
            uncertain=table[at].uncertain | row.uncertain,
        )

    def _begin(self, name: str, row: Opened[Any]) -> None:
        table, open_ = self.tables[name], self._open[name]
        at = (row.key, row.start_ms, row.start_offset)
        if at in table or (row.end_ms is None and row.key in open_):
            raise DivergedError(f"{name}: {row} is there already")
        table[at] = Interval(
            start=row.start_ms,
            end=OPEN if row.end_ms is None else row.end_ms,
            start_offset=row.start_offset,
            end_offset=row.end_offset,
            uncertain=row.uncertain,
            value=row.value,
        )
        if row.end_ms is None:
            open_[row.key] = at

    def stored(self) -> Stored:
        """Open intervals of each table."""
        return Stored(
            *(
                {key: (start, offset) for key, start, offset in open_.values()}
                for open_ in self._open.values()
            )
        )

    def rewind(self, offset: int) -> int:
        """Drop what began after an offset, reopen what ended after it. Rows touched."""
        touched = 0
        for name, table in self.tables.items():
            for key, row in list(table.items()):
                if row.start_offset > offset:
                    del table[key]
                elif row.end_offset is not None and row.end_offset > offset:
                    table[key] = row._replace(
                        end=OPEN, end_offset=None, uncertain=row.uncertain & 1
                    )
                else:
                    continue
                touched += 1
            self._open[name] = {key[0]: key for key, row in table.items() if row.end == OPEN}
        return touched

    def check(self) -> None:
        """Intervals of a key never overlap or end before they start; nobody waits and runs.

        Raises:
            AssertionError: they do.
        """
        for table in self.tables.values():
            _check_spans((key, row.start, row.end) for (key, *_), row in table.items())
        both = (self.tables[name].items() for name in ("allocations", "requests"))
        _check_spans(
            (key, row.start, row.end) for (key, *_), row in itertools.chain.from_iterable(both)
        )

    def held(self, until: int) -> Sums:
        """Amount × ms by (pod uid, node, queue path, resource) up to a time."""
        return self._sum("allocations", until, lambda key, v: (key, v.node, v.belongs.queue_path))

    def waited(self, until: int) -> Sums:
        """Amount × ms asked for, by (pod uid, queue path, resource)."""
        return self._sum("requests", until, lambda key, v: (key, v.belongs.queue_path))

    def offered(self, until: int) -> Sums:
        """Amount × ms of capacity, by (node, state, resource)."""
        return self._sum("capacities", until, lambda key, v: (key, v.state))

    def _sum(self, name: str, until: int, group: Callable[[str, Any], tuple[Any, ...]]) -> Sums:
        sums: Sums = {}
        for (key, *_), row in self.tables[name].items():
            ms = max(min(row.end, until) - row.start, 0)
            value: Allocation | Request | Capacity = row.value
            for resource, amount in zip(BOOKED, value.amounts, strict=True):
                if amount and ms:
                    where = (*group(key, row.value), resource)
                    sums[where] = sums.get(where, 0) + amount * ms
        return sums


def _check_spans(spans: Iterable[tuple[str, int, int]]) -> None:
    last: dict[str, int] = {}
    for key, start, end in sorted(spans):
        assert end >= start, f"{key} ends at {end}, before {start}"
        assert start >= last.get(key, 0), f"{key} begins at {start}, before {last[key]}"
        last[key] = end


class ReasonRun(NamedTuple):
    """A run of reasons as stored; `ended` None = it goes on."""

    begun: RunBegun
    ended: RunEnded | None = None


class HistoryTables:
    """Tables of the history projection.

    Raises (from `write`):
        DivergedError: the rows do not fit what is stored.
    """

    def __init__(self) -> None:
        self.cycles: dict[tuple[str, int], CycleRow] = {}
        self.decisions: dict[tuple[str, int, int], DecisionRow] = {}
        self.attempts: dict[tuple[int, int], AttemptRow] = {}
        self.reasons: dict[RunKey, ReasonRun] = {}

    def write(self, rows: HistoryRows) -> None:
        """Apply changes."""
        for cycle in rows.cycles:
            _insert(self.cycles, (cycle.cycle.shard, cycle.cycle.cycle), cycle)
        for decision in rows.decisions:
            _insert(self.decisions, (decision.shard, decision.cycle, decision.n), decision)
        for attempt in rows.attempts:
            _insert(self.attempts, (attempt.batch_offset, attempt.n), attempt)
        for begun in rows.begun:
            _insert(self.reasons, begun.key, ReasonRun(begun))
        for changed in rows.changed:
            run = self._goes_on(changed.key)
            begun = run.begun._replace(reasons=changed.reasons)
            self.reasons[changed.key] = run._replace(begun=begun)
        for ended in rows.ended:
            self.reasons[ended.key] = self._goes_on(ended.key)._replace(ended=ended)

    def stored(self) -> Runs:
        """Runs of reasons that go on."""
        return {
            (key.shard, key.gang_uid): OpenRun(key.first_cycle, codes_of(run.begun.reasons))
            for key, run in self.reasons.items()
            if run.ended is None
        }

    def rewind(self, offset: int) -> int:
        """Drop what was recorded after an offset, reopen runs that ended after it."""
        before = self._n_rows()
        self.cycles = {k: r for k, r in self.cycles.items() if r.batch_offset <= offset}
        self.decisions = {k: r for k, r in self.decisions.items() if r.batch_offset <= offset}
        self.attempts = {k: r for k, r in self.attempts.items() if r.batch_offset <= offset}
        self.reasons = {
            key: run._replace(ended=None)
            if run.ended is not None and run.ended.batch_offset > offset
            else run
            for key, run in self.reasons.items()
            if run.begun.batch_offset <= offset
        }
        return before - self._n_rows()

    def _n_rows(self) -> int:
        return len(self.cycles) + len(self.decisions) + len(self.attempts) + len(self.reasons)

    def _goes_on(self, key: RunKey) -> ReasonRun:
        run = self.reasons.get(key)
        if run is None or run.ended is not None:
            raise DivergedError(f"reasons: no open run {key}")
        return run


def _insert(table: dict[Any, Any], key: Any, row: object) -> None:
    if key in table:
        raise DivergedError(f"{type(row).__name__} {key} is there already")
    table[key] = row
