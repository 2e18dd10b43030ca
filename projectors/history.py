"""Batches to history: cycles, decisions, runs of pending reasons, attempts of the binder."""

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from kai_es.events.decisions import Bind, Cycle, Evict, Op, Pipeline, Reason, ShareAt
from kai_es.events.requests import (
    AttemptFailed,
    Bound,
    Evicted,
    Refused,
    Result,
    is_final,
)
from kai_es.events.snapshot import Batch, Removed, Upserted
from kai_es.kube.objects import PodGroup
from kai_es.snapshot.observed import Since
from kai_es.snapshot.ranking import TOMBSTONE_KEEP_MS, Objects, Rank

_FORGET_EVERY_MS: Final = 60_000
_RESULTS: Final = (Bound, Evicted, AttemptFailed, Refused)


class Gang(NamedTuple):
    """A pod group as people know it; all "" = no row of it was in force."""

    namespace: str = ""
    name: str = ""
    queue: str = ""


class CycleRow(NamedTuple):
    """A recorded cycle. `batch_offset`, `time_ms`: of the batch that holds it."""

    time_ms: int
    batch_offset: int
    cycle: Cycle
    pending: int


class DecisionRow(NamedTuple):
    """One operation of a cycle; `n` = its place in commit order."""

    time_ms: int
    batch_offset: int
    shard: str
    cycle: int
    n: int
    op: Op
    gang: Gang


class RunKey(NamedTuple):
    """A run of reasons: one pod group in one shard, from its first cycle on."""

    shard: str
    gang_uid: str
    first_cycle: int


class RunBegun(NamedTuple):
    """A pod group waits for reasons with other codes than in the cycle before."""

    key: RunKey
    time_ms: int
    batch_offset: int
    reasons: tuple[Reason, ...]
    gang: Gang


class RunChanged(NamedTuple):
    """Same codes, other arguments."""

    key: RunKey
    reasons: tuple[Reason, ...]


class RunEnded(NamedTuple):
    """The last cycle of a run was the one before this row's."""

    key: RunKey
    last_cycle: int
    time_ms: int
    batch_offset: int


class AttemptRow(NamedTuple):
    """One result of the binder; `n` = its row in the batch."""

    time_ms: int
    batch_offset: int
    n: int
    result: Result


class HistoryRows(NamedTuple):
    """Changes of the tables of the history projection since the last `take`."""

    cycles: tuple[CycleRow, ...]
    decisions: tuple[DecisionRow, ...]
    begun: tuple[RunBegun, ...]
    changed: tuple[RunChanged, ...]
    ended: tuple[RunEnded, ...]
    attempts: tuple[AttemptRow, ...]

    def n_rows(self) -> int:
        """Rows to be written."""
        return sum(len(table) for table in self)


class OpenRun(NamedTuple):
    """A run that goes on: its first cycle and its codes."""

    first_cycle: int
    codes: tuple[str, ...]


Runs = Mapping[tuple[str, str], OpenRun]
"""By shard and pod-group uid."""


