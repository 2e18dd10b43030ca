"""Raw storage objects to those of `kube.volumes`."""

from typing import Final

import msgspec

from kai_es.kube.affinity import LabelSelector, NodeTerms
from kai_es.kube.quantity import capacity_floor, request_ceil
from kai_es.kube.resources import Quantity
from kai_es.kube.shape import Labels, Metadata, shaped, uid_of
from kai_es.kube.times import time_ms
from kai_es.kube.volumes import Claim, ConfigMap, CsiDriver, StorageCapacity, StorageClass, Volume

_CLASS_ANNOTATION: Final = "volume.beta.kubernetes.io/storage-class"  # older form of the field
BIND_COMPLETED: Final = "pv.kubernetes.io/bind-completed"
SELECTED_NODE: Final = "volume.kubernetes.io/selected-node"
_WAITS: Final = "WaitForFirstConsumer"
_STORAGE: Final = "storage"


class _Camel(msgspec.Struct, rename="camel", gc=False):
    """Field names as in the API."""


class RawSizes(_Camel):
    """`resources` of a claim."""

    requests: dict[str, Quantity] | None = None


class RawClaimSpec(_Camel):
    """`spec` of a claim."""

    storage_class_name: str | None = None
    volume_name: str | None = None
    volume_mode: str | None = None
    access_modes: list[str] | None = None
    resources: RawSizes | None = None
    selector: LabelSelector | None = None


class RawPhase(_Camel):
    """`status` of a claim or a volume."""

    phase: str | None = None


class RawClaim(_Camel):
    """A claim."""

    metadata: Metadata
    spec: RawClaimSpec | None = None
    status: RawPhase | None = None


class RawClaimRef(_Camel):
    """`claimRef` of a volume."""

    namespace: str | None = None
    name: str | None = None
    uid: str | None = None


class RawVolumeNodes(_Camel):
    """`nodeAffinity` of a volume."""

    required: NodeTerms | None = None


class RawVolumeSpec(_Camel):
    """`spec` of a volume."""

    capacity: dict[str, Quantity] | None = None
    access_modes: list[str] | None = None
    claim_ref: RawClaimRef | None = None
    storage_class_name: str | None = None
    volume_mode: str | None = None
    node_affinity: RawVolumeNodes | None = None


class RawVolume(_Camel):
    """A volume."""

    metadata: Metadata
    spec: RawVolumeSpec | None = None
    status: RawPhase | None = None


class RawLabelValues(_Camel):
    """One `matchLabelExpressions` entry."""

    key: str
    values: list[str]


class RawTopologyTerm(_Camel):
    """An entry of `allowedTopologies`."""

    match_label_expressions: list[RawLabelValues] | None = None


class RawClass(_Camel):
    """A storage class."""

    metadata: Metadata
    provisioner: str = ""
    volume_binding_mode: str | None = None
    allowed_topologies: list[RawTopologyTerm] | None = None


class RawDriverSpec(_Camel):
    """`spec` of a driver."""

    storage_capacity: bool | None = None


class RawDriver(_Camel):
    """A driver."""

    metadata: Metadata
    spec: RawDriverSpec | None = None


class RawCapacity(_Camel):
    """A storage capacity."""

    metadata: Metadata
    storage_class_name: str
    capacity: Quantity | None = None
    maximum_volume_size: Quantity | None = None
    node_topology: LabelSelector | None = None


class RawNamed(_Camel):
    """Something of which only the name is read."""

    metadata: Metadata


def parse_volume_claim(raw: object) -> Claim:
    """A claim.

    Raises:
        InvalidObjectError: a field that is read has a wrong type or value.
    """
    shape = shaped("PersistentVolumeClaim", raw, RawClaim)
    meta, spec = shape.metadata, shape.spec or RawClaimSpec()
    what = f"PersistentVolumeClaim {meta.namespace}/{meta.name}"
    annotations: Labels = meta.annotations or {}
    sizes = (spec.resources.requests if spec.resources else None) or {}
    return Claim(
        uid=uid_of("PersistentVolumeClaim", meta),
        namespace=meta.namespace or "",
        name=meta.name,
        deleted_ms=_deleted_ms(what, meta),
        phase=(shape.status.phase if shape.status else None) or "",
        storage_class=annotations.get(_CLASS_ANNOTATION, spec.storage_class_name),
        volume=spec.volume_name or "",
        bound=BIND_COMPLETED in annotations,
        selected_node=annotations.get(SELECTED_NODE, ""),
        size=request_ceil(
            sizes.get(_STORAGE, 0), scale=1, what=what, field="spec.resources.requests.storage"
        ),
        access_modes=tuple(spec.access_modes or ()),
        volume_mode=spec.volume_mode or "Filesystem",
        selector=msgspec.to_builtins(spec.selector) if spec.selector else None,
        owners=tuple((o.kind, o.name, o.uid) for o in meta.owner_references or ()),
    )


