"""What a cycle has decided so far: operations in commit order and marks of pod groups."""

from typing import TYPE_CHECKING

import msgspec

from kai_es.events.decisions import Bind, Evict, GroupMark, Pipeline, ShareAt
from kai_es.events.decisions import Op as Decided
from kai_es.kube.labels import GPU_MICRO
from kai_es.scheduler.columns.nodes import portion_on
from kai_es.scheduler.framework.statement import ALLOCATE, EVICT, Op
from kai_es.scheduler.framework.statuses import BINDING, IS_ALLOCATED, PIPELINED
from kai_es.scheduler.framework.work import Work
from kai_es.scheduler.jobs.tree import holds

if TYPE_CHECKING:
    from kai_es.scheduler.columns.jobs import Job
    from kai_es.scheduler.framework.session import Session
    from kai_es.snapshot.effective import GroupState


class Marks:
    """Marks of one pod group, ms since the epoch, 0 = none."""

    __slots__ = ("last_eviction_ms", "last_start_ms", "room_made_ms", "stale_since_ms")

    def __init__(self, job: "Job") -> None:
        self.stale_since_ms = job.state.stale_since_ms
        self.last_start_ms = job.state.last_start_ms
        self.last_eviction_ms = job.state.last_eviction_ms
        self.room_made_ms = job.state.room_made_ms

    def differ_from(self, state: "GroupState") -> bool:
        """Whether one of them is not as in the rows."""
        return (
            self.last_start_ms != state.last_start_ms
            or self.last_eviction_ms != state.last_eviction_ms
            or self.room_made_ms != state.room_made_ms
            or self.stale_since_ms != state.stale_since_ms
        )


