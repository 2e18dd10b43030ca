"""Dynamic resource allocation (`resource.k8s.io/v1`): claims, slices and classes of devices.

A claim asks for devices of a class, slices say which devices drivers offer, and an allocation
names the devices that a claim has got.

Reference: Kubernetes API resource.k8s.io/v1; pkg/common/resources/dra.go (plugins §10).
"""

from typing import Any, Final, NamedTuple, TypeAlias

import msgspec

DEVICES_MAX: Final = 2**63 - 1
"""As many devices as one request may ask for; sums stop there too."""


class DeviceId(NamedTuple):
    """One device of the cluster."""

    driver: str
    pool: str
    device: str

    def __str__(self) -> str:
        return "/".join(self)


class Version(msgspec.Struct, frozen=True, array_like=True):
    """A value of an attribute that is a semantic version."""

    text: str


AttributeValue: TypeAlias = str | bool | int | Version


class DeviceToleration(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A taint of a device that a request puts up with."""

    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""


class DeviceTaint(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Why a device is not for everybody."""

    key: str
    value: str = ""
    effect: str


class DeviceRequest(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Devices of one kind that a claim asks for.

    mode:         ExactCount | All; others are asked for by nobody yet.
    selectors:    CEL expressions, all must hold.
    admin:        for watching over devices, whoever uses them.
    alternatives: `firstAvailable`: the first that can be had counts; then the rest is unset.
    """

    name: str = ""
    device_class: str = ""
    mode: str = "ExactCount"
    count: int = 1
    selectors: tuple[str, ...] = ()
    admin: bool = False
    tolerations: tuple[DeviceToleration, ...] = ()
    alternatives: tuple["DeviceRequest", ...] = ()


class DeviceConstraint(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Devices of these requests (() = all) agree, or differ, in an attribute."""

    requests: tuple[str, ...] = ()
    match: str = ""
    distinct: str = ""


class AllocatedDevice(msgspec.Struct, frozen=True, array_like=True):
    """A device that a request of a claim has got."""

    request: str
    driver: str
    pool: str
    device: str
    admin: bool = False

    @property
    def id(self) -> DeviceId:
        """Which one."""
        return DeviceId(self.driver, self.pool, self.device)


class Allocation(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a claim has got.

    node_selector: where its devices can be used, in the API's form; None = everywhere.
    config:        parameters for drivers in the API's form, handed on as they are.
    """

    devices: tuple[AllocatedDevice, ...] = ()
    node_selector: Any = None
    config: Any = None


class Consumer(msgspec.Struct, frozen=True, array_like=True):
    """An entry of `status.reservedFor`."""

    resource: str
    name: str
    uid: str


class ResourceClaim(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="ResourceClaim"
):
    """A claim on devices.

    owner_pod:  uid of the first owner that is a pod, "" = none; pods own claims of templates.
    extended:   made for a pod's extended resources, which its requests name already.
    config:     parameters for drivers in the API's form.
    allocation: None = none yet.
    """

    uid: str
    namespace: str
    name: str
    deleted_ms: int = 0
    labels: dict[str, str] = {}
    owner_pod: str = ""
    extended: bool = False
    requests: tuple[DeviceRequest, ...] = ()
    constraints: tuple[DeviceConstraint, ...] = ()
    config: Any = None
    allocation: Allocation | None = None
    reserved_for: tuple[Consumer, ...] = ()


class Device(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One device on offer.

    attributes: by qualified name `<domain>/<name>`; the driver is the domain of plain names.
    capacity:   likewise, quantities as written.
    split:      it is part of a device that is cut up on demand; such devices are not given out.
    node, all_nodes, node_selector: where it is, if the slice leaves that to its devices.
    """

    name: str
    attributes: dict[str, AttributeValue] = {}
    capacity: dict[str, str] = {}
    taints: tuple[DeviceTaint, ...] = ()
    split: bool = False
    node: str = ""
    all_nodes: bool = False
    node_selector: Any = None


class ResourceSlice(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="ResourceSlice"
):
    """Devices that a driver offers, all or a part of a pool.

    generation, n_slices: only slices of a pool's highest generation count, and only all of them.
    node, all_nodes, node_selector: where its devices are; with none of them each device says.
    """

    uid: str
    name: str
    deleted_ms: int = 0
    driver: str = ""
    pool: str = ""
    generation: int = 0
    n_slices: int = 1
    node: str = ""
    all_nodes: bool = False
    node_selector: Any = None
    devices: tuple[Device, ...] = ()


class DeviceClass(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="DeviceClass"):
    """What a name of devices means.

    extended_resource: name of the extended resource that it serves, "" = only the implicit one.
    """

    uid: str
    name: str
    created_ms: int = 0
    deleted_ms: int = 0
    extended_resource: str = ""
    selectors: tuple[str, ...] = ()
    config: Any = None


IMPLICIT_RESOURCE: Final = "deviceclass.resource.kubernetes.io/"
"""Prefix under which every class serves an extended resource."""


def is_gpu(name: str) -> bool:
    """Whether a device class or a driver stands for GPUs."""
    return "gpu" in name.lower()


def gpus_of(requests: tuple[DeviceRequest, ...]) -> tuple[str, int]:
    """Class of the first request for GPUs, and the GPUs of all of them.

    A request for all devices counts as one, alternatives count as none. The sum stops at
    `DEVICES_MAX`. Reference: pkg/scheduler/api/resource_info/dra_resource_utils.go.
    """
    device_class, total = "", 0
    for request in requests:
        if not is_gpu(request.device_class):
            continue
        device_class = device_class or request.device_class
        if request.mode == "ExactCount":
            total += request.count if request.count > 0 else 1
        elif request.mode == "All":
            total += 1
    return device_class, min(total, DEVICES_MAX)


def reserved(claim: ResourceClaim, name: str, uid: str) -> ResourceClaim:
    """The claim with a pod among its users."""
    if any(one.uid == uid for one in claim.reserved_for):
        return claim
    users = (*claim.reserved_for, Consumer("pods", name, uid))
    return msgspec.structs.replace(claim, reserved_for=users)


def unreserved(claim: ResourceClaim, uid: str) -> ResourceClaim:
    """The claim without a pod among its users."""
    users = tuple(one for one in claim.reserved_for if one.uid != uid)
    return msgspec.structs.replace(claim, reserved_for=users)
