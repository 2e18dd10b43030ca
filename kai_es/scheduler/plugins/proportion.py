"""Queues: fair shares, order, limits and quotas.

Glue between the session and the pure rules of `kai_es.scheduler.fairness`.

Reference: pkg/scheduler/plugins/proportion/proportion.go (fairness §2 to §5).
"""

from collections.abc import Callable, Mapping, Sequence

import msgspec

from kai_es.events.decisions import Arg, QueueFairShare, Reason
from kai_es.kube.labels import CPU, GPU, MEMORY, UNLIMITED
from kai_es.scheduler.columns.jobs import Job
from kai_es.scheduler.columns.queues import NO_QUEUE, NOTHING, Fair, minus, plus
from kai_es.scheduler.fairness.capacity import (
    QueueRoom,
    Refusal,
    non_preemptible_over_quota,
    over_capacity,
)
from kai_es.scheduler.fairness.counters import gpu_on_node, memory_in_devices
from kai_es.scheduler.fairness.division import Claims, Division
from kai_es.scheduler.fairness.order import QueueKey, QueueStanding, queue_key
from kai_es.scheduler.fairness.reclaim import (
    Fate,
    Objection,
    QueueBook,
    Reclaimer,
    ScenarioCheck,
    Unit,
    VictimQueue,
    VictimTask,
    can_reclaim,
    is_shielded,
    may_be_victim,
    victim_units,
)
from kai_es.scheduler.fairness.settings import ProportionSettings
from kai_es.scheduler.fairness.shares import allocatable_share, quota_of
from kai_es.scheduler.flags import CONSOLIDATING_RECLAIM_FREE
from kai_es.scheduler.framework.session import Session
from kai_es.scheduler.framework.statuses import PIPELINED, RELEASING
from kai_es.scheduler.framework.work import Work
from kai_es.scheduler.reasons.quota import Asked
from kai_es.scheduler.solve.simulate import Trial

_RESOURCES = (CPU, MEMORY, GPU)
_FATE = {RELEASING: Fate.LOST, PIPELINED: Fate.MOVED}


def open_proportion(session: Session, arguments: Mapping[str, str]) -> None:
    """Divide the cluster and register."""
    plugin = Proportion(session, ProportionSettings.of(arguments))
    ext = session.ext
    session.shares = plugin
    if ext.queue_key is None:
        ext.queue_key = plugin.queue_key
        ext.job_capacity = plugin.job_capacity
        ext.quota = plugin.quota
        ext.node_capacity = plugin.node_capacity
        ext.can_reclaim = plugin.can_reclaim
    ext.reclaim_queues.append(plugin.may_take_from)
    ext.reclaim_validators.append(plugin.reclaim_is_fair)
    ext.solution_start.append(plugin.on_solution_start)
    ext.allocated.append(plugin.on_allocated)
    ext.deallocated.append(plugin.on_deallocated)


_KEYS_MAX = 4096
"""Keys remembered per queue: a search asks again and again about the same few."""


