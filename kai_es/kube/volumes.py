"""Storage as kai-es knows it: claims, volumes, classes, drivers, capacities.

Kubernetes' rules of volume binding read them (`scheduler.volumes`). Sizes are bytes; a claim's is
rounded up, what is offered is rounded down. Times and optional fields as in `kube.objects`.

Reference: Kubernetes' api/core/v1 and api/storage/v1; pkg/scheduler/api/storage*_info.
"""

from typing import Any

import msgspec


class Claim(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="PersistentVolumeClaim"
):
    """A claim of a volume.

    storage_class: None = not given, "" = expressly none.
    volume:        name of the volume it is or wants to be bound to.
    bound:         the control plane has finished binding it.
    selected_node: node for which a volume is being made.
    selector:      labels that a volume must have, in the API's form.
    owners:        (kind, name, uid) of every owner.
    """

    uid: str
    namespace: str
    name: str
    deleted_ms: int = 0
    phase: str = ""
    storage_class: str | None = None
    volume: str = ""
    bound: bool = False
    selected_node: str = ""
    size: int = 0
    access_modes: tuple[str, ...] = ()
    volume_mode: str = "Filesystem"
    selector: Any = None
    owners: tuple[tuple[str, str, str], ...] = ()


class Volume(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="PersistentVolume"):
    """A volume.

    claim:      (namespace, name, uid) of the claim it is reserved for or bound to, None = free.
    node_terms: node selector terms of which one must hold, in the API's form, None = any node.
    """

    uid: str
    name: str
    deleted_ms: int = 0
    labels: dict[str, str] = {}
    phase: str = ""
    storage_class: str = ""
    size: int = 0
    access_modes: tuple[str, ...] = ()
    volume_mode: str = "Filesystem"
    claim: tuple[str, str, str] | None = None
    node_terms: Any = None


class StorageClass(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="StorageClass"
):
    """How volumes of a class are made.

    waits:      they are made and bound when a pod has a node (`WaitForFirstConsumer`).
    topologies: terms of which one must hold for the node, in the API's form.
    """

    uid: str
    name: str
    deleted_ms: int = 0
    provisioner: str = ""
    waits: bool = False
    topologies: Any = None


class CsiDriver(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="CSIDriver"):
    """A storage driver; `tells_capacity`: its `CSIStorageCapacity` objects count."""

    uid: str
    name: str
    deleted_ms: int = 0
    tells_capacity: bool = False


class StorageCapacity(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="CSIStorageCapacity"
):
    """How much storage of a class the nodes of a part of the cluster can have.

    size, largest: bytes, None = not told. `largest` is that of one volume.
    nodes: label selector in the API's form, None = not given.
    """

    uid: str
    namespace: str
    name: str
    deleted_ms: int = 0
    storage_class: str
    size: int | None = None
    largest: int | None = None
    nodes: Any = None


class ConfigMap(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="ConfigMap"):
    """A config map exists; what is in it stays in the cluster."""

    uid: str
    namespace: str
    name: str
    deleted_ms: int = 0