class Ledger:
    """Filled by the actions, read by `close`.

    resume: uid of the first pod group whose search was cut, "" = none.
    displaced_by: uid of a pod group that lost a place of this cycle -> uid of who took it.
    """

    def __init__(self, session: "Session") -> None:
        self._session = session
        self._ops: list[Decided] = []
        self._evicted: set[str] = set()
        self.displaced_by: dict[str, str] = {}
        self.resume = ""
        self._marks: dict[Job, Marks] = {}

    def marks(self, job: "Job") -> Marks:
        """The present marks of a job; write to them to change them."""
        found = self._marks.get(job)
        if found is None:
            found = self._marks[job] = Marks(job)
        return found

    def changed_marks(self) -> tuple[GroupMark, ...]:
        """Marks that differ from those of the rows, by group uid."""
        for job, marks in self._marks.items():
            if marks.last_start_ms != job.state.last_start_ms and not self._session.has(
                job, IS_ALLOCATED
            ):
                marks.last_start_ms = job.state.last_start_ms  # it lost its place again
        found = [
            GroupMark(
                group_uid=job.uid,
                stale_since_ms=marks.stale_since_ms,
                last_start_ms=marks.last_start_ms,
                last_eviction_ms=marks.last_eviction_ms,
                room_made_ms=marks.room_made_ms,
            )
            for job, marks in self._marks.items()
            if marks.differ_from(job.state)
        ]
        return tuple(sorted(found, key=lambda mark: mark.group_uid))

    # -- operations

    @property
    def ops(self) -> list[Decided]:
        """In commit order, as the cycle leaves them.

        Of several places that a pod was given only the last counts. A pod that was given one in
        this cycle and lost it again was never anywhere: nothing is to be done about it, and who
        was evicted for it gives way to the one that has the place now.
        """
        last: dict[str, Decided] = {}
        for op in self._ops:
            if not isinstance(op, Evict):
                last[op.pod_uid] = op
        whole: dict[Job, bool] = {}
        ops = [
            op
            for op in self._ops
            if (isinstance(op, Evict) or last[op.pod_uid] is op) and self._stands(op, whole)
        ]
        placed = {op.group_uid for op in ops if not isinstance(op, Evict)}
        return [self._for_who_came(op, placed) if isinstance(op, Evict) else op for op in ops]

    def _for_who_came(self, op: Evict, placed: set[str]) -> Evict:
        """An eviction, for a job that is placed as the cycle ends."""
        taker = op.beneficiary
        for _ in self.displaced_by:  # a chain is no longer than that
            if taker in placed or taker not in self.displaced_by:
                break
            taker = self.displaced_by[taker]
        if taker == op.beneficiary or taker not in placed:
            return op
        return msgspec.structs.replace(op, beneficiary=taker)

    def _stands(self, op: Decided, whole: "dict[Job, bool]") -> bool:
        session = self._session
        row = session.columns.rows.pods[op.pod_uid]
        if isinstance(op, Evict):
            return bool(row.state.node)
        status = session.status[row.row]
        if isinstance(op, Pipeline):
            return status == PIPELINED
        job = session.job(row.row)
        if job not in whole:
            whole[job] = self._is_whole(job)
        return status == BINDING and whole[job]

    def _is_whole(self, job: "Job") -> bool:
        """Whether no later statement has torn apart a gang that was to be bound."""
        work = Work(job)
        there = self._session.tally(work, IS_ALLOCATED)
        return holds(job.tree.root, there)

    def record(self, done: list[Op], action: str, cause: "Cause | None" = None) -> None:
        """Keep the operations of a committed statement."""
        for op in done:
            if op.kind == EVICT:
                assert cause is not None, "an eviction has a cause"
                self._keep_eviction(op.task, op.node, action, cause)
                self.marks(self._session.job(op.task)).last_eviction_ms = self._session.now_ms
            elif op.kind == ALLOCATE:
                self._ops.append(self._bind(op, action))
            else:
                self._ops.append(self._pipeline(op, action))

    def _bind(self, op: Op, action: str) -> Bind:
        session, row = self._session, self._session.row(op.task)
        facts = session.nodes.columns.facts[op.node]
        shape = row.shape
        gpu = shape.spec.gpu
        if shape.shared:
            received, count, portion = "Fraction", gpu.count, portion_on(shape, facts.gpu_memory)
        elif gpu.mig:
            received, count, portion = "MigInstance", 0, 0
        else:
            received, count = "Regular", shape.gpu // GPU_MICRO
            portion = 100 if count else 0
        claims = session.claims
        grants = ((), None) if claims is None else claims.grants(op.task)
        return Bind(
            pod_uid=row.pod.uid,
            pod_rv=row.rv,
            namespace=row.pod.namespace,
            pod=row.pod.name,
            group_uid=session.job(op.task).uid,
            node=facts.name,
            node_uid=facts.uid,
            action=action,
            supersedes=row.state.request_id,
            received=received,
            gpu_count=count,
            gpu_portion=portion,
            gpu_groups=op.groups,
            claims=grants[0],
            extended=grants[1],
            zones=() if session.ext.zones is None else session.ext.zones(op.task, op.node),
            volumes=() if session.ext.volumes is None else session.ext.volumes(op.task),
        )

    def _pipeline(self, op: Op, action: str) -> Pipeline:
        session, row = self._session, self._session.row(op.task)
        facts = session.nodes.columns.facts[op.node]
        return Pipeline(
            pod_uid=row.pod.uid,
            namespace=row.pod.namespace,
            pod=row.pod.name,
            group_uid=session.job(op.task).uid,
            node=facts.name,
            node_uid=facts.uid,
            action=action,
            moved=bool(row.state.node),
            gpu_groups=op.groups,
        )

    def _keep_eviction(self, task: int, n: int, action: str, cause: "Cause") -> None:
        """A pod is evicted once, for the first that asked for its place."""
        row = self._session.row(task)
        uid = row.pod.uid
        if not row.state.node:  # it was given its place in this cycle
            self.displaced_by[self._session.job(task).uid] = cause.beneficiary
        if uid not in self._evicted:
            self._evicted.add(uid)
            self._ops.append(self._evict(task, n, action, cause))

    def _evict(self, task: int, n: int, action: str, cause: "Cause") -> Evict:
        session, row = self._session, self._session.row(task)
        facts = session.nodes.columns.facts[n]
        return Evict(
            pod_uid=row.pod.uid,
            pod_rv=row.rv,
            namespace=row.pod.namespace,
            pod=row.pod.name,
            group_uid=session.job(task).uid,
            node=facts.name,
            node_uid=facts.uid,
            action=action,
            message=cause.message(task),
            supersedes=row.state.request_id,
            beneficiary=cause.beneficiary,
            gang_size=cause.gang_size,
            before=cause.before(task),
            after=cause.after(task),
        )


class Cause:
    """Why tasks are evicted; actions fill it in.

    beneficiary: uid of the pod group they give way to, "" = none.
    gang_size:   tasks evicted together.
    """

    def __init__(self, beneficiary: str = "", gang_size: int = 1) -> None:
        self.beneficiary = beneficiary
        self.gang_size = gang_size

    def message(self, task: int) -> str:
        """What the pod's owner is told."""
        raise AssertionError(f"{type(self).__name__} has no message for {task}")

    def before(self, task: int) -> tuple[ShareAt, ...]:
        """Shares of the queues concerned before the statement."""
        del task
        return ()

    def after(self, task: int) -> tuple[ShareAt, ...]:
        """The same after it."""
        del task
        return ()
