"""The kinds that are watched. Another kind is another row."""

from collections.abc import Callable
from typing import Any, Final, NamedTuple

from kai_es.kube.parse import KINDS
from kai_es.ports.cluster import NODES, PODS, Resource

SHARD_CONFIG: Final = "ShardConfig"

Resolve = Callable[[dict[str, Any]], dict[str, Any]]
"""Raw SchedulingShard -> raw ShardConfig (`metadata`, and `settings` with every default resolved,
or `problem`: what is wrong with them)."""


class Source(NamedTuple):
    """One kind and where it comes from.

    required:   without it there is no cycle: 404 is a missing installation, not an empty list.
    heartbeats: objects change in nothing but noise every few minutes, and nobody needs their last
                resourceVersion; such versions are not published.
    resolve:    makes the published object of the watched one, None = it is published as it is.
    """

    kind: str
    resource: Resource
    required: bool = False
    heartbeats: bool = False
    resolve: Resolve | None = None


def _resource(kind: str, plural: str, *, names_only: bool = False) -> Resource:
    return Resource(kind, KINDS[kind].api_version, plural, names_only)


SOURCES: Final = (
    Source("Node", NODES, required=True, heartbeats=True),
    Source("Pod", PODS, required=True),
    Source("PodGroup", _resource("PodGroup", "podgroups"), required=True),
    Source("Queue", _resource("Queue", "queues"), required=True),
    Source("PriorityClass", _resource("PriorityClass", "priorityclasses")),
    Source("ResourceClaim", _resource("ResourceClaim", "resourceclaims")),
    Source("ResourceSlice", _resource("ResourceSlice", "resourceslices")),
    Source("DeviceClass", _resource("DeviceClass", "deviceclasses")),
    Source("Namespace", _resource("Namespace", "namespaces", names_only=True)),
    Source("Topology", _resource("Topology", "topologies")),
    Source(
        "NodeResourceTopology",
        _resource("NodeResourceTopology", "noderesourcetopologies"),
        heartbeats=True,
    ),
    Source("ConfigMap", _resource("ConfigMap", "configmaps", names_only=True), heartbeats=True),
    Source("PersistentVolumeClaim", _resource("PersistentVolumeClaim", "persistentvolumeclaims")),
    Source("PersistentVolume", _resource("PersistentVolume", "persistentvolumes")),
    Source("StorageClass", _resource("StorageClass", "storageclasses")),
    Source("CSIDriver", _resource("CSIDriver", "csidrivers")),
    Source("CSIStorageCapacity", _resource("CSIStorageCapacity", "csistoragecapacities")),
)
"""What is watched in every installation."""


def shards(resolve: Resolve) -> Source:
    """Configuration from SchedulingShard objects; without it, `Informer` is given a file's."""
    resource = Resource("SchedulingShard", KINDS[SHARD_CONFIG].api_version, "schedulingshards")
    return Source(SHARD_CONFIG, resource, resolve=resolve)
