"""Claims, slices and classes of devices at one offset, and what pods hold of them.

A pod is counted with the devices of the claims that it owns, that are reserved for it first, or
that it names (reference scheduler-core §4.6, §5.3).
"""

from collections.abc import Iterable, Iterator, Mapping

import msgspec

from kai_es.kube.devices import (
    DEVICES_MAX,
    IMPLICIT_RESOURCE,
    Allocation,
    DeviceClass,
    ResourceClaim,
    ResourceSlice,
    gpus_of,
    is_gpu,
)
from kai_es.kube.objects import Pod
from kai_es.snapshot.effective import TaskState
from kai_es.snapshot.table import Table

ClaimKey = tuple[str, str]
"""Namespace and name of a claim, as pods refer to it."""


class ClaimRow(msgspec.Struct, frozen=True, kw_only=True):
    """One claim."""

    claim: ResourceClaim
    rv: int

    @property
    def name(self) -> ClaimKey:
        """What pods refer to it by."""
        return (self.claim.namespace, self.claim.name)


class SliceRow(msgspec.Struct, frozen=True, kw_only=True):
    """One slice."""

    slice: ResourceSlice
    rv: int

    @property
    def name(self) -> str:
        """Its name."""
        return self.slice.name


class DeviceClassRow(msgspec.Struct, frozen=True, kw_only=True):
    """One class."""

    device_class: DeviceClass
    rv: int

    @property
    def name(self) -> str:
        """What requests refer to it by."""
        return self.device_class.name


def references(pod: Pod) -> tuple[tuple[str, str], ...]:
    """Claims of a pod: name in the pod, name of the claim ("" = not made yet)."""
    made = dict(pod.claim_names)
    return tuple(
        (ref, name if kind == "claim" else made.get(ref, ""))
        for ref, name, kind in pod.spec.resource_claims
    )


