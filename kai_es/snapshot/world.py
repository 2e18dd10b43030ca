"""The fold of `snapshot`: what the log says is, at one offset.

`World.apply` is the one place where rows get their meaning; every reader runs it: scheduler, books,
audit, replay. It ranks versions, follows requests, and keeps the columns of `Snapshot` up to date.
"""

from collections.abc import Callable
from typing import Any, Final, NamedTuple, TypeAlias

from kai_es.events import requests as results
from kai_es.events import snapshot as events
from kai_es.events.decisions import Cycle, GateChange, Reign, ReignEnd
from kai_es.events.requests import AttemptFailed, Bound, Evicted, Result, cycle_of, is_final
from kai_es.events.snapshot import Batch, Origin
from kai_es.kube.objects import (
    ClusterObject,
    Node,
    Pod,
    PodGroup,
    kind_of,
)
from kai_es.snapshot.chain import Verdict
from kai_es.snapshot.display import Touched, show
from kai_es.snapshot.lifecycle import ENDED_PHASES, Request
from kai_es.snapshot.observed import Since, observed_ms
from kai_es.snapshot.pools import Move, has_let_go, selectors_of, shard_of
from kai_es.snapshot.ranking import TOMBSTONE_KEEP_MS, Rank
from kai_es.snapshot.relevance import matters
from kai_es.snapshot.state import State

SWEEP_MS: Final = 60_000
"""What can have no effect any more is looked for once a minute of the log's time."""

SURE_MS: Final = 10_000
"""What was told so long before an event or bookmark of the pods' watch has come by that watch: ten
times what a watch, or a wrong clock, lags in earnest."""


class Applied(NamedTuple):
    """A batch was folded.

    changed: something that `decide` reads changed, other than by a cycle.
    decided: shards whose cycles in it ordered something. A cycle that ordered nothing concerns
             nobody; if it did, two shards would set each other off for ever.
    """

    offset: int
    changed: bool
    decided: tuple[str, ...]


class Rejected(NamedTuple):
    """A batch was skipped whole: another one continued the history before it."""

    offset: int


class Missed(NamedTuple):
    """A batch continues one that this reader has not seen: read again from `resume`."""

    offset: int
    resume: int


Outcome: TypeAlias = Applied | Rejected | Missed


