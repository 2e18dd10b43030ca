"""Texts that users see, conditions, nodes and queues as objects."""

from collections.abc import Mapping
from typing import Any

from kai_es.kube.conditions import condition_index, last_condition, scheduling_backoff
from kai_es.kube.objects import SchedulingCondition
from kai_es.kube.parse_group import parse_group
from kai_es.kube.parse_node import parse_node
from kai_es.kube.parse_queue import parse_queue
from kai_es.kube.quantity import saturating_add
from kai_es.scheduler.columns.lens import Lens
from kai_es.scheduler.columns.nodes import NodeFacts
from kai_es.scheduler.fairness.vectors import Resource
from kai_es.scheduler.flags import Flags
from kai_es.scheduler.reasons import fit, quota, shortage
from kai_es.scheduler.reasons.fit import JobError
from kai_es.snapshot.shapes import mig_slices
from kai_es.snapshot.snapshot import NodeRow
from tests.conformance import build
from tests.conformance.job_ops import Input, Result, Run

RESOURCES = {"GPU": Resource.GPU, "CPU": Resource.CPU, "Memory": Resource.MEMORY}


def _amounts(raw: Mapping[str, Any]) -> dict[str, int]:
    """Amounts by resource in the order of display."""
    scalars = {**raw.get("scalars", {}), **raw.get("mig", {})}
    return {
        "cpu": raw.get("milliCpu", 0),
        "memory": raw.get("memory", 0),
        "gpu": build.plain_vector(raw)[2],
        "pods": scalars.get("pods", 0),
        **{name: scalars[name] for name in sorted(scalars) if name != "pods"},
    }


def _domain_amounts(raw: Mapping[str, Any]) -> dict[str, int]:
    amounts = _amounts(raw)
    return {"gpu": amounts.pop("gpu"), **amounts}


def task_fit_error(case: Input, flags: Flags) -> Result:
    gpu = build.gpu_request(case["requested"])
    found = shortage.node_shortages(
        _amounts(case["requested"]),
        _amounts(case["used"]),
        _amounts(case["capacity"]),
        gpu=gpu,
        device_mib=case["capacityGpuMemoryMiB"],
    )
    suffix, gang = case["suffix"], case["gangSchedulingJob"]
    short = shortage.with_suffix(map(shortage.short_text, found), suffix)
    detailed = (shortage.detailed_text(one, gpu=gpu, gang=gang) for one in found)
    pod = f"{case['namespace']}/{case['name']}"
    return {
        "error": fit.refusal_text(pod, case["nodeName"], short),
        "reasons": short,
        "detailedReasons": shortage.with_suffix(detailed, suffix),
    }


def topology_insufficient(case: Input, flags: Flags) -> Result:
    found = shortage.domain_shortages(
        _domain_amounts(case["requested"]), _domain_amounts(case["available"])
    )
    error = shortage.domain_error(case["domain"], found, case.get("subGroup", ""))
    return {
        "messages": list(error.messages),
        "detailedMessage": error.detailed,
        "reason": error.reason,
    }


def _errors(case: Input) -> list[JobError]:
    return [
        JobError(
            error["reason"],
            tuple(error["messages"]),
            error.get("detailedMessage", ", ".join(error["messages"])),
        )
        for error in case["errors"]
    ]


def job_fit_message(case: Input, flags: Flags) -> Result:
    return {"message": fit.job_text(_errors(case))}


def job_fit_detailed(case: Input, flags: Flags) -> Result:
    return {"message": fit.job_detailed_text(_errors(case))}


def over_quota(case: Input, flags: Flags) -> Result:
    resource = RESOURCES[case["resource"]]
    requested = case["requested"]
    asked = {
        Resource.GPU: requested.get("gpu", 0),
        Resource.CPU: requested.get("milliCpu", 0),
        Resource.MEMORY: requested.get("memory", 0),
    }[resource]
    deserved, used, asked = (_amount(n, resource) for n in (case["deserved"], case["used"], asked))
    text = quota.over_quota_text(
        case["queue"], resource, quota=deserved, allocated=used, requested=asked
    )
    return {"message": text}