class History:
    """The fold. Feed every accepted batch in order, collect the rows with `take`."""

    def __init__(self) -> None:
        self._groups = Objects()
        self._runs: dict[str, dict[str, OpenRun]] = {}
        self._forgot = 0
        self._cycles: list[CycleRow] = []
        self._decisions: list[DecisionRow] = []
        self._begun: dict[RunKey, RunBegun] = {}
        self._changed: dict[RunKey, RunChanged] = {}
        self._ended: list[RunEnded] = []
        self._attempts: list[AttemptRow] = []

    def fold(self, offset: int, batch: Batch) -> None:
        """Fold an accepted batch."""
        since = Since(batch.time, offset)
        for n, row in enumerate(batch.rows):
            if isinstance(row, Cycle):
                self._cycle(row, since)
            elif isinstance(row, _RESULTS):
                self._attempts.append(AttemptRow(batch.time, offset, n, row))
            elif isinstance(row, Upserted):
                if isinstance(row.obj, PodGroup):
                    rank = Rank(row.incarnation, row.rv)
                    self._groups.upsert(row.obj, rank=rank, since=since)
            elif isinstance(row, Removed) and row.kind == "PodGroup":
                rank = Rank(row.incarnation, row.rv)
                self._groups.remove(row.kind, row.uid, rank=rank, time_ms=batch.time)
        if batch.time // _FORGET_EVERY_MS > self._forgot:
            self._forgot = batch.time // _FORGET_EVERY_MS
            for _ in self._groups.forget(before_ms=batch.time - TOMBSTONE_KEEP_MS):
                pass

    def restore(self, objects: Objects, *, time_ms: int, runs: Runs) -> None:
        """Take up the fold after a batch.

        Args:
            objects: all objects in force after that batch; the pod groups are copied.
            time_ms: time of that batch.
            runs: open runs as stored.
        """
        assert not self._runs, "restored into a fold that has begun"
        self._forgot = time_ms // _FORGET_EVERY_MS
        self._groups = objects.copy(("PodGroup",))
        for (shard, gang_uid), run in runs.items():
            self._runs.setdefault(shard, {})[gang_uid] = run

    def take(self) -> HistoryRows:
        """The changes since the last call."""
        rows = HistoryRows(
            cycles=tuple(self._cycles),
            decisions=tuple(self._decisions),
            begun=tuple(self._begun.values()),
            changed=tuple(self._changed.values()),
            ended=tuple(self._ended),
            attempts=tuple(self._attempts),
        )
        self._cycles, self._decisions, self._attempts = [], [], []
        self._begun, self._changed, self._ended = {}, {}, []
        return rows

    def n_changes(self) -> int:
        """How many rows `take` would return."""
        return (
            len(self._cycles)
            + len(self._decisions)
            + len(self._attempts)
            + len(self._begun)
            + len(self._changed)
            + len(self._ended)
        )

    def _cycle(self, row: Cycle, since: Since) -> None:
        decision = row.decision
        pending = len(decision.reasons) + len(row.reasons_same)
        self._cycles.append(CycleRow(since.time_ms, since.offset, row, pending))
        for n, op in enumerate(decision.ops):
            self._decisions.append(
                DecisionRow(
                    time_ms=since.time_ms,
                    batch_offset=since.offset,
                    shard=row.shard,
                    cycle=row.cycle,
                    n=n,
                    op=op,
                    gang=self._gang(op.group_uid),
                )
            )
        self._reasons(row, since)

    def _reasons(self, row: Cycle, since: Since) -> None:
        """Continue, end and begin runs. What is in neither map waits no more."""
        runs = self._runs.setdefault(row.shard, {})
        reasons = {uid: why for uid, why in row.decision.reasons.items() if why}
        same = row.reasons_same
        for gang_uid in [uid for uid in runs if uid not in same and uid not in reasons]:
            self._end(row, gang_uid, since)
        for gang_uid, why in reasons.items():
            codes = codes_of(why)
            run = runs.get(gang_uid)
            if run is not None and run.codes == codes:
                self._change(RunKey(row.shard, gang_uid, run.first_cycle), why)
                continue
            if run is not None:
                self._end(row, gang_uid, since)
            runs[gang_uid] = OpenRun(row.cycle, codes)
            key = RunKey(row.shard, gang_uid, row.cycle)
            self._begun[key] = RunBegun(key, since.time_ms, since.offset, why, self._gang(gang_uid))

    def _change(self, key: RunKey, reasons: tuple[Reason, ...]) -> None:
        begun = self._begun.get(key)
        if begun is not None:
            self._begun[key] = begun._replace(reasons=reasons)
        else:
            self._changed[key] = RunChanged(key, reasons)

    def _end(self, row: Cycle, gang_uid: str, since: Since) -> None:
        run = self._runs[row.shard].pop(gang_uid)
        key = RunKey(row.shard, gang_uid, run.first_cycle)
        self._ended.append(RunEnded(key, row.cycle - 1, since.time_ms, since.offset))

    def _gang(self, uid: str) -> Gang:
        entry = self._groups.get("PodGroup", uid)
        if entry is None or not isinstance(entry.obj, PodGroup):
            return Gang()
        return Gang(entry.obj.namespace, entry.obj.name, entry.obj.queue)


def codes_of(reasons: tuple[Reason, ...]) -> tuple[str, ...]:
    """What identifies a run: the codes, dominant first, without arguments."""
    return tuple(reason.code for reason in reasons)


def outcome_of(result: Result) -> tuple[str, str, str, bool]:
    """Outcome, code, node and finality of a result."""
    match result:
        case Bound():
            return "bound", "", result.node, True
        case Evicted():
            return "evicted", "", "", True
        case AttemptFailed():
            return "failed", result.code, "", is_final(result)
        case Refused():
            return "refused", result.code, "", True


def kind_of_op(op: Op) -> str:
    """Word for an operation in the ledger."""
    match op:
        case Bind():
            return "bind"
        case Evict():
            return "evict"
        case Pipeline():
            return "pipeline"


def shares_of(op: Op) -> Iterator[tuple[str, ShareAt]]:
    """Shares around an eviction: `before` and `after`, victim's and beneficiary's queue."""
    if isinstance(op, Evict):
        yield from (("before", share) for share in op.before)
        yield from (("after", share) for share in op.after)
