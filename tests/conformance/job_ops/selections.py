"""Which tasks next, orders, signatures, easier jobs, preemption delay."""

from collections.abc import Callable, Mapping
from typing import Any

from kai_es.kube.objects import PodSpec
from kai_es.scheduler.fairness.vectors import added
from kai_es.scheduler.flags import Flags
from kai_es.scheduler.jobs import delay, gang, minimal, order, select, signature
from kai_es.snapshot import status as statuses
from kai_es.snapshot.shapes import Shape, mig_slices
from kai_es.snapshot.status import TaskStatus
from tests.conformance import build
from tests.conformance.build import CaseJob, CaseTask, at_ms, ms_of
from tests.conformance.job_ops import Input, Result, Run


def _take(job: CaseJob, *, real: bool) -> select.Take[CaseTask]:
    def take(leaf: int, n: int) -> list[CaseTask]:
        tasks = job.tasks[leaf]
        return [task for task in tasks if _may_be_placed(task, real=real)][:n]

    return take


def _may_be_placed(task: CaseTask, *, real: bool) -> bool:
    return select.should_allocate(task.status, virtual=task.virtual, real=real)


def to_allocate(job: CaseJob, case: Input, flags: Flags) -> list[CaseTask]:
    take = _take(job, real=case.get("realAllocation", False))
    free = [len(take(leaf.leaf, select.ALL_TASKS)) for leaf in job.tree.leaves]
    allocated = job.counts(statuses.ACTIVE_ALLOCATED)
    available = [one + other for one, other in zip(allocated, free, strict=True)]
    return select.tasks_to_allocate(
        job.tree, allocated, available, take, order=order.member_by_name, flags=flags
    )


def tasks_to_allocate(case: Input, flags: Flags) -> Result:
    tasks = to_allocate(build.job_of(case["job"]), case, flags)
    return {"tasks": [task.name for task in tasks]}


def has_tasks(case: Input, flags: Flags) -> Result:
    return {"value": bool(to_allocate(build.job_of(case["job"]), case, flags))}


def leaf_tasks_to_allocate(case: Input, flags: Flags) -> Result:
    return {"count": len(to_allocate(build.leaf_of_case(case["subGroup"]), case, flags))}


def leaf_allocatable_tasks(case: Input, flags: Flags) -> Result:
    take = _take(build.leaf_of_case(case["subGroup"]), real=case["realAllocation"])
    return {"count": len(take(0, select.ALL_TASKS))}


def gpus_to_allocate(case: Input, flags: Flags) -> Result:
    tasks = to_allocate(build.job_of(case["job"]), case, flags)
    shapes = [build.shape_of(task.request) for task in tasks]
    return {
        "gpus": build.quantity(sum(shape.quota for shape in shapes), "gpu"),
        "gpuMemoryMiB": sum(shape.spec.gpu.memory_mib for shape in shapes)
        + sum(1000 * gb * n for shape in shapes for gb, n in _mig_memory(shape)),
    }


def _mig_memory(shape: Shape) -> list[tuple[int, int]]:
    profiles = shape.spec.gpu.mig.items()
    return [((mig_slices(name) or (0, 0))[1], count) for name, count in profiles]


def resource_to_allocate(case: Input, flags: Flags) -> Result:
    if case["job"] is None:
        return {"resource": {}}
    total = (0, 0, 0)
    for task in to_allocate(build.job_of(case["job"]), case, flags):
        total = added(total, build.demand(task.request, case.get("minNodeGpuMemoryMiB")))
    cpu, memory, gpu = total
    return {"resource": {"milliCpu": cpu, "memory": memory, "gpus": build.quantity(gpu, "gpu")}}


def tasks_to_evict(case: Input, flags: Flags) -> Result:
    job = build.job_of(case["job"])

    def take(leaf: int, n: int) -> list[CaseTask]:
        tasks = job.tasks[leaf][::-1]
        return [task for task in tasks if task.status in statuses.ACTIVE_ALLOCATED][:n]

    allocated = job.counts(statuses.ACTIVE_ALLOCATED)
    tasks, more = select.tasks_to_evict(job.tree, allocated, take, order=order.member_by_name)
    names = sorted(task.name for task in tasks)
    return {"taskCount": len(tasks), "hasMore": more, "tasks": names}


def _delay_end(case: Input) -> int | None:
    job = case["job"]
    return delay.preemption_delay_end(
        created_ms=at_ms(job.get("createdAt")),
        last_eviction_ms=at_ms(job.get("lastEvictedAt")),
        delay_ms=ms_of(job.get("preemptionDelay")) or 0,
    )


def delay_end(case: Input, flags: Flags) -> Result:
    return {"end": build.time_of(_delay_end(case))}


