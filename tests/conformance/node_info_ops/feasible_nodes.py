"""Cases of nodes that are worth trying for a job."""

from typing import Any

import numpy as np

from kai_es.kube.objects import PodGroup, SubGroup
from kai_es.scheduler.flags import Flags
from kai_es.scheduler.solve.evicting import feasible_nodes
from tests.conformance.node_info_ops import Input
from tests.conformance.node_info_ops.stage import Stage, node_of_state


def run(case: Input, flags: Flags) -> dict[str, Any]:
    states = {raw["name"]: raw for raw in case["nodes"]}
    nodes = [node_of_state(raw | {"allocatable": _offer(raw)}) for raw in states.values()]
    sets = case["job"]["subGroups"]
    group = PodGroup(
        uid="job",
        namespace="",
        name="job",
        queue="q",
        sub_groups=tuple(
            SubGroup(name=name, min_member=one["minAvailable"]) for name, one in sets.items()
        ),
    )
    tasks = [task for one in sets.values() for task in one["tasks"]]
    names = [name for name, one in sets.items() for _ in one["tasks"]]
    stage = Stage(nodes, tasks=tasks, group=group, sub_groups=names, flags=flags)
    session = stage.session
    for name, raw in states.items():
        stage.write(session.nodes.columns.row[name], raw)
    found = feasible_nodes(session, session.job(stage.tasks[0]))
    rows = range(len(nodes)) if found is None else np.flatnonzero(found)
    return {"nodes": [session.nodes.columns.facts[int(n)].name for n in rows]}


def _offer(raw: Any) -> dict[str, Any]:
    """What a node offers, of which cases only give the parts."""
    total: dict[str, Any] = {"scalars": {}}
    for part in ("idle", "releasing", "used"):
        for name, amount in raw[part].items():
            if name == "scalars":
                for one, count in amount.items():
                    total[name][one] = total[name].get(one, 0) + count
            else:
                total[name] = total.get(name, 0) + amount
    if raw["gpuSharing"]:
        total["gpus"] = total.get("gpus", 0) + 1
    return total


OPS = {"feasibleNodes": run}
