"""What a simulated controller wants done: one write each, decided on what it last saw."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from kai_es.ports.cluster import Resource

Object: TypeAlias = dict[str, Any]
Objects: TypeAlias = Mapping[str, Object]
"""By `namespace/name` (`mirror.key_of`)."""


@dataclass(frozen=True, slots=True)
class PodRef:
    """One incarnation of a pod."""

    namespace: str
    name: str
    uid: str


@dataclass(frozen=True, slots=True)
class Step:
    """One write.

    target:     the object as seen, or the new one; names, uid and version are taken from it.
    changes:    merge patch.
    unless:     pods that must be gone for it; the live ones are looked at before.
    """

    verb: Literal["create", "patch", "delete"]
    resource: Resource
    target: Object
    changes: Object = field(default_factory=dict)
    subresource: str = ""
    unless: tuple[PodRef, ...] = ()


def patched(resource: Resource, target: Object, **changes: Any) -> Step:
    """A change of an object."""
    return Step("patch", resource, target, changes)


def status_patched(
    resource: Resource, target: Object, status: Object, *, unless: tuple[PodRef, ...] = ()
) -> Step:
    """A change of an object's status."""
    return Step("patch", resource, target, {"status": status}, "status", unless)


def is_done(pod: Mapping[str, Any]) -> bool:
    """Whether no container of a pod runs or ever will."""
    if (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed"):
        return True
    is_deleted = "deletionTimestamp" in pod["metadata"]
    return is_deleted and not (pod.get("spec") or {}).get("nodeName")


def pod_owner(obj: Mapping[str, Any]) -> PodRef | None:
    """The pod that an object goes with, None = none."""
    meta = obj["metadata"]
    for one in meta.get("ownerReferences") or ():
        if one.get("kind") == "Pod" and one.get("controller"):
            return PodRef(meta["namespace"], one["name"], one["uid"])
    return None


def owned(pod: Mapping[str, Any]) -> list[Object]:
    """Owner references of what is made for a pod."""
    meta = pod["metadata"]
    reference = {"apiVersion": "v1", "kind": "Pod", "name": meta["name"], "uid": meta["uid"]}
    return [{**reference, "controller": True, "blockOwnerDeletion": True}]
