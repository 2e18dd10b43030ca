"""Cases of the choice among the devices of a node."""

from typing import Any

from kai_es.scheduler.columns.sharing import Device
from kai_es.scheduler.flags import Flags
from kai_es.scheduler.framework.devices import pick_devices
from tests.conformance.node_info_ops import Input
from tests.conformance.node_info_ops.device_scores import WHOLE
from tests.conformance.node_info_ops.stage import Stage, node_of_state


def choose(case: Input, flags: Flags) -> dict[str, Any]:
    state = {**case["node"], "name": "node"}
    stage = Stage([node_of_state(state)], tasks=[case["task"]], flags=flags)
    stage.write(stage.n, state)
    session, fitting = stage.session, case["fittingGpusOnNode"]
    allocated = state["gpuSharing"].get("allocatedSharedGpusMemory", {})
    memory = state["gpuMemoryMiB"] // 2
    for name in fitting:
        if name != WHOLE and name not in allocated:  # only tasks that wait are on it
            session.nodes.devices[stage.n] = {
                **session.nodes.devices[stage.n],
                name: Device(memory, None, -memory),
            }
    pick = pick_devices(session, stage.tasks[0], stage.n, idle=not case["pipelineOnly"])
    if pick is None:
        return {"result": None}
    groups, waits = pick
    known = [group for group in groups if group in fitting]
    result = {
        "groupCount": len(groups),
        "existingGroups": known,
        "newGroups": len(groups) - len(known),
        "isReleasing": waits,
    }
    return {"result": result}


OPS = {"chooseSharedGpus": choose}
