"""Raw ResourceClaim, ResourceSlice and DeviceClass to `kube.devices`."""

from typing import Any, Final

import msgspec

from kai_es.kube.affinity import NodeTerms
from kai_es.kube.devices import (
    AllocatedDevice,
    Allocation,
    AttributeValue,
    Consumer,
    Device,
    DeviceClass,
    DeviceConstraint,
    DeviceRequest,
    DeviceTaint,
    DeviceToleration,
    ResourceClaim,
    ResourceSlice,
    Version,
)
from kai_es.kube.labels import EXTENDED_RESOURCE_CLAIM
from kai_es.kube.resources import Quantity
from kai_es.kube.shape import Int64, Metadata, shaped, uid_of
from kai_es.kube.times import time_ms

CLAIM: Final = "ResourceClaim"
SLICE: Final = "ResourceSlice"
CLASS: Final = "DeviceClass"

EXACT_COUNT: Final = "ExactCount"
_POD: Final = "Pod"


class _Camel(msgspec.Struct, rename="camel", gc=False):
    """Field names as in the API."""


# -- requests


class RawCel(_Camel):
    """`cel` of a selector."""

    expression: str = ""


class RawSelector(_Camel):
    """An entry of `selectors`."""

    cel: RawCel | None = None


class RawToleration(_Camel):
    """An entry of a request's `tolerations`."""

    key: str | None = None
    operator: str | None = None
    value: str | None = None
    effect: str | None = None


class RawExactly(_Camel):
    """`exactly` of a request; entries of `firstAvailable` have a name besides."""

    name: str = ""
    device_class_name: str = ""
    allocation_mode: str | None = None
    count: Int64 | None = None
    admin_access: bool | None = None
    selectors: list[RawSelector] | None = None
    tolerations: list[RawToleration] | None = None


class RawRequest(_Camel):
    """An entry of `spec.devices.requests`."""

    name: str = ""
    exactly: RawExactly | None = None
    first_available: list[RawExactly] | None = None


class RawConstraint(_Camel):
    """An entry of `spec.devices.constraints`."""

    requests: list[str] | None = None
    match_attribute: str | None = None
    distinct_attribute: str | None = None


class RawDevices(_Camel):
    """`spec.devices` of a claim."""

    requests: list[RawRequest] | None = None
    constraints: list[RawConstraint] | None = None
    config: list[Any] | None = None


class RawClaimSpec(_Camel):
    """`spec` of a claim."""

    devices: RawDevices | None = None


class RawResult(_Camel):
    """An entry of `status.allocation.devices.results`."""

    request: str = ""
    driver: str = ""
    pool: str = ""
    device: str = ""
    admin_access: bool | None = None


class RawResults(_Camel):
    """`status.allocation.devices`."""

    results: list[RawResult] | None = None
    config: list[Any] | None = None


class RawAllocation(_Camel):
    """`status.allocation` of a claim; a bind request has the same."""

    devices: RawResults | None = None
    node_selector: NodeTerms | None = None


class RawConsumer(_Camel):
    """An entry of `status.reservedFor`."""

    resource: str = ""
    name: str = ""
    uid: str = ""


class RawClaimStatus(_Camel):
    """`status` of a claim."""

    allocation: RawAllocation | None = None
    reserved_for: list[RawConsumer] | None = None


class RawClaim(_Camel):
    """A claim."""

    metadata: Metadata
    spec: RawClaimSpec | None = None
    status: RawClaimStatus | None = None


# -- slices and classes


class RawPool(_Camel):
    """`spec.pool` of a slice."""

    name: str = ""
    generation: Int64 | None = None
    resource_slice_count: Int64 | None = None


class RawAttribute(_Camel):
    """A value of a device's attribute: one of these."""

    text: str | None = msgspec.field(default=None, name="string")
    number: Int64 | None = msgspec.field(default=None, name="int")
    flag: bool | None = msgspec.field(default=None, name="bool")
    version: str | None = None


class RawCapacity(_Camel):
    """A value of a device's capacity."""

    value: Quantity = 0


class RawTaint(_Camel):
    """An entry of a device's `taints`."""

    key: str
    effect: str
    value: str | None = None


class RawDevice(_Camel):
    """An entry of `spec.devices` of a slice."""

    name: str
    attributes: dict[str, RawAttribute] | None = None
    capacity: dict[str, RawCapacity] | None = None
    taints: list[RawTaint] | None = None
    consumes_counters: list[Any] | None = None
    node_name: str | None = None
    all_nodes: bool | None = None
    node_selector: NodeTerms | None = None


class RawSliceSpec(_Camel):
    """`spec` of a slice."""

    driver: str = ""
    pool: RawPool | None = None
    node_name: str | None = None
    all_nodes: bool | None = None
    node_selector: NodeTerms | None = None
    devices: list[RawDevice] | None = None


class RawSlice(_Camel):
    """A slice."""

    metadata: Metadata
    spec: RawSliceSpec | None = None


class RawClassSpec(_Camel):
    """`spec` of a class."""

    selectors: list[RawSelector] | None = None
    config: list[Any] | None = None
    extended_resource_name: str | None = None


class RawClass(_Camel):
    """A class."""

    metadata: Metadata
    spec: RawClassSpec | None = None


