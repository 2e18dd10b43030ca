"""Cases of the account of one node, and of what fits on it."""

import re
from typing import Any

from kai_es.kube.labels import MIG_PREFIX
from kai_es.scheduler.columns.nodes import FREE, IDLE, USED
from kai_es.scheduler.flags import Flags
from kai_es.scheduler.framework.fit import ALL_NODES
from kai_es.scheduler.plugins.predicates import Predicates
from kai_es.scheduler.reasons.render import node_texts
from tests.conformance.diff import exact_map, first_difference
from tests.conformance.node_info_ops import Input
from tests.conformance.node_info_ops.amounts import shown
from tests.conformance.node_info_ops.objects import node_of
from tests.conformance.node_info_ops.stage import (
    Stage,
    gpus,
    node_of_state,
    shown_devices,
)


def _stage(case: Input, flags: Flags) -> Stage:
    tasks = [case["task"]] if "task" in case else []
    if "nodeState" in case:
        node = node_of_state(case["nodeState"])
        stage = Stage([node], tasks=tasks, flags=flags, dra_gpus=_dra(case, node.name))
        stage.write(stage.n, case["nodeState"])
        return stage
    node = node_of(case["node"])
    dra = _dra(case, node.name)
    return Stage([node], steps=case.get("steps", ()), tasks=tasks, flags=flags, dra_gpus=dra)


def _dra(case: Input, name: str) -> dict[str, int]:
    return {name: 1} if case.get("hasDraGpus") else {}


def state(case: Input, flags: Flags) -> dict[str, Any]:
    stage = _stage(case, flags)
    session, n = stage.session, stage.n
    columns, names = session.nodes.columns, session.columns.index.names

    def plane(array: Any) -> dict[str, Any]:
        return shown({names[row]: int(array[row]) for row in range(len(names))})

    idle, free, used = (session.nodes.amounts[which, :, n] for which in (IDLE, FREE, USED))
    there = [row.pod for row in stage.snapshot.pods_of_node.get(columns.facts[n].name, {}).values()]
    gone = {step["remove"]["uid"] for step in case["steps"] if "remove" in step}
    pods = int(columns.allocatable[names.index("pods"), n])
    return {
        "allocatable": plane(columns.allocatable[:, n]),
        "idle": plane(idle),
        "used": plane(used),
        "releasing": plane(free - idle),
        "maxPods": pods,
        "gpuMemoryMiB": columns.facts[n].gpu_memory,
        "gpuSharing": shown_devices(session.nodes.devices[n]),
        "pods": sorted(pod.uid for pod in there if pod.uid not in gone),
    }


def _fits(case: Input, flags: Flags, which: str) -> dict[str, Any]:
    stage = _stage(case, flags)
    fit = stage.fit()
    mask = fit.idle_ok if which == "idle" else fit.free_ok
    return {"allocatable": bool(mask[stage.n]) and not fit.absent}


def fits_idle(case: Input, flags: Flags) -> dict[str, Any]:
    return _fits(case, flags, "idle")


def fits_free(case: Input, flags: Flags) -> dict[str, Any]:
    return _fits(case, flags, "free")


def fits_available(case: Input, flags: Flags) -> dict[str, Any]:
    given = {**case["nodeState"], "idle": case["available"], "releasing": {}}
    return _fits({**case, "nodeState": given}, flags, "idle")


def error_text(pod: str, node: str, texts: list[str]) -> str:
    return f"Pod {pod} cannot be scheduled on node {node}. reasons: " + ". \n".join(texts)


def fitting_error(case: Input, flags: Flags) -> dict[str, Any]:
    stage = _stage(case, flags)
    session, task = stage.session, stage.tasks[0]
    session.failures.no_node(task, stage.fit(), ALL_NODES)
    pod = session.row(task).pod
    name = f"{pod.namespace}/{pod.name}"
    reasons = session.failures.tasks[task].nodes
    order = {row: at for at, row in enumerate(session.columns.index.names)}
    reasons = sorted(reasons, key=lambda reason: order.get(str(reason.args.get("resource")), 0))
    texts = [text for reason in reasons for text in node_texts(reason, name)]
    return {"error": error_text(name, session.nodes.columns.facts[stage.n].name, texts)}


def _sum(micro: int, memory: int) -> dict[str, Any]:
    return {"gpus": gpus(micro), "gpuMemoryMiB": round(gpus(micro) * memory)}


def sum_idle(case: Input, flags: Flags) -> dict[str, Any]:
    stage = _stage(case, flags)
    nodes = stage.session.nodes
    return _sum(nodes.idle_gpus(stage.n), nodes.columns.facts[stage.n].gpu_memory)


def sum_releasing(case: Input, flags: Flags) -> dict[str, Any]:
    stage = _stage(case, flags)
    nodes = stage.session.nodes
    return _sum(nodes.releasing_gpus(stage.n), nodes.columns.facts[stage.n].gpu_memory)


def gpu_memory(case: Input, flags: Flags) -> dict[str, Any]:
    node = node_of({"metadata": {"name": "n", "labels": case.get("labels") or {}}})
    return {"gpuMemoryMiB": node.gpu_memory_mib, "known": node.gpu_memory_synced}


def is_mig(case: Input, flags: Flags) -> dict[str, Any]:
    return {"isMig": bool(re.match(re.escape(MIG_PREFIX), case["resource"]))}


def node_kind(case: Input, flags: Flags) -> dict[str, Any]:
    stage = _stage(case, flags)
    session, task = stage.session, stage.tasks[0]
    row = session.row(task)
    reason = Predicates(session).wrong_kind(row.shape, stage.n)
    if reason is None:
        return {"fits": True}
    pod = f"{row.pod.namespace}/{row.pod.name}"
    node = session.nodes.columns.facts[stage.n].name
    return {"fits": False, "error": error_text(pod, node, node_texts(reason, pod))}


def cpu_only(case: Input, flags: Flags) -> dict[str, Any]:
    stage = _stage(case, flags)
    return {"cpuOnly": stage.session.nodes.columns.facts[stage.n].cpu_only}


def compare(case: Input, got: Any) -> str | None:
    want = case["expect"]
    if case["op"] != "nodeState":
        return first_difference(got, want)
    for part in ("allocatable", "idle", "used", "releasing", "gpuSharing"):
        mine, other = got[part], want.get(part, {})
        for key in ("scalars",) if part != "gpuSharing" else tuple(mine):
            text = exact_map(mine[key], other.get(key, {}), f"expect.{part}.{key}")
            if text:
                return text
        rest = {k: v for k, v in other.items() if k not in ("scalars", *mine)}
        flat = {k: v for k, v in mine.items() if not isinstance(v, dict)}
        text = exact_map(flat, {k: v for k, v in {**rest, **other}.items() if k in flat}, part)
        if text:
            return text
    rest = {key: want[key] for key in ("maxPods", "gpuMemoryMiB", "pods") if key in want}
    return first_difference(got, rest)


OPS = {
    "nodeState": state,
    "fitsIdle": fits_idle,
    "fitsIdleOrReleasing": fits_free,
    "fitsAvailable": fits_available,
    "fittingError": fitting_error,
    "sumIdleGpus": sum_idle,
    "sumReleasingGpus": sum_releasing,
    "nodeGpuMemory": gpu_memory,
    "isMigResource": is_mig,
    "nodeKindCheck": node_kind,
    "cpuOnlyNode": cpu_only,
}
