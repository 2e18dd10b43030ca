"""A cluster from cycle to cycle: what is bound runs at once, what is evicted comes back pending."""

import msgspec

from kai_es.events.decisions import Bind, CycleDecision, CycleInputs, Evict
from kai_es.scheduler.config import Config
from kai_es.scheduler.decide import decide
from kai_es.snapshot.effective import TaskState
from kai_es.snapshot.snapshot import Snapshot
from kai_es.snapshot.status import TaskStatus
from tests.scheduler_world import NOW_MS

CYCLE_MS = 1000


class Life:
    """Runs cycles on a snapshot and carries them out.

    Args:
        snapshot, config, flags: as for `decide`.
        linger: cycles that an evicted pod takes to end, with its successor pending beside it.
    """

    def __init__(
        self, snapshot: Snapshot, config: Config, flags: frozenset[str], linger: int = 0
    ) -> None:
        self._linger = linger
        self._ending: dict[str, int] = {}
        self.snapshot = snapshot
        self._shard = config.shard("s")
        self._flags = tuple(sorted(flags))
        self.cycle = 0

    def run_cycle(self) -> CycleDecision:
        """Decide and carry out."""
        self.cycle += 1
        inputs = CycleInputs(
            shard="s",
            cycle=self.cycle,
            now_ms=NOW_MS + self.cycle * CYCLE_MS,
            flags=self._flags,
        )
        for uid in [uid for uid, last in self._ending.items() if last < self.cycle]:
            self.snapshot.remove_pod(uid)
            del self._ending[uid]
        decision = decide(self.snapshot, self._shard, inputs)
        for op in decision.ops:
            if isinstance(op, Bind):
                self._bound(op)
            elif isinstance(op, Evict):
                self._evicted(op)
        for mark in decision.marks:
            row = self.snapshot.groups.rows[mark.group_uid]
            state = msgspec.structs.replace(
                row.state,
                stale_since_ms=mark.stale_since_ms,
                last_start_ms=mark.last_start_ms,
                last_eviction_ms=mark.last_eviction_ms,
                room_made_ms=mark.room_made_ms,
            )
            self.snapshot.set_group(row.group, rv=row.rv + 1, state=state)
        return decision

    def _bound(self, op: Bind) -> None:
        row = self.snapshot.pods[op.pod_uid]
        state = TaskState(status=TaskStatus.RUNNING, node=op.node, gpu_groups=op.gpu_groups)
        self.snapshot.set_pod(row.pod, rv=row.rv + 1, task=state)

    def _evicted(self, op: Evict) -> None:
        """Its owner makes another one in its place."""
        row = self.snapshot.pods[op.pod_uid]
        if self._linger:
            state = msgspec.structs.replace(row.state, status=TaskStatus.RELEASING)
            self.snapshot.set_pod(row.pod, rv=row.rv + 1, task=state)
            self._ending[op.pod_uid] = self.cycle + self._linger
        else:
            self.snapshot.remove_pod(op.pod_uid)
        again = msgspec.structs.replace(row.pod, uid=f"{row.pod.name}/{self.cycle}")
        self.snapshot.set_pod(again, rv=1, task=TaskState(status=TaskStatus.PENDING))