def parse_claim(raw: object) -> ResourceClaim:
    """A claim on devices.

    Raises:
        InvalidObjectError: a field that is read has a wrong type or value.
    """
    shape = shaped(CLAIM, raw, RawClaim)
    metadata, status = shape.metadata, shape.status or RawClaimStatus()
    devices = (shape.spec or RawClaimSpec()).devices or RawDevices()
    owners = metadata.owner_references or ()
    annotations = metadata.annotations or {}
    allocation = status.allocation
    return ResourceClaim(
        uid=uid_of(CLAIM, metadata),
        namespace=metadata.namespace or "",
        name=metadata.name,
        deleted_ms=_deleted_ms(CLAIM, metadata),
        labels=metadata.labels or {},
        owner_pod=next((owner.uid for owner in owners if owner.kind == _POD), ""),
        extended=annotations.get(EXTENDED_RESOURCE_CLAIM) == "true",
        requests=tuple(map(_request, devices.requests or ())),
        constraints=tuple(
            DeviceConstraint(
                requests=tuple(one.requests or ()),
                match=one.match_attribute or "",
                distinct=one.distinct_attribute or "",
            )
            for one in devices.constraints or ()
        ),
        config=devices.config or None,
        allocation=None if allocation is None else _allocation(allocation),
        reserved_for=tuple(
            Consumer(one.resource, one.name, one.uid) for one in status.reserved_for or ()
        ),
    )


def parse_allocation(raw: object) -> Allocation:
    """An allocation as bind requests hold it.

    Raises:
        InvalidObjectError: a field that is read has a wrong type or value.
    """
    return _allocation(shaped("AllocationResult", raw, RawAllocation))


def _allocation(raw: RawAllocation) -> Allocation:
    devices = raw.devices or RawResults()
    selector = raw.node_selector
    return Allocation(
        devices=tuple(
            AllocatedDevice(one.request, one.driver, one.pool, one.device, bool(one.admin_access))
            for one in devices.results or ()
        ),
        node_selector=None if selector is None else msgspec.to_builtins(selector),
        config=devices.config or None,
    )


def _request(raw: RawRequest) -> DeviceRequest:
    if raw.exactly is not None:
        return _exactly(raw.exactly, raw.name)
    alternatives = tuple(_exactly(one, one.name) for one in raw.first_available or ())
    return DeviceRequest(name=raw.name, alternatives=alternatives)


def _exactly(raw: RawExactly, name: str) -> DeviceRequest:
    return DeviceRequest(
        name=name,
        device_class=raw.device_class_name,
        mode=raw.allocation_mode or EXACT_COUNT,
        count=raw.count if raw.count is not None and raw.count > 0 else 1,
        selectors=_selectors(raw.selectors),
        admin=bool(raw.admin_access),
        tolerations=tuple(
            DeviceToleration(
                key=one.key or "",
                operator=one.operator or "Equal",
                value=one.value or "",
                effect=one.effect or "",
            )
            for one in raw.tolerations or ()
        ),
    )


def _selectors(raw: list[RawSelector] | None) -> tuple[str, ...]:
    return tuple(one.cel.expression for one in raw or () if one.cel is not None)


def parse_slice(raw: object) -> ResourceSlice:
    """Devices on offer.

    Raises:
        InvalidObjectError: a field that is read has a wrong type or value.
    """
    shape = shaped(SLICE, raw, RawSlice)
    spec = shape.spec or RawSliceSpec()
    pool = spec.pool or RawPool()
    return ResourceSlice(
        uid=uid_of(SLICE, shape.metadata),
        name=shape.metadata.name,
        deleted_ms=_deleted_ms(SLICE, shape.metadata),
        driver=spec.driver,
        pool=pool.name,
        generation=pool.generation or 0,
        n_slices=1 if pool.resource_slice_count is None else pool.resource_slice_count,
        node=spec.node_name or "",
        all_nodes=bool(spec.all_nodes),
        node_selector=_terms(spec.node_selector),
        devices=tuple(_device(one, spec.driver) for one in spec.devices or ()),
    )


def _device(raw: RawDevice, driver: str) -> Device:
    return Device(
        name=raw.name,
        attributes={
            _qualified(name, driver): value
            for name, one in sorted((raw.attributes or {}).items())
            if (value := _value(one)) is not None
        },
        capacity={
            _qualified(name, driver): str(one.value)
            for name, one in sorted((raw.capacity or {}).items())
        },
        taints=tuple(
            DeviceTaint(key=one.key, value=one.value or "", effect=one.effect)
            for one in raw.taints or ()
        ),
        split=bool(raw.consumes_counters),
        node=raw.node_name or "",
        all_nodes=bool(raw.all_nodes),
        node_selector=_terms(raw.node_selector),
    )


def _qualified(name: str, driver: str) -> str:
    return name if "/" in name else f"{driver}/{name}"


def _value(raw: RawAttribute) -> AttributeValue | None:
    for value in (raw.text, raw.flag, raw.number):
        if value is not None:
            return value
    return None if raw.version is None else Version(raw.version)


def _terms(raw: NodeTerms | None) -> Any:
    return None if raw is None else msgspec.to_builtins(raw)


def parse_class(raw: object) -> DeviceClass:
    """A class of devices.

    Raises:
        InvalidObjectError: a field that is read has a wrong type or value.
    """
    shape = shaped(CLASS, raw, RawClass)
    metadata, spec = shape.metadata, shape.spec or RawClassSpec()
    return DeviceClass(
        uid=uid_of(CLASS, metadata),
        name=metadata.name,
        created_ms=time_ms(
            metadata.creation_timestamp,
            what=f"{CLASS} {metadata.name}",
            field="metadata.creationTimestamp",
        ),
        deleted_ms=_deleted_ms(CLASS, metadata),
        extended_resource=spec.extended_resource_name or "",
        selectors=_selectors(spec.selectors),
        config=spec.config or None,
    )


def _deleted_ms(kind: str, metadata: Metadata) -> int:
    return time_ms(
        metadata.deletion_timestamp,
        what=f"{kind} {metadata.name}",
        field="metadata.deletionTimestamp",
    )
