"""Raw Topology and NodeResourceTopology to those of `kube.topologies`."""

import re
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from kai_es.kube.labels import GPU
from kai_es.kube.resources import Quantity, offered
from kai_es.kube.shape import Metadata, NonEmpty, shaped, uid_of
from kai_es.kube.times import time_ms
from kai_es.kube.topologies import NumaNode, NumaZone, Topology, TopologyLevel

POLICIES: Final = ("none", "best-effort", "restricted", "single-numa-node")
SCOPES: Final = ("container", "pod")

_POLICY: Final = "topologyManagerPolicy"
_SCOPE: Final = "topologyManagerScope"
_ONE_WORD: Final[Mapping[str, tuple[str, str]]] = {
    "SingleNUMANode": ("single-numa-node", "container"),
    "SingleNUMANodeContainerLevel": ("single-numa-node", "container"),
    "SingleNUMANodePodLevel": ("single-numa-node", "pod"),
    "Restricted": ("restricted", "container"),
    "RestrictedContainerLevel": ("restricted", "container"),
    "RestrictedPodLevel": ("restricted", "pod"),
    "BestEffort": ("best-effort", "container"),
    "BestEffortContainerLevel": ("best-effort", "container"),
    "BestEffortPodLevel": ("best-effort", "pod"),
}
"""The older form: policy and scope in one word; any other word is policy `none`."""
_NUMBER: Final = re.compile(r"[0-9]{1,18}$")


class _Camel(msgspec.Struct, rename="camel", gc=False):
    """Field names as in the API."""


class RawLevel(_Camel):
    """An entry of `spec.levels`."""

    node_label: NonEmpty
    alias: str | None = None


class RawTopologySpec(_Camel):
    """`spec` of a topology."""

    levels: list[RawLevel]


class RawTopology(_Camel):
    """A topology."""

    metadata: Metadata
    spec: RawTopologySpec


class RawZoneResource(_Camel):
    """An entry of a zone's `resources`."""

    name: str
    allocatable: Quantity = 0
    available: Quantity = 0


class RawZone(_Camel):
    """A zone."""

    name: str
    type: str = ""
    resources: list[RawZoneResource] | None = None


class RawAttribute(_Camel):
    """An attribute of the node."""

    name: str
    value: str = ""


class RawNumaNode(_Camel):
    """A NodeResourceTopology."""

    metadata: Metadata
    zones: list[RawZone] | None = None
    attributes: list[RawAttribute] | None = None
    topology_policies: list[str] | None = None


def parse_topology(raw: object) -> Topology:
    """A topology.

    Raises:
        InvalidObjectError: a field that is read has a wrong type or value.
    """
    shape = shaped("Topology", raw, RawTopology)
    return Topology(
        uid=uid_of("Topology", shape.metadata),
        name=shape.metadata.name,
        deleted_ms=_deleted_ms("Topology", shape.metadata),
        levels=tuple(
            TopologyLevel(level.node_label, level.alias or "") for level in shape.spec.levels
        ),
    )


def parse_numa_node(raw: object) -> NumaNode:
    """The zones of a node.

    Raises:
        InvalidObjectError: a field that is read has a wrong type or value.
    """
    shape = shaped("NodeResourceTopology", raw, RawNumaNode)
    attributes = [(a.name, a.value) for a in shape.attributes or ()]
    policy, scope = policy_and_scope(attributes, shape.topology_policies or ())
    zones = [zone for zone in shape.zones or () if zone.type == "Node"]
    zones.sort(key=_zone_order)
    what = f"NodeResourceTopology {shape.metadata.name}"
    names = {r.name for zone in zones for r in zone.resources or ()}
    return NumaNode(
        uid=uid_of("NodeResourceTopology", shape.metadata),
        name=shape.metadata.name,
        deleted_ms=_deleted_ms("NodeResourceTopology", shape.metadata),
        policy=policy,
        scope=scope,
        zones=tuple(_zone(zone, what) for zone in zones),
        gpus=min((name for name in names if name.endswith(GPU)), default=""),
    )


def policy_and_scope(
    attributes: Sequence[tuple[str, str]], policies: Sequence[str]
) -> tuple[str, str]:
    """What the kubelet's Topology Manager does; attributes before the older list."""
    found = dict(attributes)
    if _POLICY in found:
        policy, scope = found[_POLICY], found.get(_SCOPE, "")
        return (
            policy if policy in POLICIES else POLICIES[0],
            scope if scope in SCOPES else SCOPES[0],
        )
    return _ONE_WORD.get(policies[0] if policies else "", (POLICIES[0], SCOPES[0]))


def zone_number(name: str) -> int | None:
    """The number at the end of a zone's name."""
    match = _NUMBER.search(name)
    return int(match[0]) if match else None


def _zone_order(zone: RawZone) -> tuple[bool, int, str]:
    number = zone_number(zone.name)
    return number is None, number or 0, zone.name


def _zone(zone: RawZone, what: str) -> NumaZone:
    resources = zone.resources or ()
    field = f"zones.{zone.name}"
    return NumaZone(
        name=zone.name,
        allocatable=offered({r.name: r.allocatable for r in resources}, what=what, field=field),
        available=offered({r.name: r.available for r in resources}, what=what, field=field),
    )


def _deleted_ms(kind: str, metadata: Metadata) -> int:
    return time_ms(
        metadata.deletion_timestamp,
        what=f"{kind} {metadata.name}",
        field="metadata.deletionTimestamp",
    )