class DeviceRows:
    """The rows, and by which pods they are used.

    version:  rises whenever a slice or a class changes.
    promised: uids of pods to which a bind request promises devices.
    served:   whether the cluster offers the API at all.
    """

    def __init__(self) -> None:
        self.claims: Table[ClaimRow] = Table()
        self.slices: Table[SliceRow] = Table()
        self.classes: Table[DeviceClassRow] = Table()
        self.version = 0
        self.promised: dict[str, None] = {}
        self.served = True
        self._holders: dict[str, tuple[str, ...]] = {}
        self._gpus: dict[str, int] = {}
        self._of_pod: dict[str, dict[str, None]] = {}
        self._by_name: dict[ClaimKey, dict[str, None]] = {}
        self._resources: tuple[int, Mapping[str, str]] = (-1, {})

    def __bool__(self) -> bool:
        """Whether there is anything at all."""
        return bool(self.claims.rows or self.slices.rows or self.classes.rows)

    # -- mutators; each returns whom it concerns

    def set_claim(self, claim: ResourceClaim, *, rv: int) -> list[str]:
        """Store a claim; uids of the pods that it may concern."""
        row = ClaimRow(claim=claim, rv=rv)
        old = self.claims.put(claim.uid, row)
        is_contested = len(self.claims.uids(row.name)) > 1  # a higher rv may win the name
        if old is not None and old.claim == claim and not is_contested:
            return []
        return self._concerned(old.claim if old is not None else None, claim)

    def remove_claim(self, uid: str) -> list[str]:
        """Drop a claim; uids of the pods that it may concern."""
        old = self.claims.pop(uid)
        return [] if old is None else self._concerned(old.claim, None)

    def _concerned(self, *versions: ResourceClaim | None) -> list[str]:
        old, new = versions
        pods: dict[str, None] = {}
        for claim, is_there in ((old, False), (new, True)):
            if claim is None:
                continue
            self._note_holder(claim, is_there=is_there)
            uid = _pod_of(claim)
            if uid:
                pods[uid] = None
                claims = self._of_pod.setdefault(uid, {})
                if is_there:
                    claims[claim.uid] = None
                else:
                    claims.pop(claim.uid, None)
                if not claims:
                    del self._of_pod[uid]
            pods.update(self._by_name.get((claim.namespace, claim.name), {}))
        return list(pods)

    def _note_holder(self, claim: ResourceClaim, *, is_there: bool) -> None:
        for device in taken_devices(claim.allocation) if claim.allocation is not None else ():
            others = tuple(uid for uid in self._holders.get(device, ()) if uid != claim.uid)
            holders = (*others, claim.uid) if is_there else others
            if holders:
                self._holders[device] = tuple(sorted(holders))
            else:
                self._holders.pop(device, None)

    def set_slice(self, found: ResourceSlice, *, rv: int) -> list[str]:
        """Store a slice; names of the nodes whose GPUs it counts."""
        old = self.slices.put(found.uid, SliceRow(slice=found, rv=rv))
        if old is not None and old.slice == found:
            return []
        return self._count_gpus(old.slice if old is not None else None, found)

    def remove_slice(self, uid: str) -> list[str]:
        """Drop a slice; names of the nodes whose GPUs it counted."""
        old = self.slices.pop(uid)
        return [] if old is None else self._count_gpus(old.slice, None)

    def _count_gpus(self, old: ResourceSlice | None, new: ResourceSlice | None) -> list[str]:
        self.version += 1
        nodes: dict[str, None] = {}
        for found, sign in ((old, -1), (new, 1)):
            if found is not None and found.node and is_gpu(found.driver):
                count = self._gpus.get(found.node, 0) + sign * len(found.devices)
                self._gpus[found.node] = count
                nodes[found.node] = None
        return list(nodes)

    def set_class(self, found: DeviceClass, *, rv: int) -> None:
        """Store a class."""
        self.classes.put(found.uid, DeviceClassRow(device_class=found, rv=rv))
        self.version += 1

    def remove_class(self, uid: str) -> None:
        """Drop a class. Unknown uids are of no account."""
        if self.classes.pop(uid) is not None:
            self.version += 1

    def link(self, pod: Pod, state: TaskState, *, is_there: bool) -> None:
        """A pod came or went; whoever it names will concern it."""
        self.promised.pop(pod.uid, None)
        if is_there and (state.claims or state.extended is not None):
            self.promised[pod.uid] = None
        for _, name in references(pod):
            if not name:
                continue
            key = (pod.namespace, name)
            pods = self._by_name.setdefault(key, {})
            if is_there:
                pods[pod.uid] = None
            else:
                pods.pop(pod.uid, None)
            if not pods:
                del self._by_name[key]

    # -- reading

    def gpus_of_node(self, node: str) -> int:
        """GPUs that drivers offer on a node."""
        return self._gpus.get(node, 0)

    def holders(self, device: str) -> tuple[str, ...]:
        """Uids of the claims that have a device."""
        return self._holders.get(device, ())

    def claim(self, key: ClaimKey) -> ResourceClaim | None:
        """The claim of a name."""
        row = self.claims.get(key)
        return None if row is None else row.claim

    def claims_of(self, pod: Pod) -> Iterator[ResourceClaim]:
        """Claims that a pod is counted with, each once."""
        seen: dict[str, ResourceClaim] = {}
        for uid in self._of_pod.get(pod.uid, ()):
            seen[uid] = self.claims.rows[uid].claim
        for _, name in references(pod):
            claim = self.claim((pod.namespace, name)) if name else None
            if claim is not None:
                seen[claim.uid] = claim
        return (seen[uid] for uid in sorted(seen))

    def concerns(self, pod: Pod) -> bool:
        """Whether a pod has or wants claims."""
        return bool(pod.spec.resource_claims) or pod.uid in self._of_pod

    def gpus_of_pod(self, pod: Pod) -> dict[str, int]:
        """GPUs that a pod's claims ask for, by device class."""
        found: dict[str, int] = {}
        for claim in self.claims_of(pod):
            if claim.extended:
                continue  # the pod's own requests name its devices
            device_class, count = gpus_of(claim.requests)
            if count:
                found[device_class] = min(found.get(device_class, 0) + count, DEVICES_MAX)
        return dict(sorted(found.items()))

    def extended_claim(self, pod_uid: str) -> ResourceClaim | None:
        """The claim that was made for a pod's extended resources; one that goes away is none."""
        for uid in sorted(self._of_pod.get(pod_uid, ())):
            claim = self.claims.rows[uid].claim
            if claim.extended and not claim.deleted_ms and claim.owner_pod == pod_uid:
                return claim
        return None

    def known(self, pod: Pod, state: TaskState) -> dict[str, Allocation]:
        """What the claims of a pod have got, by the claim's name in the pod.

        What a bind request grants counts before what the claim itself says.
        """
        granted = {one.reference: one.allocation for one in state.claims}
        found: dict[str, Allocation] = {}
        for reference, name in references(pod):
            claim = self.claim((pod.namespace, name)) if name else None
            allocation = granted.get(reference) or (claim.allocation if claim is not None else None)
            if allocation is not None:
                found[reference] = allocation
        return found

    def devices_of(self, pod: Pod, state: TaskState) -> tuple[str, ...]:
        """The GPUs that a pod is known to have by its claims."""
        return gpu_devices(self.known(pod, state).values())

    def class_of_resource(self) -> Mapping[str, str]:
        """Device class by the extended resource that it serves; the younger, then lesser, wins."""
        version, found = self._resources
        if version != self.version:
            classes = [row.device_class for row in self.classes.live()]
            classes.sort(key=lambda one: one.name, reverse=True)
            classes.sort(key=lambda one: one.created_ms)  # the last one wins
            table: dict[str, str] = {}
            for one in classes:
                table[IMPLICIT_RESOURCE + one.name] = one.name
                if one.extended_resource:
                    table[one.extended_resource] = one.name
            found = dict(sorted(table.items()))
            self._resources = (self.version, found)
        return found


def _pod_of(claim: ResourceClaim) -> str:
    """Uid of the pod that a claim belongs to: its owner, else the first that it is reserved for."""
    if claim.owner_pod:
        return claim.owner_pod
    return next((one.uid for one in claim.reserved_for if one.resource == "pods"), "")


def taken_devices(allocation: Allocation) -> tuple[str, ...]:
    """The devices of an allocation that nobody else can have, each once, in order."""
    found = {str(one.id): None for one in allocation.devices if not one.admin}
    return tuple(sorted(found))


def gpu_devices(allocations: Iterable[Allocation]) -> tuple[str, ...]:
    """The GPUs of some allocations that are taken from others, each once, in order."""
    found = {
        str(one.id): None
        for allocation in allocations
        for one in allocation.devices
        if not one.admin and is_gpu(one.driver)
    }
    return tuple(sorted(found))
