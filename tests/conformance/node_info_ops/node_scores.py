"""Scores of nodes by one plugin, for the files that are named like one."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from kai_es.scheduler.config import Config, PluginOption
from kai_es.scheduler.flags import Flags
from kai_es.scheduler.framework.fit import ALL_NODES
from tests.conformance.node_info_ops import Input, Run
from tests.conformance.node_info_ops.stage import Stage, node_of_state


def scorer(plugin: str) -> Run:
    """Runner of `nodeScore` with one plugin alone."""

    def run(case: Input, flags: Flags) -> dict[str, Any]:
        given = case.get("nodes") or {case["node"].get("name", "node"): case["node"]}
        states = {name: _state(raw) for name, raw in given.items()}
        asked = case["node"] if isinstance(case["node"], str) else next(iter(states))
        arguments = case.get("strategy", {})
        config = Config(
            withheld=(),
            node_pool_key="",
            plugins=(PluginOption(name=plugin, arguments=arguments),),
        )
        nodes = [node_of_state(raw, name) for name, raw in states.items()]
        dra = {name: 1 for name, raw in states.items() if raw.get("hasDraGpus")}
        stage = Stage(nodes, tasks=[case["task"]], config=config, flags=flags, dra_gpus=dra)
        session, n = stage.session, stage.session.nodes.columns.row[asked]
        for name, raw in states.items():
            stage.write(session.nodes.columns.row[name], raw)
        task, total = stage.tasks[0], 0.0
        for score in session.ext.scores:
            found = score(session.fits.of(task), ALL_NODES, task)
            total += float(found if isinstance(found, float) else np.asarray(found)[n])
        return {"score": total}

    return run


def _state(raw: Mapping[str, Any]) -> Mapping[str, Any]:
    """Short forms in full."""
    if "allocatableGpus" not in raw:
        return raw
    allocatable, idle = ({"gpus": raw[f"{kind}Gpus"]} for kind in ("allocatable", "idle"))
    return {"allocatable": allocatable, "idle": idle}
