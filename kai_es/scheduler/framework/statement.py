"""Tentative placements and evictions of one attempt, with checkpoint, rollback and commit.

Rollback puts back recorded values, byte for byte. Undoing one operation in the middle (a victim
that keeps its place) runs its inverse as one more recorded step: amounts are integers and a step
only adds and subtracts them, so the result is that of rolling back to it and applying the rest
anew (`tests/property/test_statement.py`).

Reference: pkg/scheduler/framework/statement.go, operations.go (scheduler-core §7.4, §7.6).
"""

from typing import TYPE_CHECKING, Final, NamedTuple

from kai_es.scheduler.columns import sharing
from kai_es.scheduler.columns.nodes import KIND, NO_ROW, task_memory
from kai_es.scheduler.columns.sharing import ABSENT, OTHER
from kai_es.scheduler.flags import (
    DISPLACED_COUNTS,
    RETURN_RESTORES_MOVE,
    SECOND_EVICTION_FAILS,
    UNDO_LEAKS_SHARES,
)
from kai_es.scheduler.framework.claims import Choice, Held
from kai_es.scheduler.framework.journal import restore
from kai_es.scheduler.framework.nodes import EntryOnNode
from kai_es.scheduler.framework.statuses import (
    ALLOCATED,
    BINDING,
    PENDING,
    PIPELINED,
    RELEASING,
)

if TYPE_CHECKING:
    from kai_es.scheduler.columns.jobs import Job
    from kai_es.scheduler.framework.session import Session

EVICT: Final = "evict"
PIPELINE: Final = "pipeline"
ALLOCATE: Final = "allocate"
UNDO: Final = "undo"


class StatementError(AssertionError):
    """An operation that makes no sense on the present state; names the task."""


class Checkpoint(NamedTuple):
    """A place to roll back to."""

    n_ops: int
    n_writes: int


class Before(NamedTuple):
    """What an operation's inverse puts back."""

    status: int
    node: int | None
    groups: tuple[str, ...] | None
    virtual: int
    held: tuple[Held, ...] | None = None


class Op:
    """One operation.

    task, node: pod row and node row.
    before:     state of the task before it.
    groups:     GPU groups that a placement chose, or devices that an eviction takes away.
    choice:     devices of claims that a placement chose.
    update:     of a pipeline: the task's entry on the node was to be replaced.
    moved:      of a pipeline: to other devices of its node; what it held there counts on.
    of:         of an undo: index of the operation that it undid.
    valid:      no valid undo points at it.
    """

    __slots__ = (
        "before",
        "choice",
        "groups",
        "kind",
        "moved",
        "node",
        "of",
        "task",
        "update",
        "valid",
    )

    def __init__(
        self,
        kind: str,
        task: int,
        node: int,
        *,
        before: Before,
        groups: tuple[str, ...] = (),
        choice: Choice | None = None,
        update: bool = False,
        of: int = -1,
    ) -> None:
        self.kind = kind
        self.task = task
        self.node = node
        self.before = before
        self.groups = groups
        self.choice = choice
        self.update = update
        self.moved = False
        self.of = of
        self.valid = True


