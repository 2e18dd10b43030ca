"""Cases of config maps that a pod cannot start without."""

from typing import Any

from kai_es.kube.parse import parse
from kai_es.scheduler.flags import Flags
from kai_es.scheduler.plugins.predicates import Predicates
from kai_es.scheduler.reasons.render import general_text
from tests.conformance.node_info_ops import Input
from tests.conformance.node_info_ops.objects import pod_of
from tests.conformance.node_info_ops.stage import Stage, node_of_state

NODE = node_of_state({"allocatable": {}, "name": "node"})


def check_needed(case: Input, flags: Flags) -> dict[str, Any]:
    return {"required": bool(pod_of(case["pod"]).spec.config_maps)}


def predicate(case: Input, flags: Flags) -> dict[str, Any]:
    pod = pod_of(case["pod"])
    stage = Stage([NODE], pods=[pod], flags=flags)
    for one in case["configMaps"]:
        found = parse("ConfigMap", {"metadata": {"uid": one["name"], **one}})
        stage.snapshot.set_object(found, rv=1)
    reason = Predicates(stage.session).config_maps(stage.tasks[0])
    return verdict(reason, f"{pod.namespace}/{pod.name}")


def verdict(reason: Any, pod: str) -> dict[str, Any]:
    """Of a first check; no eviction can cure what it refuses."""
    if reason is None:
        return {"passes": True}
    text = general_text(reason, pod)
    return {"passes": False, "code": "UnschedulableAndUnresolvable", "reasons": [text]}


OPS = {"configMapCheckNeeded": check_needed, "configMapPredicate": predicate}
