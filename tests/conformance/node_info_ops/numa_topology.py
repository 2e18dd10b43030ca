"""Cases of NodeResourceTopology objects."""

from typing import Any

from kai_es.kube.parse_topologies import parse_numa_node, policy_and_scope, zone_number
from kai_es.kube.topologies import NumaNode, NumaZone
from kai_es.scheduler.flags import Flags
from kai_es.scheduler.numa.alignment import zones_of
from kai_es.scheduler.numa.records import zone_name
from tests.conformance.diff import first_difference
from tests.conformance.node_info_ops import Input
from tests.conformance.node_info_ops.zones import in_our_units, our_name, shown_zones


def _policy_and_scope(case: Input, flags: Flags) -> dict[str, Any]:
    del flags
    attributes = [(a["name"], a["value"]) for a in case.get("attributes") or ()]
    policy, scope = policy_and_scope(attributes, case.get("topologyPolicies") or ())
    return {"policy": policy, "scope": scope}


def _build(case: Input, flags: Flags) -> dict[str, Any]:
    del flags
    raw = case["nodeResourceTopology"]
    if raw is None:
        return {"topology": None}
    metadata = {"name": "node", "uid": "uid", **raw.get("metadata", {})}
    node = _known(parse_numa_node({**raw, "metadata": metadata}), set(case["knownResources"]))
    zones = zones_of(node)
    if zones is None:
        return {"topology": None}
    return {
        "topology": {
            "policy": zones.policy,
            "scope": zones.scope,
            "alignedResources": sorted(zones.aware),
            "zones": shown_zones(zones, zones.available),
        }
    }


def _known(node: NumaNode, names: set[str]) -> NumaNode:
    """Without resources that no node of the cluster has: nobody can ask for them."""
    known = {our_name(name) for name in names}
    return NumaNode(
        uid=node.uid,
        name=node.name,
        policy=node.policy,
        scope=node.scope,
        zones=tuple(
            NumaZone(
                name=zone.name,
                allocatable={k: v for k, v in zone.allocatable.items() if k in known},
                available={k: v for k, v in zone.available.items() if k in known},
            )
            for zone in node.zones
        ),
    )


def _zone_number(case: Input, flags: Flags) -> dict[str, Any]:
    del flags
    return {"number": zone_number(case["zone"])}


def _zone_index(case: Input, flags: Flags) -> dict[str, Any]:
    del flags
    names = case["zones"]
    return {"index": names.index(case["zone"]) if case["zone"] in names else None}


def _zone_id(case: Input, flags: Flags) -> dict[str, Any]:
    del flags
    return {"zone": zone_name(case["zones"], case["index"])}


OPS = {
    "policyAndScope": _policy_and_scope,
    "buildTopology": _build,
    "zoneNumber": _zone_number,
    "zoneIndex": _zone_index,
    "zoneId": _zone_id,
}


def compare(case: Input, got: Any) -> str | None:
    want = in_our_units(case["expect"])
    topology = want.get("topology")
    if topology:
        topology["alignedResources"] = sorted(map(our_name, topology["alignedResources"]))
    return first_difference(got, want)
