"""What a binding writes into claims on devices, and what an undone one takes back. Pure.

In: grants of a request, claims as they are. Out: merge patches, a new claim, or an `ObstacleError`.
Every write goes to the claim that was looked at (uid and resourceVersion); whoever loses a race
looks again. All of it can be done twice.

A claim that gets its devices here also gets Kubernetes' finalizer, as from kube-scheduler, else
nobody takes the devices back when its last user ends (the reference leaves it out).

Reference: pkg/binder/plugins/k8s-plugins/dynamicresources (binder.md §9.1, race 24);
k8s.io/kubernetes/pkg/scheduler/framework/plugins/dynamicresources (bindClaim, deleteClaim).
"""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from kai_es.binder.obstacles import CLAIM, ObstacleError
from kai_es.events.decisions import ClaimGrant, ExtendedGrant
from kai_es.kube.devices import AllocatedDevice, Allocation, DeviceRequest
from kai_es.kube.labels import CLAIMED_BY, EXTENDED_RESOURCE_CLAIM
from kai_es.kube.parse_devices import parse_claim
from kai_es.ports.cluster import Resource

Object = dict[str, Any]

RESOURCE_CLAIMS: Final = Resource("ResourceClaim", "resource.k8s.io/v1", "resourceclaims")
FINALIZER: Final = "resource.kubernetes.io/delete-protection"
CONSUMERS_MAX: Final = 256
"""Entries of `reservedFor`, a limit of the API."""
NAME_MAX: Final = 63
"""Of the claim that is made; the API itself would allow more."""
_LETTERS: Final = "bcdfghjklmnpqrstvwxz2456789"


# -- claims that the pod names


def named(pod: Mapping[str, Any], reference: str) -> str:
    """Name of the claim behind a reference of a raw pod.

    Raises:
        ObstacleError: the pod has no such reference, or its claim is not made yet.
    """
    what = f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"
    for one in (pod.get("spec") or {}).get("resourceClaims") or ():
        if one["name"] == reference:
            break
    else:
        raise ObstacleError(CLAIM, f"claim {reference} from bind request not found in pod {what}")
    if name := one.get("resourceClaimName"):
        return str(name)
    for made in (pod.get("status") or {}).get("resourceClaimStatuses") or ():
        if made["name"] == reference and made.get("resourceClaimName"):
            return str(made["resourceClaimName"])
    text = f"no resource claim name found for pod {what} and claim reference {reference}"
    raise ObstacleError(CLAIM, text)


def marked(claim: Mapping[str, Any], *, uid: str, request_id: str) -> Object | None:
    """The patch that a claim needs before its status, None = none.

    One that gets devices is protected. One that a pod has from an earlier request says which it has
    it from now, so that a delayed write that would take it back is refused.
    """
    meta = claim["metadata"]
    finalizers, notes = meta.get("finalizers") or [], meta.get("annotations") or {}
    if _allocation(claim) is None:
        if FINALIZER in finalizers:
            return None
        return {"metadata": {"finalizers": [*finalizers, FINALIZER]}}
    if notes.get(CLAIMED_BY) == request_id or not _is_user(claim, uid):
        return None
    return {"metadata": {"annotations": {CLAIMED_BY: request_id}}}


def granted(claim: Mapping[str, Any], grant: ClaimGrant, *, pod: str, uid: str) -> Object | None:
    """The patch of a claim's status that gives its devices to a pod; None = the pod has them.

    Raises:
        ObstacleError: it is not the claim that was decided on, has other devices by now, goes
            away, or has as many users as it can have.
    """
    meta = claim["metadata"]
    what = f"claim {meta['namespace']}/{meta['name']}"
    if meta["uid"] != grant.claim_uid:
        raise ObstacleError(CLAIM, f"{what} was made anew")
    return _reserved(claim, grant.allocation, what=what, pod=pod, uid=uid)


def _reserved(
    claim: Mapping[str, Any], allocation: Allocation, *, what: str, pod: str, uid: str
) -> Object | None:
    meta, users = claim["metadata"], _users(claim)
    known = _allocation(claim)
    if known is not None and devices_of(known) != devices_of(allocation):
        raise ObstacleError(CLAIM, f"{what} has got other devices")
    is_user = _is_user(claim, uid)
    if is_user and known is not None:
        return None
    if meta.get("deletionTimestamp"):
        raise ObstacleError(CLAIM, f"{what} is being deleted")
    if not is_user and len(users) >= CONSUMERS_MAX:
        raise ObstacleError(CLAIM, f"{what} has reached its maximum number of consumers")
    status: Object = {}
    if known is None:
        status["allocation"] = allocation_json(allocation)
    if not is_user:
        status["reservedFor"] = [*users, {"resource": "pods", "name": pod, "uid": uid}]
    return {"status": status}


def released(claim: Mapping[str, Any], uid: str) -> Object | None:
    """The patch of a claim's status that takes a pod from its users, None = it is none of them.

    The last one to go gives the devices back.
    """
    users = _users(claim)
    others = [one for one in users if one.get("uid") != uid]
    if len(others) == len(users):
        return None
    if others:
        return {"status": {"reservedFor": others}}
    return {"status": {"reservedFor": None, "allocation": None, "devices": None}}