class Statement:
    """Operations on a session; nobody else writes to it while one is open."""

    def __init__(self, session: "Session") -> None:
        assert not session.journal, "another statement is open"
        self.session = session
        self.ops: list[Op] = []
        self._evictions: dict[int, list[int]] = {}

    # -- operations

    def allocate(
        self, task: int, n: int, groups: tuple[str, ...] = (), choice: Choice | None = None
    ) -> None:
        """Place a task on idle resources.

        Raises:
            StatementError: it is on that node already.
        """
        session = self.session
        if session.entry(task, n) is not None:
            raise StatementError(f"task {session.row(task).pod.uid} is already on its node")
        before = self._before(task)
        self._take(task, choice)
        self._write(task, ALLOCATED, n, groups, virtual=1)
        self._change(task, n, None, (OTHER, groups or _devices(choice)))
        self._event(task, n, session.ext.allocated)
        self.ops.append(Op(ALLOCATE, task, n, before=before, groups=groups, choice=choice))

    def pipeline(
        self,
        task: int,
        n: int,
        groups: tuple[str, ...] = (),
        choice: Choice | None = None,
        *,
        update: bool = False,
    ) -> None:
        """Place a task on resources that are being released.

        A victim that finds itself on its own node and devices is unevicted instead, unless
        `update`.
        """
        session = self.session
        entry = session.entry(task, n)
        moved = False
        if entry is not None:
            moved = bool(groups) and session.row(task).shape.shared and entry[1] != groups
            moved = moved or (choice is not None and not choice.home)
            if not update and not moved:
                if self._left(task, n) or RETURN_RESTORES_MOVE in session.flags:
                    self.unevict(task)
                    return
                moved = True  # an earlier statement moved it away from here; it starts here anew
        before = self._before(task)
        self._take(task, choice)
        self._write(task, PIPELINED, n, groups, virtual=1)
        after = (sharing.PIPELINED, groups or _devices(choice))
        self._change(task, n, entry, after, stays=moved)
        self._event(task, n, session.ext.allocated)
        op = Op(PIPELINE, task, n, before=before, groups=groups, choice=choice, update=update)
        op.moved = moved
        self.ops.append(op)

    def _left(self, task: int, n: int) -> bool:
        """Whether this statement evicted a task from a node."""
        return any(
            self.ops[index].valid and self.ops[index].node == n
            for index in self._evictions.get(task, ())
        )

    def evict(self, task: int) -> None:
        """Take a task off its place.

        Raises:
            StatementError: it is on no node of the shard.
        """
        session = self.session
        n = session.node_of(task)
        if n == NO_ROW:
            raise StatementError(f"task {session.row(task).pod.uid} is on no node of the shard")
        before = self._before(task)
        entry = session.entry(task, n)
        groups = session.groups_of(task) if entry is None else entry[1]
        session.set_status(task, RELEASING)
        self._set_virtual(task, 1)
        kind = sharing.RELEASING
        if DISPLACED_COUNTS not in session.flags and (
            before.status == PIPELINED or not session.row(task).state.node
        ):
            kind = ABSENT  # it is not there yet: nothing has to leave
        self._change(task, n, entry, (kind, groups))
        self._event(task, n, session.ext.deallocated)
        self._evictions.setdefault(task, []).append(len(self.ops))
        self.ops.append(Op(EVICT, task, n, before=before, groups=groups))

    def unevict(self, task: int) -> None:
        """Undo the earliest valid eviction of a task.

        Raises:
            StatementError: there is none.
        """
        for index in self._evictions.get(task, ()):
            if self.ops[index].valid:
                self.undo(index)
                return
        uid = self.session.row(task).pod.uid
        raise StatementError(f"task {uid} was not evicted in this statement")

    def undo(self, index: int) -> None:
        """Undo one operation; an undo is an operation too. One that is not valid is left."""
        op = self.ops[index]
        if not op.valid:
            return
        undone = Op(UNDO, op.task, op.node, before=self._before(op.task), of=index)
        if op.kind == EVICT:
            self._undo_evict(op)
        elif op.kind == UNDO:
            self._redo(self.ops[op.of])
            self._truncate(len(self.ops) - 1)
        else:
            self._undo_placement(op)
        self._mark(index, valid=False)
        self.ops.append(undone)

    def _mark(self, index: int, *, valid: bool) -> None:
        """Mark an operation; what an undo points at is the other way round."""
        op = self.ops[index]
        op.valid = valid
        if op.kind == UNDO:
            self._mark(op.of, valid=not valid)

    def all_to_pipelined(self, job: "Job") -> None:
        """Let every task of a job that was allocated here wait instead."""
        session = self.session
        mine = [
            op
            for op in self.ops
            if op.kind == ALLOCATE and op.valid and session.job(op.task) is job
        ]
        for op in mine:
            self._undo_placement(op)
            op.valid = False  # dropped, not undone: no operation of its own tells of it
            self.pipeline(op.task, op.node, op.groups, op.choice, update=True)

    # -- checkpoint and end

    def checkpoint(self) -> Checkpoint:
        """A place to come back to."""
        return Checkpoint(len(self.ops), len(self.session.journal))

    def rollback(self, to: Checkpoint) -> None:
        """Put everything back to a checkpoint."""
        assert to.n_ops <= len(self.ops), f"invalid checkpoint {to}"
        session, leaks = self.session, self._leaks(to)
        restore(session.journal, to.n_writes)
        self._truncate(to.n_ops)
        for op in leaks:
            shape, nodes = session.row(op.task).shape, session.nodes
            memory = task_memory(shape, nodes.columns.facts[op.node].gpu_memory)
            demand = session.columns.demand(shape)
            nodes.leak(session.journal, op.node, demand, memory, op.groups)

    def _leaks(self, to: Checkpoint) -> list[Op]:
        """Evictions to be undone with the move of their task to other devices of its node.

        compat: statement.go, the copy of the task that the move left behind counts on (Q-12).
        """
        if UNDO_LEAKS_SHARES not in self.session.flags:
            return []
        undone = [op for op in self.ops[to.n_ops :] if op.valid]
        moved = {(op.task, op.node) for op in undone if op.moved}
        return [op for op in undone if op.kind == EVICT and (op.task, op.node) in moved]

    def discard(self) -> None:
        """Put everything back."""
        self.rollback(Checkpoint(0, 0))

    def commit(self) -> list[Op]:
        """Make the valid operations final, in order.

        Placements become Binding or stay pipelined for the rest of the cycle, evicted tasks stay
        Releasing for real.
        """
        session = self.session
        done = [op for op in self.ops if op.kind != UNDO and op.valid]
        for op in done:
            if op.kind == ALLOCATE:
                session.settle_status(op.task, BINDING)
            elif op.kind == EVICT:
                if op.task in session.evicted and SECOND_EVICTION_FAILS in session.flags:
                    # compat: statement.go restores the shares only
                    self._event(op.task, op.node, session.ext.allocated)
                session.evicted.add(op.task)
            session.virtual[op.task] = 0
        session.journal.clear()
        self.ops = []
        self._evictions = {}
        return done

    # -- steps

    def _truncate(self, length: int) -> None:
        """Forget the operations from an index on; what they undid counts again."""
        while len(self.ops) > length:
            op = self.ops.pop()
            if op.kind == UNDO and op.valid:
                self._mark(op.of, valid=True)
            elif op.kind == EVICT:
                self._evictions[op.task].pop()

    def _before(self, task: int) -> Before:
        session = self.session
        return Before(
            session.status[task],
            session.task_node[task],
            session.task_groups[task],
            session.virtual[task],
            None if session.claims is None else session.claims.held(task),
        )

    def _take(self, task: int, choice: Choice | None) -> None:
        if choice is not None:
            assert self.session.claims is not None
            self.session.claims.take(task, choice)

    def _write(
        self, task: int, status: int, n: int | None, groups: tuple[str, ...] | None, *, virtual: int
    ) -> None:
        session = self.session
        journal = session.journal
        session.set_status(task, status)
        journal.append((session.task_node, task, session.task_node[task]))
        session.task_node[task] = n
        journal.append((session.task_groups, task, session.task_groups[task]))
        session.task_groups[task] = groups
        self._set_virtual(task, virtual)

    def _set_virtual(self, task: int, virtual: int) -> None:
        session = self.session
        session.journal.append((session.virtual, task, session.virtual[task]))
        session.virtual[task] = virtual

    def _change(
        self,
        task: int,
        n: int,
        before: EntryOnNode | None,
        after: EntryOnNode | None,
        *,
        stays: bool = False,
    ) -> None:
        """A task counts otherwise on a node; `stays`: what it held goes on to count as well."""
        session = self.session
        shape = session.row(task).shape
        session.set_entry(task, n, after, before)
        if stays:
            before = None
        nodes = session.nodes
        nodes.change(
            session.journal,
            n,
            session.columns.demand(shape),
            ABSENT if before is None else before[0],
            ABSENT if after is None else after[0],
        )
        if shape.shared:
            memory = task_memory(shape, nodes.columns.facts[n].gpu_memory)
            nodes.change_shared(n, memory, before, after)
        elif shape.dra:
            nodes.change_claimed(n, before, after)

    @staticmethod
    def _event(task: int, n: int, handlers: list) -> None:  # type: ignore[type-arg]
        for handler in handlers:
            handler(task, n)

    def _undo_placement(self, op: Op) -> None:
        session, task, before = self.session, op.task, op.before
        entry = session.entry(task, op.node)
        assert entry is not None, "a placed task is on its node"
        status = PENDING if op.kind == ALLOCATE else before.status
        left = None
        if before.status == RELEASING and op.kind == PIPELINE and self._was_here(op):
            left = (sharing.RELEASING, before.groups or session.row(task).state.gpu_groups)
        self._change(task, op.node, entry, left)
        if op.choice is not None:
            assert session.claims is not None
            session.claims.give_back(task, before.held)
        self._write(task, status, before.node, before.groups, virtual=before.virtual)
        self._event(task, op.node, session.ext.deallocated)

    def _was_here(self, op: Op) -> bool:
        """Whether a pipeline replaced the task's own entry on the node."""
        home = op.before.node
        if home is None:
            home = self.session.nodes.columns.row.get(self.session.row(op.task).state.node, NO_ROW)
        return op.update and home == op.node

    def _undo_evict(self, op: Op) -> None:
        session, task, before = self.session, op.task, op.before
        entry = session.entry(task, op.node)
        self._change(task, op.node, entry, (KIND[before.status], op.groups))
        self._write(task, before.status, before.node, before.groups, virtual=before.virtual)
        self._event(task, op.node, session.ext.allocated)

    def _redo(self, op: Op) -> None:
        if op.kind == EVICT:
            self.evict(op.task)
        elif op.kind == PIPELINE:
            self.pipeline(op.task, op.node, op.groups, op.choice, update=op.update)
        elif op.kind == ALLOCATE:
            self.allocate(op.task, op.node, op.groups, op.choice)
        else:
            self.undo(op.of)


def _devices(choice: Choice | None) -> tuple[str, ...]:
    return () if choice is None else choice.devices
