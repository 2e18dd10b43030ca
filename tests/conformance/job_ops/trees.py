"""Sub-group trees: reading, counting, gang predicates, aliases."""

from collections.abc import Callable
from typing import Any

from kai_es.events.decisions import Reason
from kai_es.kube.labels import SUB_GROUP_LABEL
from kai_es.kube.parse_group import parse_group
from kai_es.scheduler.flags import Flags
from kai_es.scheduler.jobs import gang
from kai_es.scheduler.jobs.tree import (
    Member,
    PodSet,
    SubGroupError,
    held_members,
    holds,
    parse_sub_groups,
    resolve_aliases,
    tree_of,
    with_aliases,
)
from kai_es.scheduler.reasons import codes
from kai_es.scheduler.reasons.render import general_text
from kai_es.snapshot import status as statuses
from kai_es.snapshot.status import TaskStatus
from tests.conformance import build
from tests.conformance.build import CaseJob
from tests.conformance.job_ops import Input, Result, Run

PENDING = frozenset({TaskStatus.PENDING})
GATED = frozenset({TaskStatus.GATED})
GROUPS = {
    "alive": statuses.ALIVE,
    "allocated": statuses.ALLOCATED,
    "activeUsed": statuses.ACTIVE_USED,
    "activeAllocated": statuses.ACTIVE_ALLOCATED,
    "bound": statuses.BOUND,
}


def status_group(case: Input, flags: Flags) -> Result:
    return {"member": build.status_of(case["status"]) in GROUPS[case["group"]]}


def ungated(job: CaseJob) -> list[int]:
    alive, gated = job.counts(statuses.ALIVE), job.counts(GATED)
    return [one - other for one, other in zip(alive, gated, strict=True)]


def count(of: Callable[[Input], CaseJob], group: frozenset[TaskStatus], key: str) -> Run:
    return lambda case, _flags: {"count": sum(of(case[key]).counts(group))}


def ready(of: Callable[[Input], CaseJob], key: str) -> Run:
    def run(case: Input, flags: Flags) -> Result:
        job = of(case[key])
        return {"value": gang.ready_for_scheduling(job.tree, ungated(job))}

    return run


def leaf_gang_satisfied(case: Input, flags: Flags) -> Result:
    job = build.leaf_of_case(case["subGroup"])
    return {"value": gang.gang_satisfied(job.tree, job.counts(statuses.ACTIVE_USED), flags)}


def leaf_elastic(case: Input, flags: Flags) -> Result:
    job = build.leaf_of_case(case["subGroup"])
    return {"value": gang.elastic(job.tree, [len(job.tasks[0])])}


def stale(case: Input, flags: Flags) -> Result:
    job = build.job_of(case["job"])
    succeeded = any(task.status is TaskStatus.SUCCEEDED for task in job.all_tasks())
    used = job.counts(statuses.ACTIVE_USED)
    leaves = gang.stale_leaves(job.tree, used, succeeded=succeeded, flags=flags)
    return {"value": bool(leaves)}


def set_ready(case: Input, flags: Flags) -> Result:
    job = build.tree_of_case(case["subGroup"])
    return {"value": holds(job.tree.root, ungated(job))}


def set_satisfied(case: Input, flags: Flags) -> Result:
    job = build.tree_of_case(case["subGroup"])
    return {"value": holds(job.tree.root, job.counts(statuses.ACTIVE_ALLOCATED))}


def satisfied_members(case: Input, flags: Flags) -> Result:
    job = build.tree_of_case(case["subGroup"])
    return {"count": held_members(job.tree.root, job.counts(statuses.ACTIVE_ALLOCATED))}


def members_to_satisfy(case: Input, flags: Flags) -> Result:
    return {"count": build.tree_of_case(case["subGroup"]).tree.root.needed}


def sub_group_tree(case: Input, flags: Flags) -> Result:
    try:
        return {"tree": shown(parse_sub_groups(parse_group(build.raw_group(case["podGroup"]))))}
    except SubGroupError as exc:
        return {"error": str(exc)}


