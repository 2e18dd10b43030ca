"""One attempt to place the next tasks of a job, really or in a simulation.

Reference: pkg/scheduler/actions/common/allocate.go (scheduler-core §8).
"""

from collections.abc import Iterator, Sequence

from kai_es.events.decisions import Reason
from kai_es.scheduler.columns.nodes import NO_ROW
from kai_es.scheduler.framework.claims import Choice
from kai_es.scheduler.framework.devices import pick_devices
from kai_es.scheduler.framework.extensions import Mask, Refused, Subsets
from kai_es.scheduler.framework.failures import Stuck
from kai_es.scheduler.framework.fit import NodeSet
from kai_es.scheduler.framework.session import Session
from kai_es.scheduler.framework.statement import Statement
from kai_es.scheduler.framework.statuses import IS_ACTIVE
from kai_es.scheduler.framework.work import Work
from kai_es.scheduler.jobs.order import member_by_name
from kai_es.scheduler.jobs.tree import Member, PodSet, SubGroupSet, leaves_below


class Attempt:
    """Places the next tasks of a work with a statement; on failure nothing stays placed.

    Args:
        session, statement: to work on.
        nodes: that may be used.
        pipeline_only: a simulation: nothing is placed on idle resources, no reasons are kept.
    """

    def __init__(
        self, session: Session, statement: Statement, nodes: NodeSet, *, pipeline_only: bool
    ) -> None:
        self._session = session
        self._statement = statement
        self._nodes = nodes
        self._pipeline_only = pipeline_only
        self._refusals: list[Reason] = []

    def place(self, work: Work) -> bool:
        """Whether the next tasks were placed."""
        session, job = self._session, work.job
        for hook in session.ext.pre_job:
            hook(work)
        tasks = session.next_tasks(work, real=not self._pipeline_only)
        if not tasks:
            return False
        if session.ext.job_capacity is not None:
            amount, memory = session.asked_in_all(tasks)
            reason = session.ext.job_capacity(job, amount, memory)
            if reason is not None:
                if not self._pipeline_only:
                    session.failures.job(job, reason)
                return False
        if len(work.tree.leaves) == 1 and not job.constrained:
            mark = self._statement.checkpoint()
            placed = self._place_tasks(work, work.tree.leaves[0], tasks, self._nodes)
            if not placed:
                self._statement.rollback(mark)
            return placed
        by_leaf: dict[int, list[int]] = {}
        for task in tasks:
            by_leaf.setdefault(session.columns.leaf_of[task], []).append(task)
        return self._place_member(work, work.tree.root, by_leaf, self._nodes)

    def _place_member(
        self, work: Work, member: Member, by_leaf: dict[int, list[int]], nodes: NodeSet
    ) -> bool:
        """Place the tasks below a member on one of the sets of nodes that plugins offer."""
        leaves = [leaf for leaf in leaves_below(member) if leaf.leaf in by_leaf]
        if not leaves:
            return True
        for node_set in self._subsets(work, member, leaves, by_leaf, nodes):
            mark = self._statement.checkpoint()
            if isinstance(member, PodSet):
                placed = self._place_tasks(work, member, by_leaf[member.leaf], node_set)
            else:
                placed = self._place_members(work, member, by_leaf, node_set)
            if placed:
                return True
            self._statement.rollback(mark)
        return False

    def _place_members(
        self, work: Work, group: SubGroupSet, by_leaf: dict[int, list[int]], nodes: NodeSet
    ) -> bool:
        order = self._session.ext.member_key or member_by_name
        counts = self._session.tally(work, IS_ACTIVE)
        members = sorted(group.members, key=lambda member: order(member, counts))
        return all(self._place_member(work, member, by_leaf, nodes) for member in members)

    def _subsets(
        self,
        work: Work,
        member: Member,
        leaves: Sequence[PodSet],
        by_leaf: dict[int, list[int]],
        nodes: NodeSet,
    ) -> Iterator[NodeSet]:
        if not work.job.constrained:
            yield nodes
            return
        tasks = [task for leaf in leaves for task in by_leaf[leaf.leaf]]

        def narrowed(one: NodeSet, plugins: Sequence[Subsets]) -> Iterator[NodeSet]:
            if not plugins:
                yield one
                return
            found = plugins[0](work, member, leaves, tasks, one)
            if not isinstance(found, Refused):
                for subset in found:
                    yield from narrowed(subset, plugins[1:])
            elif not self._pipeline_only:
                for reason in found.reasons:
                    self._session.failures.job(work.job, reason)

        yield from narrowed(nodes, self._session.ext.subset_nodes)

    def _place_tasks(self, work: Work, leaf: PodSet, tasks: Sequence[int], nodes: NodeSet) -> bool:
        for n_placed, task in enumerate(tasks):
            if not self._place_task(task, nodes):
                if not self._pipeline_only:
                    stuck = Stuck(task, n_placed, tasks[n_placed + 1 :])
                    self._session.failures.not_placed(work, leaf, stuck, nodes)
                return False
        return True

    def _place_task(self, task: int, nodes: NodeSet) -> bool:
        session = self._session
        for check in session.ext.pre_task:
            reason = check(task)
            if reason is not None:
                session.failures.task(task, reason)
                return False
        fit = session.fits.of(task)
        usable, idle = fit.usable, fit.idle_ok
        if session.ext.task_rules:
            usable, idle = self._ruled(task, usable, idle)
        self._refusals = []
        if not fit.is_dynamic:
            n = fit.best(task, nodes, usable)
            if n != NO_ROW:
                self._put(task, n, idle=idle[n])
                return True
        else:
            for n in fit.walk(task, nodes, usable):
                if not self._refused(task, n) and self._put_checked(task, n, idle=bool(idle[n])):
                    return True
        if not self._pipeline_only:
            session.failures.no_node(task, fit, nodes, self._refusals)
        return False

    def _ruled(self, task: int, usable: Mask, idle: Mask) -> tuple[Mask, Mask]:
        """Nodes that a task may use, and those where it may start, by what else is there."""
        later: Mask | None = None
        for rule in self._session.ext.task_rules:
            found = rule.mask(task)
            if found is not None:
                idle = idle & found.now
                later = found.later if later is None else later & found.later
        if later is None:
            return usable, idle
        return usable & (later if self._pipeline_only else later | idle), idle

    def _refused(self, task: int, n: int) -> bool:
        for check in self._session.ext.node_checks:
            reason = check(task, n)
            if reason is not None:
                self._refusals.append(reason)
                return True
        return False

    def _put(self, task: int, n: int, *, idle: bool) -> None:
        idle = idle and not self._pipeline_only
        anew = self._anew(task, n, idle=idle)
        if idle:
            self._statement.allocate(task, n)
        else:
            self._statement.pipeline(task, n, update=anew or not self._pipeline_only)

    def _anew(self, task: int, n: int, *, idle: bool) -> bool:
        """Whether a victim that is offered its own node has to start there anew."""
        choose = self._session.ext.choose_zones
        return choose is not None and choose(task, n, idle)

    def _put_checked(self, task: int, n: int, idle: bool) -> bool:
        """As `_put`, for shapes whose place on the node is chosen last."""
        session, shape = self._session, self._session.row(task).shape
        idle = idle and not self._pipeline_only
        choice: Choice | None = None
        if session.claims is not None and session.claims.concerns(shape):
            found = session.claims.choose(task, n, idle=idle)
            if isinstance(found, Reason):
                self._refusals.append(found)
                return False
            choice, idle = found, idle and not found.waits
        groups: tuple[str, ...] = ()
        if shape.shared:
            pick = pick_devices(session, task, n, idle=idle)
            if pick is None:
                self._refusals.append(Reason(code="no-free-device"))
                return False
            groups, waits = pick
            session.tried_groups[task] = groups
            idle = idle and not waits
        anew = self._anew(task, n, idle=idle)
        if idle:
            self._statement.allocate(task, n, groups, choice)
        else:
            update = anew or (not self._pipeline_only and not shape.shared)
            self._statement.pipeline(task, n, groups, choice, update=update)
        return True
