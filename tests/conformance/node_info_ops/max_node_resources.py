"""Cases of the largest amount on any node against what a pod asks for."""

from typing import Any

from kai_es.scheduler.flags import Flags
from kai_es.scheduler.solve.largest_node import LargestNode
from tests.conformance.diff import first_difference
from tests.conformance.node_info_ops import Input
from tests.conformance.node_info_ops.config_maps import verdict
from tests.conformance.node_info_ops.objects import claim_of, pod_of
from tests.conformance.node_info_ops.stage import Stage, node_of_state


def run(case: Input, flags: Flags) -> dict[str, Any]:
    nodes = [node_of_state({"allocatable": raw}, name) for name, raw in case["nodes"].items()]
    pod = pod_of(case["pod"])
    claims = [claim_of(raw) for raw in case["resourceClaims"]]
    stage = Stage(nodes, pods=[pod], claims=claims, flags=flags)
    return verdict(LargestNode(stage.session).check(stage.tasks[0]), f"{pod.namespace}/{pod.name}")


def compare(case: Input, got: Any) -> str | None:
    want = dict(case["expect"])
    fragments = want.pop("reasonFragments", ())
    missing = [text for text in fragments if text not in got["reasons"][0]]
    return f"{missing} is not in {got['reasons'][0]!r}" if missing else first_difference(got, want)


OPS = {"maxNodeResources": run}