def _users(claim: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    found: Sequence[Mapping[str, Any]] = (claim.get("status") or {}).get("reservedFor") or ()
    return found


def _is_user(claim: Mapping[str, Any], uid: str) -> bool:
    return any(one.get("uid") == uid for one in _users(claim))


def _allocation(claim: Mapping[str, Any]) -> Allocation | None:
    if not (claim.get("status") or {}).get("allocation"):
        return None
    return parse_claim(claim).allocation


def devices_of(allocation: Allocation) -> frozenset[AllocatedDevice]:
    """What two allocations of the same devices have in common."""
    return frozenset(allocation.devices)


def allocation_json(allocation: Allocation) -> Object:
    """An allocation in the API's form (apis.md §4.4)."""
    devices: Object = {"results": [_result(one) for one in allocation.devices]}
    if allocation.config:
        devices["config"] = allocation.config
    found: Object = {"devices": devices}
    if allocation.node_selector is not None:
        found["nodeSelector"] = allocation.node_selector
    return found


def _result(one: AllocatedDevice) -> Object:
    found: Object = {
        "request": one.request,
        "driver": one.driver,
        "pool": one.pool,
        "device": one.device,
    }
    if one.admin:
        found["adminAccess"] = True
    return found


# -- the claim for a pod's extended resources


def extended_name(pod: str, request_id: str) -> str:
    """Name of the claim that a request makes; the same one each time, so it is made once."""
    digest = hashlib.sha256(request_id.encode()).digest()
    suffix = "".join(_LETTERS[byte % len(_LETTERS)] for byte in digest[:5])
    base = f"{pod}-extended-resources"[: NAME_MAX - len(suffix) - 1].rstrip("-.")
    return f"{base}-{suffix}"


def extended_claim(
    grant: ExtendedGrant, *, name: str, namespace: str, pod: str, uid: str
) -> Object:
    """The claim for a pod's extended resources, still without devices."""
    owner = {
        "apiVersion": "v1",
        "kind": "Pod",
        "name": pod,
        "uid": uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }
    return {
        "apiVersion": RESOURCE_CLAIMS.api_version,
        "kind": RESOURCE_CLAIMS.kind,
        "metadata": {
            "name": name,
            "namespace": namespace,
            "annotations": {EXTENDED_RESOURCE_CLAIM: "true"},
            "finalizers": [FINALIZER],
            "ownerReferences": [owner],
        },
        "spec": {"devices": {"requests": [_request(one) for one in grant.requests]}},
    }


def _request(one: DeviceRequest) -> Object:
    exactly = {"deviceClassName": one.device_class, "allocationMode": one.mode}
    if one.mode == "ExactCount":
        return {"name": one.name, "exactly": {**exactly, "count": one.count}}
    return {"name": one.name, "exactly": exactly}


def extended_of(claims: Iterable[Object], uid: str) -> list[Object]:
    """Claims that were made for the extended resources of a pod, those that go away too."""
    return [claim for claim in claims if _is_extended_of(claim, uid)]


def _is_extended_of(claim: Mapping[str, Any], uid: str) -> bool:
    meta = claim["metadata"]
    if (meta.get("annotations") or {}).get(EXTENDED_RESOURCE_CLAIM) != "true":
        return False
    owners = meta.get("ownerReferences") or ()
    return any(one.get("controller") and one.get("uid") == uid for one in owners)


def extended_granted(
    claim: Mapping[str, Any], grant: ExtendedGrant, *, pod: str, uid: str
) -> Object | None:
    """The patch of the claim's status that gives its devices to its pod; None = it has them.

    Raises:
        ObstacleError: it is for something else, has other devices, or goes away.
    """
    meta = claim["metadata"]
    what = f"claim {meta['namespace']}/{meta['name']}"
    asked = sorted(grant.requests, key=lambda one: one.name)
    if sorted(parse_claim(claim).requests, key=lambda one: one.name) != asked:
        raise ObstacleError(CLAIM, f"{what} asks for other devices")
    return _reserved(claim, grant.allocation, what=what, pod=pod, uid=uid)


def unprotected(claim: Mapping[str, Any]) -> Object | None:
    """The patch without which a deleted claim would stay, None = none is needed."""
    finalizers = claim["metadata"].get("finalizers") or []
    if FINALIZER not in finalizers:
        return None
    return {"metadata": {"finalizers": [one for one in finalizers if one != FINALIZER] or None}}


def told(pod: Mapping[str, Any], grant: ExtendedGrant, name: str) -> Object | None:
    """The patch of a pod's status that tells the kubelet of the claim, None = it says so."""
    wanted = {
        "resourceClaimName": name,
        "requestMappings": [
            {
                "containerName": one.container,
                "resourceName": one.resource,
                "requestName": one.request,
            }
            for one in grant.mappings
        ],
    }
    if (pod.get("status") or {}).get("extendedResourceClaimStatus") == wanted:
        return None
    return {"status": {"extendedResourceClaimStatus": wanted}}


def untold(pod: Mapping[str, Any]) -> Object | None:
    """The patch that takes it back, None = there is nothing to take back."""
    if not (pod.get("status") or {}).get("extendedResourceClaimStatus"):
        return None
    return {"status": {"extendedResourceClaimStatus": None}}
