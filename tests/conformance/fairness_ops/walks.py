"""The queue walk: fill, push, pop, and what is left out."""

from collections.abc import Mapping
from typing import Any

from kai_es.events.decisions import Reason
from kai_es.kube.labels import UNLIMITED
from kai_es.kube.objects import Queue
from kai_es.scheduler.columns.lens import Lens
from kai_es.scheduler.columns.queues import NO_QUEUE, QueueColumns
from kai_es.scheduler.fairness.order import QueueStanding, queue_key
from kai_es.scheduler.fairness.vectors import NOTHING, Vector, added
from kai_es.scheduler.flags import Flags
from kai_es.scheduler.jobs import delay, gang
from kai_es.scheduler.jobs.walk import QueueWalk, WalkRules
from kai_es.scheduler.reasons import codes
from kai_es.scheduler.reasons.render import job_errors
from kai_es.snapshot import status as statuses
from kai_es.snapshot.status import TaskStatus
from tests.conformance import build
from tests.conformance.build import CaseJob, at_ms, ms_of
from tests.conformance.fairness_ops import Input, Result
from tests.conformance.fairness_ops.tables import QueueTable, allocatable, table_of, vector
from tests.conformance.job_ops.selections import to_allocate
from tests.conformance.job_ops.trees import ungated

NOW_MS = 10**12


class WalkedJob:
    """A job of a case in the walk."""

    def __init__(self, raw: Mapping[str, Any]) -> None:
        self.raw = raw
        self.name = raw.get("name", "")
        minimums = raw.get("minAvailable", {"default": 1})
        sub_groups = raw.get("subGroups") or {
            name: {
                "minAvailable": minimum,
                "tasks": [
                    task
                    for task in raw.get("tasks", ())
                    if (task.get("subGroup") or "default") == name
                ],
            }
            for name, minimum in minimums.items()
        }
        self.job: CaseJob = build.job_of({"subGroups": sub_groups})
        age = raw.get("createdAgo")
        created = at_ms(raw.get("createdAt")) if age is None else NOW_MS - (ms_of(age) or 0)
        self.created_ms = created
        self.delay_end = delay.preemption_delay_end(
            created_ms=created,
            last_eviction_ms=at_ms(raw.get("lastEvictedAt")),
            delay_ms=ms_of(raw.get("preemptionDelay")) or 0,
        )

    def key(self) -> Any:
        elastic = gang.elasticity(self.job.tree, self.job.counts(statuses.ACTIVE_ALLOCATED))
        priority = self.raw.get("priority", 0)
        return (-priority, elastic, self.created_ms, self.raw.get("uid", ""))

    def freed(self) -> Vector:
        """What its allocated tasks have."""
        if "allocated" in self.raw:
            return build.plain_vector(self.raw["allocated"] or {})
        total = NOTHING
        for task in self.job.all_tasks():
            if task.status in statuses.ALLOCATED:
                total = added(total, build.plain_vector(task.accepted or task.request))
        return total


def job_order(case: Input, flags: Flags) -> Result:
    table = table_of(case["queues"])
    options = case["options"]
    depth = options.get("maxJobsQueueDepth", -1)
    rules = WalkRules(
        queue_key=_queue_key(case, table, flags),
        job_key=WalkedJob.key,
        victims=options.get("victimQueue", False),
        freed=WalkedJob.freed,
        depth=UNLIMITED if depth == -1 else depth,
        flags=flags,
    )
    walk: QueueWalk[WalkedJob] = QueueWalk(table.parents, rules)
    result: dict[str, Any] = {"pops": [], "fitErrorReasons": {}}
    for step in case["steps"]:
        if "init" in step:
            jobs = [WalkedJob(raw) for raw in step["init"]]
            walk = QueueWalk(table.parents, rules, _admitted(jobs, case, table, result))
            result["emptyAfterInit"] = not walk
        elif "push" in step:
            job = WalkedJob(step["push"])
            walk.push(table.uids.index(job.raw["queue"]), job)
        else:
            popped = walk.pop()
            result["pops"].append(None if popped is None else popped.name)
    if "pop" in case["steps"][-1]:
        result["lastPop"] = result["pops"][-1]
    result["popsUnordered"] = list(result["pops"])
    return result


def _queue_key(case: Input, table: QueueTable, flags: Flags) -> Any:
    queues = table.queues

    def by_age(row: int, _job: object, _freed: Vector) -> Any:
        return at_ms(queues[row].get("createdAt")), row

    used = _used(case, table)

    def by_share(row: int, job: WalkedJob | None, freed: Vector) -> Any:
        queue = queues[row]
        standing = QueueStanding(
            deserved=vector(queue, "deserved"),
            fair_share=vector(queue, "fairShare"),
            allocatable=allocatable(queue),
            priority=queue.get("priority", 0),
            created_ms=at_ms(queue.get("createdAt")),
            identity=row,
        )
        wanted = NOTHING if job is None else _wanted(job, flags)
        total = build.vector_of(case.get("totalResources"))
        return queue_key(standing, used[row], wanted, freed, total, flags)

    return by_share if case.get("useProportionQueueOrder") else by_age


def _used(case: Input, table: QueueTable) -> list[Vector]:
    """What each queue uses: as the case says, else what its jobs have."""
    given = [vector(queue, "allocated") for queue in table.queues]
    if any(any(amounts) for amounts in given):
        return given
    used = [NOTHING] * len(given)
    for raw in (raw for step in case["steps"] for raw in step.get("init", ())):
        for row in table.path(raw.get("queue", "")):
            used[row] = added(used[row], WalkedJob(raw).freed())
    return used


def _wanted(job: WalkedJob, flags: Flags) -> Vector:
    total = NOTHING
    for task in to_allocate(job.job, {"realAllocation": True}, flags):
        total = added(total, build.demand(task.request, None))
    return total


def _admitted(jobs: list[WalkedJob], case: Input, table: QueueTable, result: Result) -> Any:
    """The jobs that enter, by the rules that the actions ask in this order."""
    options = case["options"]
    columns = QueueColumns((_queue_of(raw) for raw in table.queues), Lens(pool_key=""))
    admitted = []
    for job in jobs:
        row = columns.row.get(job.raw["queue"], NO_QUEUE)
        if row == NO_QUEUE or not columns.is_leaf(row) or _filtered(job, options):
            continue
        late = options.get("filterWithinPreemptionDelay", False)
        if late and delay.within_preemption_delay(job.delay_end, NOW_MS):
            reason = Reason(code=codes.PREEMPTION_DELAY, args={"until_ms": job.delay_end or 0})
            words = [error.reason for error in job_errors([reason])]
            result["fitErrorReasons"][job.name] = words
            continue
        admitted.append((table.uids.index(job.raw["queue"]), job))
    return admitted


def _queue_of(raw: Mapping[str, Any]) -> Queue:
    return Queue(uid=raw["uid"], name=raw["uid"], parent=raw.get("parent") or "")


def _filtered(job: WalkedJob, options: Input) -> bool:
    counts = job.job.counts
    tests = {
        "filterUnready": gang.ready_for_scheduling(job.job.tree, ungated(job.job)),
        "filterNonPending": any(counts(frozenset({TaskStatus.PENDING}))),
        "filterNonPreemptible": job.raw.get("preemptibility") == "preemptible",
        "filterNonActiveAllocated": any(counts(statuses.ACTIVE_ALLOCATED)),
    }
    return any(options.get(name, False) and not passed for name, passed in tests.items())
