"""Budgets of a search and filters of its scenarios."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from kai_es.kube.parse_pod import parse_pod
from kai_es.scheduler.flags import Flags
from kai_es.scheduler.solve import budget, filters
from kai_es.scheduler.solve.node_affinity import required_nodes
from tests.conformance import build
from tests.conformance.build import micro, ms_of
from tests.conformance.job_ops import Input, Result, Run

UNITS_PER_SECOND = 1000
"""The injected counter: a unit is a millisecond."""


def _budgets(raw: Input | None) -> budget.SearchBudgets | None:
    if raw is None:
        return None
    maps = ("maxActionSearchDuration", "maxGeneratorSearchDuration")
    actions, generators = (
        {name: ms_of(text) or 0 for name, text in raw.get(key, {}).items()} for key in maps
    )
    return budget.SearchBudgets(
        max_action=actions,
        max_job=ms_of(raw.get("maxJobSearchDuration")),
        min_job=ms_of(raw.get("minJobSearchDuration")),
        max_generator=generators,
    )


def search_limits(case: Input, flags: Flags) -> Result:
    try:
        limits = budget.search_limits(case["action"], _budgets(case["budgets"]))
    except budget.BudgetError as exc:
        return {"error": str(exc)}
    return {
        "action": build.Duration(limits.action),
        "job": build.Duration(limits.job),
        "minJob": build.Duration(limits.min_job),
        "generators": {name: build.Duration(ms) for name, ms in limits.generators.items()},
    }


def search_time(case: Input, flags: Flags) -> Result:
    limits = budget.search_limits(case["action"], _budgets(case["budgets"]))
    meter = budget.Meter()
    action = budget.ActionBudget(meter, limits.in_units(UNITS_PER_SECOND))
    begun: dict[str, budget.Budget] = {"action": action}
    jobs: dict[int, budget.JobBudget] = {}
    answers = []
    for step in case["steps"]:
        if "wait" in step:
            meter.spent += ms_of(step["wait"]) or 0
        elif "beginJob" in step:
            job = jobs[step["beginJob"]] = action.begin_job()
            begun["job"] = job
            answers.append({"job": step["beginJob"], "reduced": job.reduced, **_left(job)})
        elif "beginGenerator" in step:
            name = step["beginGenerator"]
            begun["generator"] = jobs[step["ofJob"]].begin_generator(name)
            answers.append({"generator": name, **_left(begun["generator"])})
        else:
            answers.append({"read": step["read"], **_left(begun[step["read"]])})
    return {"answers": answers}


def _left(of: budget.Budget) -> dict[str, Any]:
    left = of.remaining()
    remaining = "unlimited" if left is None else build.Duration(left)
    return {"remaining": remaining, "exhausted": of.exhausted()}


# -- filters


def greedy_fit(case: Input, flags: Flags) -> Result:
    requirements = [micro(gpus) for gpus in case["requirements"]]
    return {"fits": filters.greedy_fit(requirements, [micro(gpus) for gpus in case["capacities"]])}


def _victims(scenario: Input, rows: Mapping[str, int]) -> list[filters.Freed]:
    victims = (*scenario["recordedVictims"], *scenario["potentialVictims"])
    return [filters.Freed(one["uid"], rows[one["node"]], micro(one["gpus"])) for one in victims]


def idle_gpu_filter(case: Input, flags: Flags) -> Result:
    state, scenario = case["state"], case["scenario"]
    idle = state["idleGpusByNode"]
    rows = {name: row for row, name in enumerate(sorted(idle))}
    pending = {task["uid"]: micro(task["gpus"]) for task in scenario["pending"]}
    tested = filters.IdleGpuFilter(
        np.array([micro(idle[name]) for name in rows], np.int64),
        {uid: pending.get(uid, 0) for uid in state["pendingSeen"]},
        seen=(*state["recordedSeen"], *state["potentialSeen"]),
    )
    try:
        return {"possible": tested.possible(pending, _victims(scenario, rows))}
    except filters.ScenarioShrankError:
        return {"possible": True, "error": True}  # the search takes an error for a pass


def topology_gpu_filter(case: Input, flags: Flags) -> Result:
    nodes = case["nodes"]
    rows = {name: row for row, name in enumerate(sorted(nodes))}
    room = [micro(nodes[name]["idleGpus"] + nodes[name]["releasingGpus"]) for name in rows]
    job = build.tree_of_case(case["job"])
    pending = [micro(job.raw_leaves[leaf.name].get("gpus", 0)) for leaf in job.tree.leaves]
    needs = filters.required_levels(job.tree, pending, [0] * len(pending), flags)
    domains = {
        level: _domains([nodes[name]["labels"].get(level.label) for name in rows])
        for level in needs
    }
    tested = filters.TopologyGpuFilter(np.array(room, np.int64), domains, needs)
    possible = True
    for scenario in case["scenarios"]:
        possible = tested.possible(_victims(scenario, rows))
    return {"possible": possible, "applies": bool(needs)}


def _domains(values: Sequence[str | None]) -> Any:
    known = sorted({value for value in values if value is not None})
    return np.array([-1 if value is None else known.index(value) for value in values], np.int32)


def node_affinity_filter(case: Input, flags: Flags) -> Result:
    nodes = case["allNodes"]
    rows = {name: row for row, name in enumerate(sorted(nodes))}
    feasible = np.zeros(len(rows), np.bool_)
    feasible[[rows[name] for name in case["feasibleNodes"]]] = True
    matching = []
    for task in case["scenario"]["pending"]:
        required = required_nodes(parse_pod(build.raw_pod(task["pod"])).spec)
        if required is not None:
            matching.append(np.array([required.matches(name, nodes[name]) for name in rows], bool))
    if not matching:
        return {"applies": False}
    tested = filters.NodeAffinityFilter(matching, feasible)
    victims = [rows[one["node"]] for one in case["scenario"]["victims"]]
    return {"applies": True, "possible": tested.possible(victims)}


OPS: dict[str, Run] = {
    "searchLimits": search_limits,
    "searchTime": search_time,
    "greedyFit": greedy_fit,
    "idleGpuFilter": idle_gpu_filter,
    "topologyGpuFilter": topology_gpu_filter,
    "nodeAffinityFilter": node_affinity_filter,
}
