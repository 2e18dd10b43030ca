"""Kubernetes' volume controllers and a provisioner, simulated. Pure.

Volumes come to be available; claims of pods' own volumes are made; a volume that is kept for a
claim is bound to it; a claim that names a node, or whose class does not wait, gets a volume made
after a moment, which goes with it. What belongs to a pod goes with the pod.

Reference: k8s.io/kubernetes/pkg/controller/volume/{persistentvolume,ephemeral}.
"""

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from kai_es.kube.parse_volumes import (
    BIND_COMPLETED,
    SELECTED_NODE,
    parse_storage_class,
    parse_volume_claim,
)
from kai_es.kube.volumes import Claim
from kai_es.ports.cluster import Resource
from kai_es.scheduler.solve.volumes import NO_PROVISIONER
from kai_es.simulate.steps import (
    Object,
    Objects,
    Step,
    is_done,
    owned,
    patched,
    pod_owner,
    status_patched,
)

CLAIMS: Final = Resource("PersistentVolumeClaim", "v1", "persistentvolumeclaims")
VOLUMES: Final = Resource("PersistentVolume", "v1", "persistentvolumes")
CLASSES: Final = Resource("StorageClass", "storage.k8s.io/v1", "storageclasses")

PROVISION_MS: Final = 150
"""From a claim that may have a volume to the volume."""
BOUND_BY_CONTROLLER: Final = "pv.kubernetes.io/bound-by-controller"
_PROVISIONED_BY: Final = "pv.kubernetes.io/provisioned-by"


class World(NamedTuple):
    """What the controllers see."""

    claims: Objects
    volumes: Objects
    classes: Objects
    pods: Objects


class Due(NamedTuple):
    """What to do now, and when to look again without a change, 0 = only then."""

    steps: list[Step]
    again_ms: int


def steps(world: World, since: dict[str, int], now_ms: int) -> Due:
    """What is to be done.

    Args:
        world: all there is.
        since: by uid of a claim, when it was first seen to want a volume; kept by the caller.
        now_ms: the time.
    """
    found = [*_new_claims(world), *_free_volumes(world), *_orphans(world)]
    again_ms = 0
    wanting: set[str] = set()
    reserved = {_claim_uid(volume): volume for volume in world.volumes.values()}
    for raw in world.claims.values():
        claim = parse_volume_claim(raw)
        if claim.bound or claim.deleted_ms:
            continue
        volume = reserved.get(claim.uid)
        if volume is not None:
            found += _bound(raw, volume)
        elif _may_have(claim, world):
            wanting.add(claim.uid)
            due_ms = since.setdefault(claim.uid, now_ms) + PROVISION_MS
            if due_ms <= now_ms:
                found.append(Step("create", VOLUMES, _new_volume(raw, claim, world)))
            else:
                again_ms = min(again_ms or due_ms, due_ms)
    for uid in since.keys() - wanting:
        del since[uid]
    return Due(found, again_ms)


def _claim_uid(volume: Mapping[str, object]) -> str:
    spec = volume["spec"]
    assert isinstance(spec, dict), "a volume has a spec"
    return str((spec.get("claimRef") or {}).get("uid") or "")


def _may_have(claim: Claim, world: World) -> bool:
    """Whether a volume is to be made for a claim now."""
    raw = world.classes.get(claim.storage_class or "")
    if raw is None:
        return False
    found = parse_storage_class(raw)
    if found.provisioner in NO_PROVISIONER:
        return False
    return bool(claim.selected_node) or not found.waits


def _bound(claim: Object, volume: Object) -> Iterator[Step]:
    """The volume first, the mark that all is done last."""
    if (volume.get("status") or {}).get("phase") != "Bound":
        yield status_patched(VOLUMES, volume, {"phase": "Bound"})
        return
    if (claim.get("status") or {}).get("phase") != "Bound":
        capacity = volume["spec"].get("capacity")
        modes = volume["spec"].get("accessModes")
        status = {"phase": "Bound", "capacity": capacity, "accessModes": modes}
        yield status_patched(CLAIMS, claim, status)
        return
    notes = {BIND_COMPLETED: "yes", BOUND_BY_CONTROLLER: "yes"}
    name = volume["metadata"]["name"]
    yield patched(CLAIMS, claim, metadata={"annotations": notes}, spec={"volumeName": name})


def _new_volume(raw: Object, claim: Claim, world: World) -> Object:
    storage_class = world.classes[claim.storage_class or ""]
    meta = raw["metadata"]
    notes = {_PROVISIONED_BY: storage_class["provisioner"], BOUND_BY_CONTROLLER: "yes"}
    node = claim.selected_node
    spec = {
        "storageClassName": claim.storage_class,
        "capacity": {"storage": raw["spec"]["resources"]["requests"]["storage"]},
        "accessModes": raw["spec"].get("accessModes") or ["ReadWriteOnce"],
        "persistentVolumeReclaimPolicy": "Delete",
        "volumeMode": claim.volume_mode,
        "claimRef": {
            "apiVersion": "v1",
            "kind": CLAIMS.kind,
            "namespace": meta["namespace"],
            "name": meta["name"],
            "uid": meta["uid"],
        },
        "csi": {"driver": storage_class["provisioner"], "volumeHandle": f"pvc-{meta['uid']}"},
    }
    name = {
        "name": f"pvc-{meta['uid']}",
        "annotations": notes | ({SELECTED_NODE: node} if node else {}),
    }
    return {
        "apiVersion": VOLUMES.api_version,
        "kind": VOLUMES.kind,
        "metadata": name,
        "spec": spec,
    }


def _free_volumes(world: World) -> Iterator[Step]:
    """Volumes that come to be available, and those that go with their claim."""
    alive = {claim["metadata"]["uid"] for claim in world.claims.values()}
    for volume in world.volumes.values():
        phase = (volume.get("status") or {}).get("phase")
        owner = _claim_uid(volume)
        if not owner and phase != "Available":
            yield status_patched(VOLUMES, volume, {"phase": "Available"})
        elif owner and owner not in alive and phase == "Bound":
            if volume["spec"].get("persistentVolumeReclaimPolicy") == "Delete":
                yield Step("delete", VOLUMES, volume)
            else:
                yield status_patched(VOLUMES, volume, {"phase": "Released"})


def _new_claims(world: World) -> Iterator[Step]:
    """Claims of pods' own volumes."""
    for pod in world.pods.values():
        meta = pod["metadata"]
        if is_done(pod):
            continue
        for volume in pod["spec"].get("volumes") or ():
            template = (volume.get("ephemeral") or {}).get("volumeClaimTemplate")
            name = f"{meta['name']}-{volume['name']}"
            if template and f"{meta['namespace']}/{name}" not in world.claims:
                given = template.get("metadata") or {}
                metadata = {
                    **{key: given[key] for key in ("labels", "annotations") if given.get(key)},
                    "namespace": meta["namespace"],
                    "name": name,
                    "ownerReferences": owned(pod),
                }
                body = {
                    "apiVersion": CLAIMS.api_version,
                    "kind": CLAIMS.kind,
                    "metadata": metadata,
                    "spec": template["spec"],
                }
                yield Step("create", CLAIMS, body)


def _orphans(world: World) -> Iterator[Step]:
    """Claims whose pod is gone; the shell looks whether it really is."""
    uids = {pod["metadata"]["uid"] for pod in world.pods.values()}
    for claim in world.claims.values():
        owner = pod_owner(claim)
        if owner is not None and owner.uid not in uids:
            yield Step("delete", CLAIMS, claim, unless=(owner,))
