"""What consolidation, reclaim and preempt have in common.

Reference: pkg/scheduler/actions/{consolidation,reclaim,preempt} (scheduler-core §9).
"""

from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final, Protocol

import numpy as np
from numpy.typing import NDArray

from kai_es.events.decisions import Reason
from kai_es.scheduler.columns.jobs import Job
from kai_es.scheduler.config import UNITS_PER_SECOND
from kai_es.scheduler.flags import (
    BUDGET_ENDS_ACTION,
    GENERATOR_DEFAULT_UNREACHED,
    ROOM_IS_FOR_ALL,
    SIGNATURES_OF_ALL_TASKS,
)
from kai_es.scheduler.framework.session import Session
from kai_es.scheduler.framework.statuses import PENDING
from kai_es.scheduler.framework.work import Work
from kai_es.scheduler.jobs.delay import preemption_delay_end, within_preemption_delay
from kai_es.scheduler.jobs.minimal import Request, comparable, easier_to_schedule, replaces
from kai_es.scheduler.solve.budget import (
    ActionBudget,
    BudgetError,
    Meter,
    filled_at_load,
    search_limits,
)
from kai_es.scheduler.solve.cause import GaveWay
from kai_es.scheduler.solve.room import gpu_room
from kai_es.scheduler.solve.search import Outcome, Result, Search
from kai_es.scheduler.solve.signature import signature_of
from kai_es.scheduler.solve.victims import Candidates
from kai_es.scheduler.solve.worklist import pending_works


class Rule(Protocol):
    """What tells one evicting action from another."""

    name: str

    def wants(self, job: Job) -> bool:
        """Whether the action is for this job at all."""

    def table_of(self, job: Job) -> object:
        """Jobs with one table share what failed."""

    def check(self, work: Work) -> Reason | None:
        """Why a search is pointless; not remembered as a failure of its kind."""

    def search(self, search: Search, candidates: Candidates, work: Work) -> Outcome:
        """Look for victims of one job."""

    def text(self, task: int, job: Job) -> str:
        """What the owner of an evicted pod is told."""


@dataclass(slots=True)
class _Failed:
    """The smallest failed job by signature."""

    requests: dict[object, list[Request]] = field(default_factory=dict)


def run_evicting(session: Session, rule: Rule) -> None:
    """Work through the pending jobs of an action that may evict."""
    if session.may_not_evict:
        return
    try:
        limits = search_limits(rule.name, session.config.budgets)
        if GENERATOR_DEFAULT_UNREACHED in session.flags:
            limits = search_limits(rule.name, filled_at_load(session.config.budgets))
    except BudgetError:
        return
    meter = Meter()
    budget = ActionBudget(meter, limits.in_units(UNITS_PER_SECOND))
    search = Search(session, rule.name, meter, budget)
    candidates = Candidates(session)
    tables: dict[object, _Failed] = {}
    works = pending_works(
        session, rule.name, lambda job: rule.wants(job) and _may_evict(session, job)
    )
    while (work := works.pop()) is not None:
        table = tables.setdefault(rule.table_of(work.job), _Failed())
        if session.config.use_scheduling_signatures and not _is_easier(session, work, table):
            continue
        if _is_hopeless(session, work):
            continue
        if not _search_one(session, rule, search, candidates, work, table):
            return


def _search_one(
    session: Session,
    rule: Rule,
    search: Search,
    candidates: Candidates,
    work: Work,
    table: _Failed,
) -> bool:
    """Search for one job; False = the action ends here."""
    reason = rule.check(work)
    if reason is not None:
        _explain(session, rule, work.job, reason)
        return True
    cause = GaveWay(session, rule.text, work.job)
    outcome = rule.search(search, candidates, work)
    if outcome.trial is not None:
        touched = {session.job(task) for task in outcome.trial.tasks} | {work.job}
        cause.gang_size = len(outcome.trial.tasks)
        if outcome.trial.lost and ROOM_IS_FOR_ALL not in session.flags:
            session.ledger.marks(work.job).room_made_ms = session.now_ms
        cause.close()
        session.ledger.record(outcome.trial.statement.commit(), rule.name, cause)
        candidates.changed(touched)
        search.order.changed(touched)
        return True
    _explain(session, rule, work.job, outcome.why or Reason(code=_CODES[outcome.result]))
    if outcome.result in (Result.DEADLINE, Result.NOT_ATTEMPTED):
        session.ledger.resume = session.ledger.resume or work.job.uid
        return BUDGET_ENDS_ACTION not in session.flags and not search.budget.exhausted()
    if session.config.use_scheduling_signatures:
        _remember(session, work, table)
    return True


