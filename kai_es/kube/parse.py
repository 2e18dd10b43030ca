"""Raw objects to `ClusterObject`, by kind. A new kind is a row of `KINDS`."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final, NamedTuple

import msgspec

from kai_es.kube.errors import InvalidObjectError
from kai_es.kube.objects import ClusterObject, Namespace, PriorityClass, ShardConfig
from kai_es.kube.parse_devices import CLAIM, CLASS, SLICE, parse_claim, parse_class, parse_slice
from kai_es.kube.parse_group import parse_group
from kai_es.kube.parse_node import parse_node
from kai_es.kube.parse_pod import parse_pod
from kai_es.kube.parse_queue import parse_queue
from kai_es.kube.parse_topologies import parse_numa_node, parse_topology
from kai_es.kube.parse_volumes import (
    parse_config_map,
    parse_csi_driver,
    parse_storage_capacity,
    parse_storage_class,
    parse_volume,
    parse_volume_claim,
)
from kai_es.kube.shape import Int32, Metadata, label_of, shaped, uid_of
from kai_es.kube.times import time_ms

RESOURCE_API: Final = "resource.k8s.io/v1"


class Kind(NamedTuple):
    """A kind that kai-es reads: the API version that `parse` understands."""

    api_version: str
    parse: Callable[[object], ClusterObject]


class RawPriorityClass(msgspec.Struct):
    """A priority class."""

    metadata: Metadata
    value: Int32
    global_default: bool | None = msgspec.field(default=None, name="globalDefault")


class RawNamespace(msgspec.Struct):
    """A namespace."""

    metadata: Metadata


class RawShardConfig(msgspec.Struct):
    """A shard's configuration as published: `settings` resolved, or the `problem` with them."""

    metadata: Metadata
    settings: dict[str, Any] | None = None
    problem: str = ""


def parse(kind: str, raw: object) -> ClusterObject:
    """An object of a kind.

    Raises:
        InvalidObjectError: an unknown kind or API version, or a field that is read has a wrong
            type or value.
    """
    row = KINDS.get(kind)
    if row is None:
        raise InvalidObjectError(
            label_of(kind, raw), f"kind is {kind!r}, want one of {', '.join(KINDS)}"
        )
    version = raw.get("apiVersion") if isinstance(raw, dict) else None
    if version is not None and version != row.api_version:
        raise InvalidObjectError(
            label_of(kind, raw), f"apiVersion is {str(version)[:80]!r}, want {row.api_version}"
        )
    return row.parse(raw)


def parse_priority_class(raw: object) -> PriorityClass:
    """A priority class.

    Raises:
        InvalidObjectError: a field that is read has a wrong type or value.
    """
    shape = shaped("PriorityClass", raw, RawPriorityClass)
    return PriorityClass(
        uid=uid_of("PriorityClass", shape.metadata),
        name=shape.metadata.name,
        value=shape.value,
        global_default=bool(shape.global_default),
        deleted_ms=_deleted_ms("PriorityClass", shape.metadata),
    )


def parse_namespace(raw: object) -> Namespace:
    """A namespace.

    Raises:
        InvalidObjectError: a field that is read has a wrong type or value.
    """
    metadata = shaped("Namespace", raw, RawNamespace).metadata
    return Namespace(
        uid=uid_of("Namespace", metadata),
        name=metadata.name,
        deleted_ms=_deleted_ms("Namespace", metadata),
        labels=metadata.labels or {},
    )


def parse_shard_config(raw: object) -> ShardConfig:
    """A shard's configuration.

    Raises:
        InvalidObjectError: a field that is read has a wrong type or value, or whoever resolved
            the defaults found a problem.
    """
    shape = shaped("ShardConfig", raw, RawShardConfig)
    what = f"ShardConfig {shape.metadata.name}"
    if shape.settings is None:
        raise InvalidObjectError(what, shape.problem or "settings is missing, want a map")
    try:
        msgspec.msgpack.encode(shape.settings)
    except OverflowError as exc:
        raise InvalidObjectError(what, "settings has a number over 2^64, want a smaller") from exc
    return ShardConfig(
        uid=uid_of("ShardConfig", shape.metadata),
        name=shape.metadata.name,
        settings=shape.settings,
        deleted_ms=_deleted_ms("ShardConfig", shape.metadata),
    )


def _deleted_ms(kind: str, metadata: Metadata) -> int:
    return time_ms(
        metadata.deletion_timestamp,
        what=f"{kind} {metadata.name}",
        field="metadata.deletionTimestamp",
    )


KINDS: Final[Mapping[str, Kind]] = MappingProxyType(
    {
        "Node": Kind("v1", parse_node),
        "Pod": Kind("v1", parse_pod),
        "PodGroup": Kind("scheduling.run.ai/v2alpha2", parse_group),
        "Queue": Kind("scheduling.run.ai/v2", parse_queue),
        "PriorityClass": Kind("scheduling.k8s.io/v1", parse_priority_class),
        "ShardConfig": Kind("kai.scheduler/v1", parse_shard_config),
        CLAIM: Kind(RESOURCE_API, parse_claim),
        SLICE: Kind(RESOURCE_API, parse_slice),
        CLASS: Kind(RESOURCE_API, parse_class),
        "Namespace": Kind("v1", parse_namespace),
        "Topology": Kind("kai.scheduler/v1alpha1", parse_topology),
        "NodeResourceTopology": Kind("topology.node.k8s.io/v1alpha2", parse_numa_node),
        "ConfigMap": Kind("v1", parse_config_map),
        "PersistentVolumeClaim": Kind("v1", parse_volume_claim),
        "PersistentVolume": Kind("v1", parse_volume),
        "StorageClass": Kind("storage.k8s.io/v1", parse_storage_class),
        "CSIDriver": Kind("storage.k8s.io/v1", parse_csi_driver),
        "CSIStorageCapacity": Kind("storage.k8s.io/v1", parse_storage_capacity),
    }
)
