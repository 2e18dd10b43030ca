"""Cases of the filters of one task on one node, and of their texts."""

from collections.abc import Iterator
from typing import Any

from kai_es.events.decisions import Reason
from kai_es.scheduler.config import Config
from kai_es.scheduler.flags import SHARES_TAKE_TWO_SLOTS, Flags
from kai_es.scheduler.framework.session import Session
from kai_es.scheduler.plugins.predicates import Predicates
from kai_es.scheduler.reasons.render import node_texts, pre_filter_line
from tests.conformance.node_info_ops import Input
from tests.conformance.node_info_ops.node_info import error_text
from tests.conformance.node_info_ops.stage import Stage, node_of_state

HOPELESS = frozenset({"VolumeBinding", "ConfigMap", "MaxNodePoolResources"})
"""First checks whose failure no eviction can cure: those in `Extensions.hopeless`."""
FLAGS = {"taskOnNode": frozenset({SHARES_TAKE_TWO_SLOTS})}


def task_on_node(case: Input, flags: Flags) -> dict[str, Any]:
    """Filters in the order of the reference; the outcome of some is given."""
    raw = case["node"]
    state = raw | {part: _with_slots(raw, part) for part in ("allocatable", "idle", "releasing")}
    config = Config(withheld=(), node_pool_key="", restrict_nodes=case["restrictNodeScheduling"])
    stage = Stage([node_of_state(state)], tasks=[case["task"]], config=config, flags=flags)
    session, task = stage.session, stage.tasks[0]
    if stage.n >= 0:
        stage.write(stage.n, state)
    name = f"{case['task'].get('namespace', '')}/{case['task']['name']}"
    for failed in _given(case, before=True):
        return {"passes": False, "error": error_text(name, raw["name"], failed)}
    predicates = Predicates(session)
    shape = session.row(task).shape
    for reason in (predicates.why(shape, stage.n), _slots(session, predicates, task, stage.n)):
        if reason is not None:
            texts = node_texts(reason, name)
            return {"passes": False, "error": error_text(name, raw["name"], texts)}
    for one in case["predicates"]:
        if one.get("error") and not one.get("skipped"):
            return {"passes": False, "error": one["error"]}
    for failed in _given(case, before=False):
        return {"passes": False, "error": error_text(name, raw["name"], failed)}
    return {"passes": True}


def _with_slots(raw: Input, part: str) -> dict[str, Any]:
    """Amounts with the room for pods that the case gives apart."""
    given = raw.get(part) or {}
    slots = {"idle": raw["podSlotsIdle"], "releasing": raw["podSlotsReleasing"]}
    if part not in slots:
        return given
    return given | {"scalars": {**given.get("scalars", {}), "pods": slots[part]}}


def _slots(session: Session, predicates: Predicates, task: int, n: int) -> Any:
    """Room for the pod itself, which the fit of its amounts sees, then for a reservation pod."""
    row = session.columns.index.row["pods"]
    if session.nodes.free[row, n] < 1:
        return Reason(code="pod-slots")
    return predicates.pod_slots(task, n)


def _given(case: Input, *, before: bool) -> Iterator[list[str]]:
    """Texts of filters whose outcome the case gives, those before or after our own."""
    if before:
        check = case["capacityCheck"]
        if not check["schedulable"]:
            yield [
                "node does not have enough capacity. "
                f"Reason: {check['reason']}, Details: {check['message']}"
            ]
        return
    for one in case["predicates"]:
        if not one["fits"] and not one.get("skipped"):
            yield list(one["reasons"])


def error_lines(case: Input, flags: Flags) -> dict[str, Any]:
    return {
        "lines": [
            pre_filter_line(one["name"], one["error"], one.get("reasons") or ())
            for one in case["failures"]
        ]
    }


def hopeless(case: Input, flags: Flags) -> dict[str, Any]:
    status = case["status"]
    found = case["predicate"] in HOPELESS and status["code"] == "UnschedulableAndUnresolvable"
    text = ", ".join(status["reasons"])
    return {"hopeless": found, "error": text} if found else {"hopeless": False}


OPS = {
    "taskOnNode": task_on_node,
    "prePredicateErrorText": error_lines,
    "victimInvariantFailure": hopeless,
}