def within_delay(case: Input, flags: Flags) -> Result:
    return {"within": delay.within_preemption_delay(_delay_end(case), at_ms(case["now"]))}


def same_signature(case: Input, flags: Flags) -> Result:
    plain = signature.pod_signature(PodSpec(requests={}))

    def of(raw: Input) -> bytes:
        job = build.tree_of_case(raw)
        pods = [
            [plain for task in tasks if task.status not in statuses.ACTIVE_ALLOCATED]
            for tasks in job.tasks
        ]
        return signature.job_signature(job.tree, pods)

    return {"same": of(case["left"]) == of(case["right"])}


# -- orders


def _sign(left: Any, right: Any) -> int:
    return (left > right) - (left < right)


def _labels(case: Input) -> tuple[Mapping[str, str], Mapping[str, str]]:
    return case["left"].get("labels") or {}, case["right"].get("labels") or {}


def by_labels(key: Callable[[Mapping[str, str]], Any]) -> Run:
    def run(case: Input, flags: Flags) -> Result:
        left, right = _labels(case)
        return {"compare": _sign(key(left), key(right))}

    return run


def task_priority(case: Input, flags: Flags) -> Result:
    return {"compare": order.compare_task_priority(*_labels(case), flags)}


def sub_group_order(case: Input, flags: Flags) -> Result:
    def key(raw: Input) -> Any:
        is_set = "groups" in raw or "podSets" in raw or "minSubGroup" in raw
        job = build.tree_of_case(raw) if is_set else build.leaf_of_case(raw)
        member = job.tree.root if is_set else job.tree.root.members[0]
        return order.member_by_need(member, job.counts(statuses.ACTIVE_ALLOCATED))[:-1]

    return {"compare": _sign(key(case["left"]), key(case["right"]))}


def elastic_order(case: Input, flags: Flags) -> Result:
    def key(raw: Input) -> int:
        job = build.job_of(raw)
        return gang.elasticity(job.tree, job.counts(statuses.ACTIVE_ALLOCATED))

    return {"compare": _sign(key(case["left"]), key(case["right"]))}


# -- easier jobs


def _requests(case: Input, flags: Flags) -> tuple[list[minimal.Request], list[Any] | None]:
    """Requests of the pending tasks of job and representative, all of the same dimensions."""
    jobs = [case["job"], case["representative"]]
    names: set[str] = set()
    for job in jobs:
        for task in (job or {}).get("tasks", ()):
            names.update(task.get("resReq", {}).get("scalars", {}))
            names.update(task.get("resReq", {}).get("mig", {}))
    one, other = (None if job is None else _pending(job, sorted(names), flags) for job in jobs)
    assert one is not None
    return one, other


def _pending(job: Input, names: list[str], flags: Flags) -> list[minimal.Request]:
    tasks = [build.task_of(task) for task in job.get("tasks", ())]
    return [_request(task, names, flags) for task in tasks if task.status is TaskStatus.PENDING]


def _request(task: CaseTask, names: list[str], flags: Flags) -> minimal.Request:
    scalars, gpu = task.request.get("scalars", {}), task.gpu
    amounts = (
        task.request.get("milliCpu", 0),
        task.request.get("memory", 0),
        build.shape_of(task.request).gpu + build.shape_of(task.request).dra,
        *(scalars.get(name, 0) + gpu.mig.get(name, 0) for name in names),
    )
    return minimal.comparable(
        amounts, gpu_count=gpu.count, gpu_memory_mib=gpu.memory_mib, flags=flags
    )


def easier(case: Input, flags: Flags) -> Result:
    return {"easier": minimal.easier_to_schedule(*_requests(case, flags))}


def replaces(case: Input, flags: Flags) -> Result:
    return {"replaced": minimal.replaces(*_requests(case, flags))}


OPS: dict[str, Run] = {
    "tasksToAllocate": tasks_to_allocate,
    "hasTasksToAllocate": has_tasks,
    "subGroupTasksToAllocate": leaf_tasks_to_allocate,
    "subGroupAllocatableTasks": leaf_allocatable_tasks,
    "gpusToAllocate": gpus_to_allocate,
    "resourceToAllocate": resource_to_allocate,
    "tasksToEvict": tasks_to_evict,
    "preemptionDelayEnd": delay_end,
    "withinPreemptionDelay": within_delay,
    "sameJobSignature": same_signature,
    "taskPriorityOrder": task_priority,
    "rayTaskOrder": by_labels(order.ray_key),
    "kubeflowTaskOrder": by_labels(order.kubeflow_key),
    "subGroupOrder": sub_group_order,
    "elasticJobOrder": elastic_order,
    "easierToSchedule": easier,
    "replacesRepresentative": replaces,
}