def over_limit(case: Input, flags: Flags) -> Result:
    resource = RESOURCES[case["resource"]]
    keys = ("maxAllowed", "used", "requested")
    limit, used, requested = (_amount(case[key], resource) for key in keys)
    text = quota.over_limit_text(
        case["queue"], resource, limit=limit, allocated=used, requested=requested
    )
    return {"message": text}


def _amount(value: float, resource: Resource) -> int:
    return build.amount(value, ("cpu", "memory", "gpu")[resource])


# -- conditions and objects


def _conditions(case: Input) -> list[SchedulingCondition]:
    return [
        SchedulingCondition(
            node_pool=raw.get("nodePool", ""), transition_id=raw.get("transitionID", "")
        )
        for raw in case["conditions"]
    ]


def latest(case: Input, flags: Flags) -> Result:
    found = last_condition(_conditions(case))
    if found is None:
        return {"condition": None}
    return {"condition": {"nodePool": found.node_pool, "transitionID": found.transition_id}}


def index(case: Input, flags: Flags) -> Result:
    return {"index": condition_index(_conditions(case), case["nodePool"])}


def backoff(case: Input, flags: Flags) -> Result:
    return {"effective": scheduling_backoff(case["value"])}


def mark_unschedulable(case: Input, flags: Flags) -> Result:
    raw = build.raw_group({"spec": {"markUnschedulable": case["value"]}})
    return {"effective": parse_group(raw).mark_unschedulable}


def ready_node(case: Input, flags: Flags) -> Result:
    raw = case["node"]
    metadata = {"name": "node", "uid": "uid", **raw.get("metadata", {})}
    row = NodeRow(node=parse_node({**raw, "metadata": metadata}), rv=1)
    return {"ready": not NodeFacts(row, Lens()).problems}


def mig(case: Input, flags: Flags) -> Result:
    slices = mig_slices(case["resource"])
    if slices is None:
        return {"error": True}
    return {"gpus": slices[0], "memoryGb": slices[1]}


def capped_sum(case: Input, flags: Flags) -> Result:
    return {"sum": saturating_add(case["left"], case["right"])}


def queue_from_object(case: Input, flags: Flags) -> Result:
    queue = parse_queue(build.raw_queue(case["queue"]))
    shares = {"gpu": queue.gpu, "cpu": queue.cpu, "memory": queue.memory}
    runtimes = (queue.preempt_min_runtime_ms, queue.reclaim_min_runtime_ms)
    preempt, reclaim = (None if ms is None else build.Duration(ms) for ms in runtimes)
    return {
        "queue": {
            "uid": queue.name,
            "name": queue.display_name or queue.name,
            "displayName": queue.display_name,
            "parent": queue.parent,
            "children": [],
            "priority": queue.priority,
            "resources": {
                name: {
                    "quota": share.quota,
                    "limit": share.limit,
                    "overQuotaWeight": share.weight,
                }
                for name, share in shares.items()
            },
            "preemptMinRuntime": preempt,
            "reclaimMinRuntime": reclaim,
        }
    }


OPS: dict[str, Run] = {
    "taskFitError": task_fit_error,
    "topologyInsufficient": topology_insufficient,
    "jobFitMessage": job_fit_message,
    "jobFitDetailed": job_fit_detailed,
    "overQuotaMessage": over_quota,
    "overLimitMessage": over_limit,
    "lastCondition": latest,
    "conditionIndex": index,
    "schedulingBackoff": backoff,
    "markUnschedulable": mark_unschedulable,
    "nodeReady": ready_node,
    "migProfile": mig,
    "saturatingAdd": capped_sum,
    "queueFromObject": queue_from_object,
}
