"""Reclaim: strategies, victim filter, scenario validator, victim units."""

from collections.abc import Mapping
from typing import Any

from kai_es.scheduler.fairness import reclaim
from kai_es.scheduler.fairness.reclaim import (
    Fate,
    Names,
    Reclaimer,
    ScenarioCheck,
    Unit,
    VictimQueue,
)
from kai_es.scheduler.fairness.vectors import Vector
from kai_es.scheduler.flags import Flags
from kai_es.snapshot.status import ACTIVE_ALLOCATED, TaskStatus
from tests.conformance import build
from tests.conformance.build import FINE_UNITS, vector_of
from tests.conformance.fairness_ops import Input, Result, Run
from tests.conformance.fairness_ops.tables import QueueTable, book, table_of, vector


def strategy(case: Input, flags: Flags) -> Result:
    remaining = vector_of(case.get("reclaimeeRemaining"), FINE_UNITS)
    other = book(case["reclaimeeQueue"])
    if case["strategy"] == "maintainFairShare":
        return {"reclaimable": reclaim.stays_above_share(remaining, other)}
    mine = reclaim.within_deserved(book(case["reclaimerQueue"]), _asked(case)[0])
    return {"reclaimable": mine and reclaim.above_deserved(remaining, other)}


def stays_over(case: Input, flags: Flags) -> Result:
    remaining = vector_of(case.get("reclaimeeRemaining"), FINE_UNITS)
    return {"fits": reclaim.stays_above_share(remaining, book(case["reclaimeeQueue"]))}


def fits_deserved(case: Input, flags: Flags) -> Result:
    return {"fits": reclaim.within_deserved(book(case["reclaimerQueue"]), _asked(case)[0])}


def exceeds_deserved(case: Input, flags: Flags) -> Result:
    remaining = vector_of(case.get("reclaimeeRemaining"), FINE_UNITS)
    return {"exceeds": reclaim.above_deserved(remaining, book(case["reclaimeeQueue"]))}


def _asked(case: Input) -> tuple[Vector, Names]:
    return _bundle(case.get("reclaimerResources") or {})


def _bundle(raw: Mapping[str, Any]) -> tuple[Vector, Names]:
    """A bundle of resources and which of them it names: MIG slices name nothing."""
    named = fine_vector({key: value for key, value in raw.items() if key != "mig"})
    return fine_vector(raw), (named[0] > 0, named[1] > 0, named[2] > 0)


def fine_vector(raw: Mapping[str, Any]) -> Vector:
    """A bundle for rules that only compare."""
    gpu = build.plain_vector(raw)[2]
    return (
        build.amount(raw.get("milliCpu", 0), "cpu", FINE_UNITS),
        build.amount(raw.get("memory", 0), "memory", FINE_UNITS),
        gpu,
    )


def _reclaimer(case: Input, table: QueueTable) -> Reclaimer:
    raw = case["reclaimer"]
    requested, names = _bundle(raw.get("required") or {})
    preemptible = raw.get("preemptible", False)
    return Reclaimer(table.path(raw["queue"]), requested, names, preemptible)


def can_reclaim(case: Input, flags: Flags) -> Result:
    table = table_of(case["queues"])
    reclaimer = _reclaimer(case, table)
    leaf = book(table.queues[reclaimer.path[0]])
    objection = reclaim.can_reclaim(leaf, reclaimer.requested, preemptible=reclaimer.preemptible)
    return {"canReclaim": objection is None}


def reclaimable(case: Input, flags: Flags) -> Result:
    table = table_of(case["queues"])
    check = ScenarioCheck(
        _reclaimer(case, table),
        lambda row: book(table.queues[row]),
        multiplier=case.get("saturationMultiplier", 0.0),
        flags=flags,
    )
    victims = [
        VictimQueue(table.path(uid), [Unit(*_bundle(bundle)) for bundle in bundles])
        for uid, bundles in case["reclaimees"].items()
    ]
    return {"reclaimable": check.objection(victims, table.parents) is None}


def victim_filter(case: Input, flags: Flags) -> Result:
    table = table_of(case["queues"])
    reclaimer, victim = _reclaimer(case, table), table.path(case["reclaimeeQueue"])
    if not reclaimer.path or not victim:
        return {"keep": True}
    objection = reclaim.may_be_victim(reclaimer, victim, lambda row: book(table.queues[row]))
    return {"keep": objection is None}


def quota_candidate(case: Input, flags: Flags) -> Result:
    queue, (requested, _) = case["reclaimeeQueue"], _bundle(case.get("required") or {})
    candidate = reclaim.quota_candidate(
        vector(queue, "allocated", FINE_UNITS), vector(queue, "deserved", FINE_UNITS), requested
    )
    return {"candidate": candidate}


def _fate(status: TaskStatus) -> Fate:
    if status is TaskStatus.PIPELINED:
        return Fate.MOVED
    return Fate.KEPT if status in ACTIVE_ALLOCATED else Fate.LOST


def victim_groups(case: Input, flags: Flags) -> Result:
    raw = case["victim"]
    tasks = [build.task_of(task) for task in raw["tasks"]]
    units = reclaim.victim_units(
        [
            reclaim.VictimTask(
                task.sub_group or "default",
                *_bundle(task.accepted),
                fate=_fate(task.status),
            )
            for task in tasks
        ],
        {name: leaf.get("minAvailable", 0) for name, leaf in raw["subGroups"].items()},
        allow_consolidating=case["allowConsolidatingReclaim"],
        flags=flags,
    )
    groups = [
        {
            key: amount / FINE_UNITS["gpu"]
            for key, amount in zip(("milliCpu", "memory", "gpus"), unit.amounts, strict=True)
        }
        for unit in units
        if not unit.moved
    ]
    return {"groups": groups}


STRATEGIES: dict[str, Run] = {
    "": strategy,
    "victimStaysOverAllocatable": stays_over,
    "reclaimerFitsDeserved": fits_deserved,
    "victimExceedsDeserved": exceeds_deserved,
}
RECLAIMABLE: dict[str, Run] = {
    "canReclaim": can_reclaim,
    "reclaimable": reclaimable,
    "reclaimVictimFilter": victim_filter,
    "deservedQuotaCandidate": quota_candidate,
}