def parse_volume(raw: object) -> Volume:
    """A volume.

    Raises:
        InvalidObjectError: a field that is read has a wrong type or value.
    """
    shape = shaped("PersistentVolume", raw, RawVolume)
    meta, spec = shape.metadata, shape.spec or RawVolumeSpec()
    what = f"PersistentVolume {meta.name}"
    ref = spec.claim_ref
    required = spec.node_affinity.required if spec.node_affinity else None
    annotations: Labels = meta.annotations or {}
    return Volume(
        uid=uid_of("PersistentVolume", meta),
        name=meta.name,
        deleted_ms=_deleted_ms(what, meta),
        labels=meta.labels or {},
        phase=(shape.status.phase if shape.status else None) or "",
        storage_class=annotations.get(_CLASS_ANNOTATION, spec.storage_class_name or ""),
        size=capacity_floor(
            (spec.capacity or {}).get(_STORAGE, 0),
            scale=1,
            what=what,
            field="spec.capacity.storage",
        ),
        access_modes=tuple(spec.access_modes or ()),
        volume_mode=spec.volume_mode or "Filesystem",
        claim=(ref.namespace or "", ref.name or "", ref.uid or "") if ref else None,
        node_terms=msgspec.to_builtins(required.node_selector_terms) if required else None,
    )


def parse_storage_class(raw: object) -> StorageClass:
    """A storage class.

    Raises:
        InvalidObjectError: a field that is read has a wrong type or value.
    """
    shape = shaped("StorageClass", raw, RawClass)
    terms = shape.allowed_topologies
    return StorageClass(
        uid=uid_of("StorageClass", shape.metadata),
        name=shape.metadata.name,
        deleted_ms=_deleted_ms(f"StorageClass {shape.metadata.name}", shape.metadata),
        provisioner=shape.provisioner,
        waits=shape.volume_binding_mode == _WAITS,
        topologies=msgspec.to_builtins(terms) if terms else None,
    )


def parse_csi_driver(raw: object) -> CsiDriver:
    """A driver.

    Raises:
        InvalidObjectError: a field that is read has a wrong type or value.
    """
    shape = shaped("CSIDriver", raw, RawDriver)
    return CsiDriver(
        uid=uid_of("CSIDriver", shape.metadata),
        name=shape.metadata.name,
        deleted_ms=_deleted_ms(f"CSIDriver {shape.metadata.name}", shape.metadata),
        tells_capacity=bool(shape.spec and shape.spec.storage_capacity),
    )


def parse_storage_capacity(raw: object) -> StorageCapacity:
    """A storage capacity.

    Raises:
        InvalidObjectError: a field that is read has a wrong type or value.
    """
    shape = shaped("CSIStorageCapacity", raw, RawCapacity)
    meta = shape.metadata
    what = f"CSIStorageCapacity {meta.namespace}/{meta.name}"

    def size(value: Quantity | None, field: str) -> int | None:
        return None if value is None else capacity_floor(value, scale=1, what=what, field=field)

    return StorageCapacity(
        uid=uid_of("CSIStorageCapacity", meta),
        namespace=meta.namespace or "",
        name=meta.name,
        deleted_ms=_deleted_ms(what, meta),
        storage_class=shape.storage_class_name,
        size=size(shape.capacity, "capacity"),
        largest=size(shape.maximum_volume_size, "maximumVolumeSize"),
        nodes=None if shape.node_topology is None else msgspec.to_builtins(shape.node_topology),
    )


def parse_config_map(raw: object) -> ConfigMap:
    """The name of a config map.

    Raises:
        InvalidObjectError: a field that is read has a wrong type or value.
    """
    meta = shaped("ConfigMap", raw, RawNamed).metadata
    return ConfigMap(
        uid=uid_of("ConfigMap", meta),
        namespace=meta.namespace or "",
        name=meta.name,
        deleted_ms=_deleted_ms(f"ConfigMap {meta.namespace}/{meta.name}", meta),
    )


def _deleted_ms(what: str, metadata: Metadata) -> int:
    return time_ms(metadata.deletion_timestamp, what=what, field="metadata.deletionTimestamp")
