"""What is written of a job at the end of a cycle. Files `job_status`, `scheduling_conditions`."""

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from kai_es.kube.labels import LAST_EVICTION, STALE_SINCE
from kai_es.kube.objects import SchedulingCondition
from kai_es.kube.parse_group import parse_group
from kai_es.scheduler.flags import Flags
from kai_es.scheduler.jobs.tree import PodSet
from kai_es.scheduler.reasons import fit
from kai_es.scheduler.reasons.fit import JobError
from kai_es.snapshot.status import TaskStatus
from kai_es.status.conditions import (
    Marks,
    changed_annotations,
    cleared,
    raw_conditions,
    unschedulable,
    with_condition,
)
from kai_es.status.said import NORMAL, Said, Task, pool_of, stale_text, words_of
from tests.conformance import build
from tests.conformance.job_ops import Input, Result, Run

Raw = Mapping[str, Any]


def _conditions(raws: list[Raw]) -> tuple[SchedulingCondition, ...]:
    raw = build.raw_group({"status": {"schedulingConditions": raws}})
    return parse_group(raw).scheduling_conditions


def set_condition(case: Input, flags: Flags) -> Result:
    old, (new,) = _conditions(case["conditions"]), _conditions([case["newCondition"]])
    found = with_condition(old, new, 0)
    return {"updated": found != old, "conditions": raw_conditions(found)}


def clear(case: Input, flags: Flags) -> Result:
    old = _conditions(case["conditions"])
    found = cleared(old, map(build.status_of, case["taskStatuses"]))
    return {"updated": found != old, "conditions": raw_conditions(found)}


def remove(case: Input, flags: Flags) -> Result:
    old = _conditions(case["conditions"])
    return {"updated": cleared(old, ()) != old, "conditions": raw_conditions(cleared(old, ()))}


def _annotated(case: Input, marks: Marks, name: str) -> Result:
    before = case["annotations"]
    changes = changed_annotations(marks, before, [name])
    after = {**before, **changes}
    return {
        "updated": bool(changes),
        "annotations": {key: text for key, text in after.items() if text is not None},
    }


def set_stale(case: Input, flags: Flags) -> Result:
    marks = Marks(build.at_ms(case["staleTimestamp"]), 0, 0)
    return _annotated(case, marks, STALE_SINCE)


def set_last_eviction(case: Input, flags: Flags) -> Result:
    marks = Marks(0, 0, build.at_ms(case["evictionTimestamp"]))
    return _annotated(case, marks, LAST_EVICTION)


# -- a whole job


def _tasks(job: Raw) -> Iterator[Task]:
    errors = job["taskFitErrors"]
    for sub_group in job["subGroups"].values():
        for raw in sub_group["tasks"]:
            status = build.status_of(raw["status"])
            yield Task(raw["name"], f"{job['namespace']}/{raw['name']}", status)
    for raw in job["invalidSubGroupTasks"]:
        pod = f"{job['namespace']}/{raw['name']}"
        yield Task(raw["name"], pod, TaskStatus.PENDING, errors[raw["uid"]]["error"])


def _said(job: Raw) -> Said:
    errors = tuple(
        JobError(
            error["reason"],
            tuple(error["messages"]),
            error.get("detailedMessage", ", ".join(error["messages"])),
        )
        for error in job["jobFitErrors"]
    )
    tasks = {}
    for uid, error in job["taskFitErrors"].items():
        text = fit.task_text(error["nodeReasons"], error["error"] or fit.NO_NODE)
        tasks[f"{job['namespace']}/{uid}"] = text
    return Said(errors, tasks)


def record(case: Input, flags: Flags) -> Result:
    job = case["job"]
    group = parse_group(build.raw_group(job["podGroup"]))
    tasks = list(_tasks(job))
    pool = pool_of(group, case["nodePoolLabelKey"])
    words = words_of(group, tasks, _said(job), pool=pool, detailed=case["detailedFitErrors"])
    events = [f"{one.type} {one.reason} {one.message}" for one in words.events]
    if job["stale"]:
        events.append(f"{NORMAL} StaleJob {stale_text(_leaves(job))}")
    conditions = _conditions(job["conditions"])
    if words.condition is not None:
        conditions = with_condition(conditions, unschedulable(pool, *words.condition), 0)
    else:
        conditions = cleared(conditions, (task.status for task in tasks))
    return {
        "events": sorted(events),
        "podConditions": {
            name: {
                "type": "PodScheduled",
                "status": "False",
                "reason": "Unschedulable",
                "message": text,
            }
            for name, text in words.pods.items()
        },
        "conditions": msgspec.to_builtins(raw_conditions(conditions)),
        "error": "",
    }


def _leaves(job: Raw) -> Iterator[tuple[PodSet, list[TaskStatus]]]:
    for at, (name, raw) in enumerate(sorted(job["subGroups"].items())):
        statuses = [build.status_of(task["status"]) for task in raw["tasks"]]
        yield PodSet(name, raw["minAvailable"], at), statuses


def events(case: Input, flags: Flags) -> Result:
    return {"events": record(case, flags)["events"]}


def stale_event(case: Input, flags: Flags) -> Result:
    return {"events": [f"{NORMAL} StaleJob {stale_text(_leaves(case['job']))}"]}


OPS: dict[str, Run] = {
    "setSchedulingCondition": set_condition,
    "clearSchedulingConditions": clear,
    "removeSchedulingConditions": remove,
    "setStaleTimestamp": set_stale,
    "setLastEvictionTimestamp": set_last_eviction,
    "recordJobStatus": record,
    "jobEvents": events,
    "staleJobEvent": stale_event,
}