_CODES: Final = MappingProxyType(
    {
        Result.EXHAUSTED: "search-exhausted",
        Result.NO_GENERATOR: "search-exhausted",
        Result.DEADLINE: "search-cut",
        Result.NOT_ATTEMPTED: "search-cut",
    }
)


def _explain(session: Session, rule: Rule, job: Job, reason: Reason) -> None:
    """Keep why an action evicted nobody for a job."""
    args = {**reason.args, "action": rule.name}
    session.failures.job(job, Reason(code=reason.code, args=args, parts=reason.parts))


def _may_evict(session: Session, job: Job) -> bool:
    """Whether the job is outside its preemption delay; if not, it gets a reason, once."""
    end = preemption_delay_end(
        created_ms=job.group.created_ms,
        last_eviction_ms=session.ledger.marks(job).last_eviction_ms,
        delay_ms=job.group.preemption_delay_ms,
    )
    if not within_preemption_delay(end, session.now_ms):
        return True
    reasons = session.failures.jobs.get(job, [])
    if all(reason.code != "preemption-delay" for reason in reasons):
        args: dict[str, str | int | float] = {
            "delay_ms": job.group.preemption_delay_ms,
            "until_ms": end or 0,
        }
        session.failures.job(job, Reason(code="preemption-delay", args=args))
    return False


def _is_hopeless(session: Session, work: Work) -> bool:
    """Whether a task asks for what no eviction can give; the job gets the reason."""
    for task in session.next_tasks(work, real=False):
        for check in session.ext.hopeless:
            reason = check(task)
            if reason is not None:
                session.failures.task(task, reason)
                pod = session.row(task).pod
                args: dict[str, str | int | float] = {"pod": f"{pod.namespace}/{pod.name}"}
                session.failures.job(work.job, Reason(code="hopeless", args=args, parts=(reason,)))
                return True
    return False


# -- jobs that fail alike


def _is_easier(session: Session, work: Work, table: _Failed) -> bool:
    failed = table.requests.get(signature_of(session, work)) if table.requests else None
    return failed is None or easier_to_schedule(_requests(session, work), failed)


def _remember(session: Session, work: Work, table: _Failed) -> None:
    signature, requests = signature_of(session, work), _requests(session, work)
    if replaces(requests, table.requests.get(signature)):
        table.requests[signature] = requests


def _requests(session: Session, work: Work) -> list[Request]:
    """What the tasks ask for that are compared."""
    if SIGNATURES_OF_ALL_TASKS not in session.flags:
        return [_request(session, task) for task in session.next_tasks(work, real=False)]
    return [
        _request(session, task)
        for leaf in range(len(work.tree.leaves))
        for task in session.work_tasks(work, leaf)
        if session.status[task] == PENDING
    ]


def _request(session: Session, task: int) -> Request:
    gpu = session.row(task).shape.spec.gpu
    return comparable(
        session.demand(task).request.tolist(),
        gpu_count=gpu.count,
        gpu_memory_mib=gpu.memory_mib,
        flags=session.flags,
    )


# -- nodes


def feasible_nodes(session: Session, job: Job) -> NDArray[np.bool_]:
    """Bool [N]: nodes worth trying for a job without evictions there (§9.3)."""
    if any(not session.row(task).shape.needs_gpu for leaf in job.tasks for task in leaf):
        return np.ones(len(session.nodes), np.bool_)
    state = session.nodes
    has_room: NDArray[np.bool_] = gpu_room(session) > 0
    releasing = state.free[2] - state.idle[2]
    has_room |= (state.idle[2] > 0) | (releasing > 0)
    return has_room
