"""Topologies as kai-es knows them: of the cluster, and of the memory inside a node.

Reference: pkg/apis/kai/v1alpha1/topology_types.go (plugins §6.1);
k8stopologyawareschedwg/noderesourcetopology-api v1alpha2 (plugins §15.1).
"""

import msgspec


class TopologyLevel(msgspec.Struct, frozen=True, array_like=True):
    """One level: the node label whose values tell its domains apart, and another name for it."""

    label: str
    alias: str = ""


class Topology(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="Topology"):
    """A tree of domains of nodes; `levels` from the widest to the narrowest."""

    uid: str
    name: str
    deleted_ms: int = 0
    levels: tuple[TopologyLevel, ...] = ()


class NumaZone(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One zone. Amounts in the units of `PodSpec.requests`."""

    name: str
    allocatable: dict[str, int] = {}
    available: dict[str, int] = {}


class NumaNode(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="NodeResourceTopology"
):
    """The zones of the node of the same name.

    policy: none | best-effort | restricted | single-numa-node.
    scope:  container | pod.
    zones:  those of type Node, by the number at the end of their names.
    gpus:   name under which the node reports GPUs, "" = it does not.
    """

    uid: str
    name: str
    deleted_ms: int = 0
    policy: str = "none"
    scope: str = "container"
    zones: tuple[NumaZone, ...] = ()
    gpus: str = ""