def job_from_pod_group(case: Input, flags: Flags) -> Result:
    group = parse_group(build.raw_group(case["podGroup"]))
    leaves = tree_of(group).leaves
    return {
        "queue": group.queue,
        "subGroups": {leaf.name: {"minAvailable": leaf.min_available} for leaf in leaves},
        "staleSince": build.time_of(group.stale_since_ms),
        "lastStartedAt": build.time_of(group.last_start_ms),
        "lastEvictedAt": build.time_of(group.last_eviction_ms),
    }


def shown(member: Member) -> Result:
    """A tree as cases write it."""
    common = {"name": member.name, "topologyConstraint": constraint(member.topology)}
    if isinstance(member, PodSet):
        return {**common, "minAvailable": member.min_available, "tasks": []}
    below = [(shown(child), isinstance(child, PodSet)) for child in member.members]
    if member.min_sub_group is not None:
        common["minSubGroup"] = member.min_sub_group
    common["groups"] = [child for child, is_leaf in below if not is_leaf]
    common["podSets"] = [child for child, is_leaf in below if is_leaf]
    return common


def constraint(topology: Any) -> dict[str, str] | None:
    if topology is None:
        return None
    return {
        "topology": topology.topology,
        "requiredLevel": topology.required,
        "preferredLevel": topology.preferred,
    }


def resolve_tree(case: Input, flags: Flags) -> Result:
    root = build.tree_of_case(case["tree"]).tree.root
    return {"tree": shown(with_aliases(root, case["aliases"]))}


def resolve_one(case: Input, flags: Flags) -> Result:
    topology = case["constraint"].get("topology", "")
    given = build.constraint_of(case["constraint"])
    return {"constraint": constraint(resolve_aliases(given, {topology: case["aliases"]}))}


def add_task(case: Input, flags: Flags) -> Result:
    """One pod of a pod group: the pod set it belongs to, or why it is not part of the job."""
    raw = case.get("job") or {}
    group = parse_group(build.raw_group(case.get("podGroup") or {"metadata": _metadata(raw)}))
    tree = tree_of(group) if "podGroup" in case else build.job_of(raw).tree
    task = build.task_of(case["task"])
    sub_group = task.sub_group or task.labels.get(SUB_GROUP_LABEL, "")
    leaf = tree.leaf_for(sub_group)
    if leaf is not None:
        return {"assigned": True, "invalidSubGroup": False, "subGroup": tree.leaves[leaf].name}
    args = {"sub_group": sub_group or "default", "group": f"{group.namespace}/{group.name}"}
    pod = f"{task.namespace}/{task.name}"
    text = general_text(Reason(code=codes.UNKNOWN_SUB_GROUP, args=args), pod)
    return {"assigned": False, "invalidSubGroup": True, "fitError": text, "error": text}


def _metadata(job: Input) -> dict[str, str]:
    return {key: job[key] for key in ("name", "namespace") if key in job}


OPS: dict[str, Run] = {
    "statusGroup": status_group,
    "subGroup.aliveTasks": count(build.leaf_of_case, statuses.ALIVE, "subGroup"),
    "subGroup.pendingTasks": count(build.leaf_of_case, PENDING, "subGroup"),
    "subGroup.gatedTasks": count(build.leaf_of_case, GATED, "subGroup"),
    "subGroup.activeUsedTasks": count(build.leaf_of_case, statuses.ACTIVE_USED, "subGroup"),
    "subGroup.activeAllocatedTasks": count(
        build.leaf_of_case, statuses.ACTIVE_ALLOCATED, "subGroup"
    ),
    "subGroup.readyForScheduling": ready(build.leaf_of_case, "subGroup"),
    "subGroup.gangSatisfied": leaf_gang_satisfied,
    "subGroup.elastic": leaf_elastic,
    "aliveTasks": count(build.job_of, statuses.ALIVE, "job"),
    "pendingTasks": count(build.job_of, PENDING, "job"),
    "activeAllocatedTasks": count(build.job_of, statuses.ACTIVE_ALLOCATED, "job"),
    "readyForScheduling": ready(build.job_of, "job"),
    "stale": stale,
    "setReady": set_ready,
    "setSatisfied": set_satisfied,
    "satisfiedMembers": satisfied_members,
    "membersToSatisfy": members_to_satisfy,
    "subGroupTree": sub_group_tree,
    "jobFromPodGroup": job_from_pod_group,
    "resolveAliases": resolve_tree,
    "resolveConstraintAliases": resolve_one,
    "addTask": add_task,
}
