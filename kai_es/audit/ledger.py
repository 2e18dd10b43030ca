"""Invariants 1, 3 and 7: what became of every request, and whom it was for."""

from typing import Final

import msgspec

from kai_es.audit.findings import Findings
from kai_es.events.decisions import Bind, Cycle, Evict, Pipeline, Verdict
from kai_es.events.requests import (
    AttemptFailed,
    Bound,
    Evicted,
    Refused,
    cycle_of,
    is_final,
    request_id,
)
from kai_es.events.snapshot import Batch, Row
from kai_es.snapshot.world import World

OPEN_MAX_MS: Final = 120_000 + 30_000 + 5_000
"""A bind's life, one attempt's timeout and one cycle: no request is open longer (invariant 3)."""


class _Entry(msgspec.Struct):
    """One request. incarnation: of the cluster's history that its cycle saw."""

    pod_uid: str
    node: str
    node_uid: str
    evict: bool
    cycle_ms: int
    incarnation: int
    final: str = ""


class Ledger:
    """All requests of the history, and the results that came for them."""

    def __init__(self, world: World, findings: Findings) -> None:
        self._world = world
        self._findings = findings
        self._entries: dict[str, _Entry] = {}
        self._early: dict[str, list[Row]] = {}
        # What etcd forgot in a restore may happen again in the next incarnation.
        self._bound: dict[tuple[str, int], str] = {}
        self._before = {shard: of.next_cycle for shard, of in world.reigns.shards.items()}
        for request in world.requests.all():
            self._entries[request.id] = _Entry(
                pod_uid=request.pod_uid,
                node=request.node,
                node_uid=request.node_uid,
                evict=request.evict,
                cycle_ms=request.decided_ms,
                incarnation=request.incarnation,
                final=type(request.outcome.final).__name__ if request.outcome.final else "",
            )

    def before(self, offset: int, batch: Batch) -> None:
        """Look at a batch that is about to be folded: are its requests allowed?"""
        ordered: set[tuple[str, bool]] = set()
        for row in batch.rows:
            if isinstance(row, Cycle):
                self._cycle(row, offset, ordered)

    def after(self, offset: int, batch: Batch) -> None:
        """Look at a batch that is folded: results."""
        for row in batch.rows:
            if isinstance(row, Bound | Evicted | AttemptFailed | Refused):
                self._result(row, offset)

    def close(self, time_ms: int) -> None:
        """Look at what is left at the end of the log."""
        n_open = 0
        for identity, entry in self._entries.items():
            if entry.final:
                continue
            n_open += 1
            age_ms = time_ms - entry.cycle_ms
            if age_ms > OPEN_MAX_MS:
                self._findings.violated(
                    "3",
                    "end of the log",
                    f"request {identity} has no final result, {age_ms} ms old",
                )
        if n_open:
            self._findings.note(f"{n_open} requests have no final result yet")
        for identity in self._early:
            shard, cycle = cycle_of(identity)
            if cycle <= self._world.reigns.last_cycle(shard):
                self._findings.violated(
                    "2", "end of the log", f"{identity} has a result but is in no cycle"
                )

    def _cycle(self, cycle: Cycle, offset: int, ordered: set[tuple[str, bool]]) -> None:
        where = f"snapshot {offset}"
        placed = {op.group_uid for op in cycle.decision.ops if not isinstance(op, Evict)}
        moved = {op.pod_uid for op in cycle.decision.ops if isinstance(op, Pipeline) and op.moved}
        for op in cycle.decision.ops:
            if isinstance(op, Pipeline):
                continue
            is_evict = isinstance(op, Evict)
            self._findings.checked("1 requests")
            if self._is_open(op.pod_uid, evict=is_evict) or (op.pod_uid, is_evict) in ordered:
                what = "evict" if is_evict else "bind"
                number = "7" if is_evict else "1"
                self._findings.violated(
                    number,
                    where,
                    f"cycle {cycle.cycle}: pod {op.pod_uid} has an open {what} request already",
                )
            ordered.add((op.pod_uid, is_evict))
            if isinstance(op, Evict):
                self._evict(cycle, op, where, placed=placed, moved=moved)
            self._enter(cycle, op)

    def _evict(
        self, cycle: Cycle, op: Evict, where: str, *, placed: set[str], moved: set[str]
    ) -> None:
        self._findings.checked("7 evictions")
        if cycle.inputs.gate.verdict is not Verdict.OPEN:
            self._findings.violated(
                "7", where, f"cycle {cycle.cycle} evicts {op.pod_uid} against the gate's verdict"
            )
        is_free = op.action == "stalegangeviction" or op.pod_uid in moved
        if not is_free and op.beneficiary not in placed:
            self._findings.violated(
                "7",
                where,
                f"cycle {cycle.cycle} evicts {op.pod_uid} for {op.beneficiary or 'nobody'}, "
                "which is not placed in it",
            )

    def _is_open(self, pod_uid: str, *, evict: bool) -> bool:
        return self._world.has_open_request(pod_uid, evict=evict)

    def _enter(self, cycle: Cycle, op: Bind | Evict) -> None:
        identity = request_id(shard=cycle.shard, cycle=cycle.cycle, pod_uid=op.pod_uid)
        self._entries[identity] = _Entry(
            pod_uid=op.pod_uid,
            node=op.node,
            node_uid=op.node_uid,
            evict=isinstance(op, Evict),
            cycle_ms=cycle.inputs.now_ms,
            incarnation=self._world.liveness.seen_at(cycle.offset),
        )
        for row in self._early.pop(identity, ()):
            assert isinstance(row, Bound | Evicted | AttemptFailed | Refused)
            self._result(row, -1)

    def _result(self, row: Bound | Evicted | AttemptFailed | Refused, offset: int) -> None:
        if not is_final(row):
            return
        self._findings.checked("3 final results")
        entry = self._entries.get(row.request_id)
        if entry is None:
            shard, cycle = cycle_of(row.request_id)
            if cycle >= self._before.get(shard, 0):  # else it is older than where we began
                self._early.setdefault(row.request_id, []).append(row)
            return
        where = f"snapshot {offset}"
        kind = type(row).__name__
        if not isinstance(row, Bound):
            entry.final = entry.final or kind
            return
        entry.final = kind
        if entry.evict or row.node_uid != entry.node_uid:
            self._findings.violated(
                "1", where, f"{row.request_id} is bound to {row.node}, ordered was {entry.node}"
            )
        other = self._bound.setdefault((row.pod_uid, entry.incarnation), row.request_id)
        if other != row.request_id:
            self._findings.violated(
                "1", where, f"pod {row.pod_uid} is bound by {other} and by {row.request_id}"
            )