class World(State):
    """State at one offset of `snapshot`. Folding is all it does: no clock, no I/O."""

    def __init__(self) -> None:
        super().__init__()
        self._touched = Touched()
        self._changed = False
        self._fold: dict[type[Any], Callable[[Any, Since], None]] = {
            events.Upserted: self._upserted,
            events.Removed: self._removed,
            events.Parked: self._parked,
            events.ParkingEnded: self._parked,
            events.KindListed: self._listed,
            events.AliveSeen: self._alive,
            Reign: self._reign,
            ReignEnd: self._reign_end,
            GateChange: self._gate_change,
            Cycle: self._cycle,
            results.Bound: self._result,
            results.Evicted: self._result,
            results.AttemptFailed: self._result,
            results.Refused: self._result,
        }

    def apply(self, offset: int, batch: Batch) -> Outcome:
        """Fold one record of `snapshot`, if the accept rule says so.

        Raises:
            BrokenHistoryError: the batch is accepted but contradicts the history; the state is of
                no use any more.
        """
        match self.chain.judge(batch):
            case Verdict.REJECT:
                return Rejected(offset)
            case Verdict.MISSED:
                return Missed(offset, self.chain.offset + 1)
            case Verdict.ACCEPT:
                pass
        prev_time = self.chain.time
        self.chain.accept(offset, batch)
        self._changed = False
        self._touched = Touched()
        for row, origin in zip(batch.rows, batch.origins, strict=True):
            self._fold[type(row)](row, self._since(origin, prev_time))
        self._sweep(prev_time)
        self._settle_doubts()
        self._settle_moves()
        self._changed = show(self, self._touched) or self._changed
        orders = (row for row in batch.rows if isinstance(row, Cycle) and row.decision.ops)
        decided = tuple(sorted({row.shard for row in orders}))
        return Applied(offset, self._changed, decided)

    def show_all(self) -> None:
        """Make everything derived anew, after the state was restored."""
        self._touched = Touched()
        for kind, entries in sorted(self.objects.live.items()):
            for uid, entry in sorted(entries.items()):
                self._stamp(None, entry.obj)
                self._touched.add(kind, uid)
        for kind, uid in sorted(self.parking.entries):
            self._touched.add(kind, uid)
        show(self, self._touched)

    # -- rows

    def _since(self, origin: Origin, prev_time: int) -> Since:
        at = observed_ms(prev_time=prev_time, time=self.time, ingest_ms=origin.ingest_ms)
        return Since(at, self.offset)

    def _upserted(self, row: events.Upserted, since: Since) -> None:
        obj, kind = row.obj, kind_of(row.obj)
        self._see_incarnation(row.incarnation)
        known = self.objects.get(kind, obj.uid)
        former = known.obj if known is not None else None
        rank = Rank(row.incarnation, row.rv)
        if self.objects.upsert(obj, rank=rank, since=since) is None:
            return
        self.parking.supersede(kind, obj.uid, rank=rank)
        has_marks = obj.uid in self.standings.marks
        self._changed = self._changed or matters(former, obj, has_marks=has_marks)
        self._stamp(former, obj)
        self._note_move(former, obj)
        self._touched.add(kind, obj.uid)
        if kind == "Node" and former is None:
            self._touched.pods.update(dict.fromkeys(self.requests.node_back(obj.uid)))

    def _removed(self, row: events.Removed, since: Since) -> None:
        self._see_incarnation(row.incarnation)
        rank = Rank(row.incarnation, row.rv)
        known = self.objects.rank(row.kind, row.uid)
        if known is not None and known > rank:
            return
        former = self.objects.remove(row.kind, row.uid, rank=rank, time_ms=since.time_ms)
        self.parking.supersede(row.kind, row.uid, rank=rank)
        self.pools.drop(row.kind, row.uid)
        self._touched.add(row.kind, row.uid)
        if former is not None:
            self._changed = True
            self._stamp(former.obj, None)
        if row.kind == "Node":
            self._touched.pods.update(dict.fromkeys(self.requests.node_gone(row.uid)))
        elif row.kind == "PodGroup":
            self.standings.drop(row.uid)

    def _parked(self, row: events.Parked | events.ParkingEnded, since: Since) -> None:
        del since
        self._see_incarnation(row.incarnation)
        if self.parking.fold(row, known=self.objects.rank(row.kind, row.uid)):
            self._touched.add(row.kind, row.uid)

    def _listed(self, row: events.KindListed, since: Since) -> None:
        del since
        self._see_incarnation(row.incarnation)
        self.liveness.fold_listed(row)

    def _alive(self, row: events.AliveSeen, since: Since) -> None:
        del since
        self._see_incarnation(row.incarnation)
        self.liveness.fold_alive(row)

    def _reign(self, row: Reign, since: Since) -> None:
        del since
        self.reigns.fold_reign(row)

    def _reign_end(self, row: ReignEnd, since: Since) -> None:
        del since
        self.reigns.fold_end(row)

    def _gate_change(self, row: GateChange, since: Since) -> None:
        del since
        self.reigns.fold_gate(row)

    def _cycle(self, row: Cycle, since: Since) -> None:
        self.reigns.fold_cycle(row)
        incarnation = self.liveness.seen_at(row.offset)
        for request in self.requests.fold_cycle(row, incarnation=incarnation):
            self._doubt(request, since)
            if self.objects.is_deleted("Node", request.node_uid):
                request.node_gone = True
            self._touched.decided.add(request.pod_uid)
            self._touched.pods[request.pod_uid] = None
        for mark in row.decision.marks:
            if self.objects.is_deleted("PodGroup", mark.group_uid):
                continue
            if self.standings.fold_mark(mark, cycle=row, time_ms=since.time_ms):
                self._touched.groups[mark.group_uid] = None

    def _result(self, row: Result, since: Since) -> None:
        shard, cycle = cycle_of(row.request_id)
        is_past = cycle <= self.reigns.last_cycle(shard)
        request = self.requests.fold_result(row, is_past=is_past)
        if request is not None:
            self._doubt(request, since)
            self._touched.pods[request.pod_uid] = None
            # The pod may look as it did before its cycle, when both are in one batch.
            self._changed = self._changed or is_final(row)
        if isinstance(row, AttemptFailed) and is_final(row) and row.group_uid:
            if self.objects.is_deleted("PodGroup", row.group_uid):
                return
            self.standings.fold_failure(row, shard=shard, cycle=cycle, time_ms=since.time_ms)
            self._touched.groups[row.group_uid] = None

    # -- effects

    def _see_incarnation(self, incarnation: int) -> None:
        self.liveness.see(incarnation, offset=self.offset)

    def _doubt(self, request: Request, since: Since) -> None:
        """Note that nobody knows whether what was done was done before a restore of etcd."""
        is_done = isinstance(request.outcome.final, Bound | Evicted)
        if is_done and request.incarnation < self.liveness.incarnation:
            self.requests.doubt(request, time_ms=since.time_ms)

    def _settle_doubts(self) -> None:
        """Forget what was done of requests and is not shown though the watch has gone on."""
        if not self.requests.doubted:
            return
        sure_ms = self.liveness.watched_everywhere_ms("Pod") - SURE_MS
        uids = dict.fromkeys(self.requests.end_doubts(sure_ms=sure_ms))
        self._touched.pods.update(uids)
        self._changed = self._changed or bool(uids)

    def _stamp(self, former: ClusterObject | None, now: ClusterObject | None) -> None:
        """Keep the count of stamps by pods that have not ended."""
        for obj, count in ((former, -1), (now, +1)):
            if (
                isinstance(obj, Pod)
                and obj.phase not in ENDED_PHASES
                and self.standings.stamp(obj, count=count)
            ):
                self._touched.groups[obj.group_uid] = None

    def _note_move(self, former: ClusterObject | None, now: ClusterObject) -> None:
        """Notice what changes its shard."""
        if not isinstance(former, Node | PodGroup) or not isinstance(now, Node | PodGroup):
            return
        if former.labels == now.labels:
            return
        selectors = selectors_of(self.snapshot.configs.values())
        self.pools.note(
            kind_of(now),
            now.uid,
            before=shard_of(former.labels, selectors),
            after=shard_of(now.labels, selectors),
            shards=self.reigns.shards,
            offset=self.offset,
        )

    def _settle_moves(self) -> None:
        """Let new shards use what the old ones have let go."""
        for move in list(self.pools.moves.values()):
            shard = self.reigns.shards[move.shard]
            if has_let_go(move, shard, has_open_requests=self._is_acted_on(move)):
                self.pools.drop(move.kind, move.uid)
                self._touched.add(move.kind, move.uid)
                self._changed = True

    def _is_acted_on(self, move: Move) -> bool:
        """Whether the old shard has open requests on what has moved."""
        if move.kind == "Node":
            requests = self.requests.of_node(move.uid)
        else:
            requests = [r for r in self.requests.all() if r.group_uid == move.uid]
        return any(r.shard == move.shard and self.is_open(r) for r in requests)

    def _sweep(self, prev_time: int) -> None:
        """Once a minute, forget what can have no effect any more."""
        if prev_time // SWEEP_MS == self.time // SWEEP_MS:
            return
        before_ms = self.time - TOMBSTONE_KEEP_MS
        for kind, uid in self.objects.forget(before_ms=before_ms):
            if kind == "Pod":
                self.requests.forget(uid)
        live = self.objects.live.get("Pod", {})
        for uid in [u for u in self.requests.by_pod if u not in live]:
            self.requests.forget_ended(uid, before_ms=before_ms)
        groups = self.objects.live.get("PodGroup", {})
        changed = self.standings.sweep(time_ms=self.time, keep_ms=TOMBSTONE_KEEP_MS, is_live=groups)
        self._touched.groups.update(dict.fromkeys(sorted(changed)))
