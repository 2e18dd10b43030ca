"""Minimum run time: resolving, filters, scenarios, durations."""

from collections.abc import Mapping
from typing import Any

from kai_es.scheduler.fairness import minruntime
from kai_es.scheduler.fairness.minruntime import ResolveMethod, RunTimes
from kai_es.scheduler.flags import Flags
from tests.conformance.build import Duration, ms_of
from tests.conformance.fairness_ops import Input, Result, Run
from tests.conformance.fairness_ops.tables import QueueTable, table_of

NOW_MS = 1_000_000_000


class Case:
    """Queues and run times of a case; a queue that is asked about need not be in the map."""

    def __init__(self, case: Input) -> None:
        raw = dict(case["queues"])
        for key in ("queue", "preemptorQueue", "victimQueue"):
            if case.get(key):
                raw.setdefault(case[key]["uid"], case[key])
        self.table: QueueTable = table_of(raw)
        self.times = RunTimes(
            preempt=[ms_of(queue.get("preemptMinRuntime")) for queue in self.table.queues],
            reclaim=[ms_of(queue.get("reclaimMinRuntime")) for queue in self.table.queues],
            default_preempt=ms_of(case.get("defaultPreemptMinRuntime")) or 0,
            default_reclaim=ms_of(case.get("defaultReclaimMinRuntime")) or 0,
            method=ResolveMethod.of(case.get("method", "")),
        )

    def path(self, queue: Mapping[str, Any] | str | None) -> tuple[int, ...]:
        uid = queue["uid"] if isinstance(queue, Mapping) else queue
        return () if uid is None else self.table.path(uid)

    def protected(self, kind: str, taker: Input, victim: Input) -> bool:
        path = self.path(victim["queue"])
        if kind == "reclaim":
            minimum = self.times.of_reclaim(self.path(taker["queue"]), path)
        else:
            minimum = self.times.of_preempt(path)
        started = victim.get("startedAgo")
        return minruntime.is_protected(
            last_start_ms=0 if started is None else NOW_MS - (ms_of(started) or 0),
            min_runtime_ms=minimum,
            now_ms=NOW_MS,
        )


def preempt_runtime(case: Input, flags: Flags) -> Result:
    loaded, queue = Case(case), case.get("queue")
    return {
        "duration": Duration(loaded.times.of_preempt(loaded.path(queue))),
        "error": None if queue else "queue is nil",
    }


def reclaim_runtime(case: Input, flags: Flags) -> Result:
    loaded = Case(case)
    taker, victim = case.get("preemptorQueue"), case.get("victimQueue")
    if not taker or not victim:
        error = f"preemptorQueue ({_nil(taker)}) or preempteeQueue ({_nil(victim)}) is nil"
        if case["method"] == "queue":  # here the texts name the first one that is missing
            error = "preemptorQueue is nil" if not taker else "preempteeQueue is nil"
        return {"duration": Duration(loaded.times.default_reclaim), "error": error}
    found = loaded.times.of_reclaim(loaded.path(taker), loaded.path(victim))
    return {"duration": Duration(found), "error": None}


def _nil(queue: Mapping[str, Any] | None) -> str:
    return "<nil>" if queue is None else str(queue)


def queue_path(case: Input, flags: Flags) -> Result:
    loaded = Case(case)
    path = loaded.path(case["queue"])
    return {"path": [loaded.table.uids[row] for row in reversed(path)]}


def _elastic(job: Input) -> bool:
    return any(
        leaf.get("minAvailable", 0) < len(leaf.get("runningTasks", ()))
        for leaf in job["subGroups"].values()
    )


def victim_filter(kind: str) -> Run:
    def run(case: Input, flags: Flags) -> Result:
        victim = case["victim"]
        protected = Case(case).protected(kind, case["pendingJob"], victim)
        return {"eligible": minruntime.may_be_victim(protected=protected, elastic=_elastic(victim))}

    return run


def scenario_valid(kind: str) -> Run:
    def run(case: Input, flags: Flags) -> Result:
        loaded = Case(case)
        return {
            "valid": all(
                _keeps(one)
                for one in case["victims"]
                if _elastic(one["job"]) and loaded.protected(kind, case["preemptor"], one["job"])
            )
        }

    return run


def _keeps(victim: Input) -> bool:
    leaves = victim["job"]["subGroups"]
    running = {name: leaf.get("runningTasks", ()) for name, leaf in leaves.items()}
    return minruntime.keeps_minimum(
        evicted={
            name: n for name, uids in running.items() if (n := len({*uids} & {*victim["tasks"]}))
        },
        used={name: len(uids) for name, uids in running.items()},
        min_available={name: leaf.get("minAvailable", 0) for name, leaf in leaves.items()},
    )


def parse_duration(case: Input, flags: Flags) -> Result:
    return {"duration": Duration(minruntime.argument_ms(case["value"]))}


OPS: dict[str, Run] = {
    "preemptMinRuntime": preempt_runtime,
    "reclaimMinRuntime": reclaim_runtime,
    "queuePath": queue_path,
    "preemptVictimFilter": victim_filter("preempt"),
    "reclaimVictimFilter": victim_filter("reclaim"),
    "preemptScenarioValid": scenario_valid("preempt"),
    "reclaimScenarioValid": scenario_valid("reclaim"),
    "parseDuration": parse_duration,
}