class Proportion:
    """Shares and use of the queues in one session.

    total:      what the top queues divide.
    fair_share: by queue row.
    allocated, fixed: by queue row; follow every trial change (`Uses`).
    """

    def __init__(self, session: Session, settings: ProportionSettings) -> None:
        self._session = session
        self._settings = settings
        queues = session.columns.queues
        self._queues = queues
        self.total: Fair = session.nodes.columns.total()
        self._quotas = [quota_of(queue) for queue in queues.queues]
        self.allocated = [uses.allocated for uses in queues.uses]
        self.fixed = [uses.fixed for uses in queues.uses]
        self.deserved: list[Fair] = [quota.deserved for quota in self._quotas]
        self.fair_share: list[Fair] = self._divide(settings.k_value)
        self.allocatable: list[Fair] = [
            allocatable_share(quota.deserved, fair, quota.limit)
            for quota, fair in zip(self._quotas, self.fair_share, strict=True)
        ]
        self._standings = [
            QueueStanding(
                quota.deserved, fair, allocatable, queue.priority, queue.created_ms, queue.name
            )
            for quota, fair, allocatable, queue in zip(
                self._quotas, self.fair_share, self.allocatable, queues.queues, strict=True
            )
        ]
        free = [min(quota.limit) >= UNLIMITED for quota in self._quotas]
        self._unlimited = [all(free[row] for row in path) for path in queues.path]
        self._at_start = (self.allocated, self.fixed)
        self._keys: list[dict[tuple[Fair, Fair, Fair], QueueKey]] = [{} for _ in range(len(queues))]

    def _divide(self, k_value: float) -> list[Fair]:
        session, queues = self._session, self._queues
        memory_min = session.gpu_memory_min or None
        requests = [
            plus(uses.requested, (0, 0, memory_in_devices(uses.memory_mib, memory_min)))
            for uses in queues.uses
        ]
        usage = [session.inputs.usage.get(name, {}) for name in queues.names]
        claims = [
            Claims(
                deserved=[quota.deserved[r] for quota in self._quotas],
                limit=[quota.limit[r] for quota in self._quotas],
                weight=[quota.weight[r] for quota in self._quotas],
                request=[request[r] for request in requests],
                usage=[used.get(resource, 0.0) for used in usage],
            )
            for r, resource in enumerate(_RESOURCES)
        ]
        division = Division(
            priority=[queue.priority for queue in queues.queues],
            created_ms=[queue.created_ms for queue in queues.queues],
            k_value=k_value,
            flags=session.flags,
        )
        return division.divide_tree(
            self.total, (claims[0], claims[1], claims[2]), queues.roots, queues.children
        )

    # -- order

    def queue_key(self, row: int, wanted: Fair, freed: Fair) -> QueueKey:
        """Place of a queue among its siblings."""
        allocated, known = self.allocated[row], self._keys[row]
        key = known.get((allocated, wanted, freed))
        if key is None:
            standing, flags = self._standings[row], self._session.flags
            key = queue_key(standing, allocated, wanted, freed, self.total, flags)
            if len(known) >= _KEYS_MAX:
                known.clear()
            known[allocated, wanted, freed] = key
        return key

    # -- counters

    def on_allocated(self, task: int, n: int) -> None:
        """A task got a place."""
        self._change(task, n, plus)

    def on_deallocated(self, task: int, n: int) -> None:
        """A task lost its place."""
        self._change(task, n, minus)

    def _change(self, task: int, n: int, change: Callable[[Fair, Fair], Fair]) -> None:
        session = self._session
        job = session.job(task)
        if job.queue == NO_QUEUE:
            return
        amount = session.fair(task, n)
        journal, allocated = session.journal, self.allocated
        for row in self._queues.path[job.queue]:
            before = allocated[row]
            journal.append((allocated, row, before))
            allocated[row] = change(before, amount)
        if job.preemptible:
            return
        for row in self._queues.path[job.queue]:
            before = self.fixed[row]
            journal.append((self.fixed, row, before))
            self.fixed[row] = change(before, amount)

    # -- reclaim

    def on_solution_start(self, job: Job) -> None:
        """Remember the counters as they are before the search for a job."""
        del job
        self._at_start = (list(self.allocated), list(self.fixed))

    def _book_now(self, row: int) -> QueueBook:
        return self._book(row, self.allocated, self.fixed)

    def _book_at_start(self, row: int) -> QueueBook:
        return self._book(row, *self._at_start)

    def _book(self, row: int, allocated: list[Fair], fixed: list[Fair]) -> QueueBook:
        return QueueBook(
            self.deserved[row],
            self.fair_share[row],
            self.allocatable[row],
            allocated[row],
            fixed[row],
        )

    def can_reclaim(self, work: Work) -> Reason | None:
        """Why a job may not take from other queues."""
        job = work.job
        objection = can_reclaim(
            self._book_now(job.queue),
            self._session.next_amount(work),
            preemptible=job.preemptible,
        )
        return (
            None
            if objection is None
            else Reason(code="cannot-reclaim", args={"why": objection.value})
        )

    def may_take_from(self, work: Work, queue: int) -> Reason | None:
        """Why jobs of a leaf queue are not worth a look as victims."""
        session, path = self._session, self._queues.path[queue]
        reclaimer = self._reclaimer(work.job, session.next_tasks(work, real=False))
        objection = may_be_victim(reclaimer, path, self._book_now)
        if objection is None and CONSOLIDATING_RECLAIM_FREE not in session.flags:
            shielded = is_shielded(reclaimer, path, self._book_now)
            objection = Objection.DISRUPTS_DESERVED if shielded else None
        if objection is None:
            return None
        args: dict[str, Arg] = {"why": objection.value, "other": self._queues.names[queue]}
        return Reason(code="victims-refused", args=args)

    def reclaim_is_fair(self, trial: Trial, pending: Sequence[int]) -> bool:
        """Whether what a scenario takes is fair."""
        session = self._session
        check = ScenarioCheck(
            self._reclaimer(session.job(pending[0]), pending),
            self._book_at_start,
            multiplier=self._settings.saturation_multiplier,
            flags=session.flags,
        )
        return check.objection(self._taken(trial), self._queues.parent) is None

    def _reclaimer(self, job: Job, tasks: Sequence[int]) -> Reclaimer:
        session = self._session
        requested, gpus = NOTHING, False
        for task in tasks:
            requested = plus(requested, session.asked(task))
            shape = session.row(task).shape
            gpus = gpus or bool(shape.gpu or shape.dra or shape.memory_mib)
        names = (requested[0] > 0, requested[1] > 0, gpus)
        return Reclaimer(self._queues.path[job.queue], requested, names, job.preemptible)

    def _taken(self, trial: Trial) -> list[VictimQueue]:
        """The victims of a scenario by leaf queue, in units that go together."""
        session = self._session
        by_job: dict[Job, list[VictimTask]] = {}
        for task in trial.tasks:
            job = session.job(task)
            n, shape = session.node_of(task), session.row(task).shape
            amounts = session.fair(task, n)
            by_job.setdefault(job, []).append(
                VictimTask(
                    sub_group=job.tree.leaves[session.columns.leaf_of[task]].name,
                    amounts=amounts,
                    names=(amounts[0] > 0, amounts[1] > 0, bool(shape.gpu or shape.dra)),
                    fate=_FATE.get(session.status[task], Fate.KEPT),
                )
            )
        units: dict[int, list[Unit]] = {}
        alike: dict[tuple[object, ...], list[Unit]] = {}  # most victims of a scenario are
        for job, tasks in by_job.items():
            if job.queue == NO_QUEUE:
                continue
            minima = {leaf.name: leaf.min_available for leaf in job.tree.leaves}
            key = (*tasks, *minima.items())
            found = alike.get(key)
            if found is None:
                found = alike[key] = victim_units(
                    tasks,
                    minima,
                    allow_consolidating=session.config.allow_consolidating_reclaim,
                    flags=session.flags,
                )
            units.setdefault(job.queue, []).extend(found)
        return [VictimQueue(self._queues.path[queue], found) for queue, found in units.items()]

    # -- capacity

    def room(self, row: int) -> QueueRoom:
        """What the capacity checks look at of one queue."""
        quota = self._quotas[row]
        return QueueRoom(quota.deserved, quota.limit, self.allocated[row], self.fixed[row])

    def job_capacity(self, job: Job, amount: Fair, memory_mib: int) -> Reason | None:
        """Why a job's next tasks are more than its queues may have."""
        if job.preemptible and self._unlimited[job.queue]:
            return None
        requested = self._weighed(amount, memory_mib)
        refusal = over_capacity(
            self._queues.path[job.queue], self.room, requested, preemptible=job.preemptible
        )
        if refusal is None:
            return None
        asked = Asked(self._queues.names[refusal.queue], requested)
        found = self.reason(refusal)
        return msgspec.structs.replace(found, args={**found.args, **asked.args()})

    def quota(self, job: Job, amount: Fair, memory_mib: int) -> Reason | None:
        """Why they are more than the quota of its queues, of a job that nobody may displace."""
        if job.preemptible:
            return None
        requested = self._weighed(amount, memory_mib)
        path = self._queues.path[job.queue]
        refusal = non_preemptible_over_quota(path, self.room, requested)
        return None if refusal is None else self.reason(refusal)

    def _weighed(self, amount: Fair, memory_mib: int) -> Fair:
        """Device memory by the largest device, so that only what fits nowhere is refused."""
        if not memory_mib:
            return amount
        most = self._session.gpu_memory_max or None
        return plus(amount, (0, 0, memory_in_devices(memory_mib, most)))

    def node_capacity(self, task: int, n: int) -> Reason | None:
        """Why a task is too much for its queues on this node."""
        session = self._session
        shape, job = session.row(task).shape, session.job(task)
        if job.preemptible and self._unlimited[job.queue]:
            return None
        cpu, memory, _ = shape.fair
        gpu = gpu_on_node(
            shape.spec.gpu,
            quota=shape.quota,
            dra=shape.dra,
            device_mib=session.nodes.columns.facts[n].gpu_memory,
            flags=session.flags,
        )
        refusal = over_capacity(
            self._queues.path[job.queue],
            self.room,
            (cpu, memory, gpu),
            preemptible=job.preemptible,
        )
        return None if refusal is None else self.reason(refusal)

    def reason(self, refusal: Refusal) -> Reason:
        """A refusal with what its texts need."""
        queue = self._queues.queues[refusal.queue]
        missing = refusal.used + refusal.requested - refusal.bound
        resource = _RESOURCES[refusal.resource]
        return Reason(
            code="over-limit" if refusal.rule.value == "OverLimit" else "over-quota",
            args={
                "queue": queue.display_name or queue.name,
                "resource": resource,
                "bound": refusal.bound,
                "used": refusal.used,
                "requested": refusal.requested,
                "missing": missing,
            },
            fix=f"{resource} of queue {queue.name} +{missing}",
        )

    # -- result

    def shares(self) -> tuple[QueueFairShare, ...]:
        """The division, by queue name."""
        return tuple(
            QueueFairShare(
                queue=name,
                fair_share=tuple(-1.0 if v >= UNLIMITED else float(v) for v in fair),  # type: ignore[arg-type]
                allocated=allocated,
            )
            for name, fair, allocated in zip(
                self._queues.names, self.fair_share, self.allocated, strict=True
            )
        )
