"""Kubernetes' controller of claims on devices, simulated. Pure.

Claims are made of templates; users that are gone or have ended go from the list of users; the last
one to go gives the devices back; what was made for a pod goes with it.

Reference: k8s.io/kubernetes/pkg/controller/resourceclaim.
"""

import hashlib
from collections.abc import Iterator
from typing import Final, NamedTuple

from kai_es.ports.cluster import PODS, Resource
from kai_es.simulate.steps import (
    Object,
    Objects,
    PodRef,
    Step,
    is_done,
    owned,
    patched,
    pod_owner,
    status_patched,
)

CLAIMS: Final = Resource("ResourceClaim", "resource.k8s.io/v1", "resourceclaims")
TEMPLATES: Final = Resource("ResourceClaimTemplate", "resource.k8s.io/v1", "resourceclaimtemplates")
FINALIZER: Final = "resource.kubernetes.io/delete-protection"
OF_POD: Final = "resource.kubernetes.io/pod-claim-name"
"""Annotation of a claim of a template: its name in the pod."""


class World(NamedTuple):
    """What the controller sees."""

    claims: Objects
    templates: Objects
    pods: Objects


def steps(world: World) -> list[Step]:
    """What is to be done."""
    made = {
        (owner.uid, claim["metadata"].get("annotations", {}).get(OF_POD)): claim
        for claim in world.claims.values()
        if (owner := pod_owner(claim)) is not None
    }
    found: list[Step] = []
    for pod in world.pods.values():
        found += _of_templates(pod, world, made)
    for claim in world.claims.values():
        found += _kept_right(claim, world)
    return found


def _of_templates(pod: Object, world: World, made: dict[tuple[str, str], Object]) -> Iterator[Step]:
    """Claims of a pod's templates, and their names in its status."""
    meta = pod["metadata"]
    if is_done(pod) or "deletionTimestamp" in meta:
        return
    known = {one["name"]: one for one in pod.get("status", {}).get("resourceClaimStatuses") or ()}
    names = dict(known)
    for reference in pod["spec"].get("resourceClaims") or ():
        template = reference.get("resourceClaimTemplateName")
        if not template or reference["name"] in known:
            continue
        claim = made.get((meta["uid"], reference["name"]))
        if claim is not None:
            name = claim["metadata"]["name"]
            names[reference["name"]] = {"name": reference["name"], "resourceClaimName": name}
        elif found := world.templates.get(f"{meta['namespace']}/{template}"):
            yield Step("create", CLAIMS, _of_template(pod, reference["name"], found))
    if len(names) != len(known):
        yield status_patched(PODS, pod, {"resourceClaimStatuses": list(names.values())})


def _of_template(pod: Object, reference: str, template: Object) -> Object:
    given = template["spec"].get("metadata") or {}
    meta = pod["metadata"]
    digest = hashlib.sha256(f"{meta['uid']}/{reference}".encode()).hexdigest()
    return {
        "apiVersion": CLAIMS.api_version,
        "kind": CLAIMS.kind,
        "metadata": {
            "name": f"{meta['name']}-{reference}"[:57] + f"-{digest[:5]}",  # made once
            "namespace": meta["namespace"],
            "labels": given.get("labels") or {},
            "annotations": {**(given.get("annotations") or {}), OF_POD: reference},
            "ownerReferences": owned(pod),
        },
        "spec": template["spec"]["spec"],
    }


def _kept_right(claim: Object, world: World) -> Iterator[Step]:
    """Users, devices, finalizer and end of a claim; one write at a time."""
    meta, status = claim["metadata"], claim.get("status") or {}
    users = status.get("reservedFor") or []
    pods = {pod["metadata"]["uid"]: pod for pod in world.pods.values()}
    gone = [one for one in users if one["uid"] not in pods or is_done(pods[one["uid"]])]
    protected = FINALIZER in (meta.get("finalizers") or ())
    if gone:
        left = [one for one in users if one not in gone]
        changes: Object = {"reservedFor": left or None}
        if not left and protected:
            changes |= {"allocation": None, "devices": None}
        unless = tuple(PodRef(meta["namespace"], one["name"], one["uid"]) for one in gone)
        yield status_patched(CLAIMS, claim, changes, unless=unless)
        return
    if users:
        return
    if protected and "deletionTimestamp" in meta:
        if status.get("allocation"):
            yield status_patched(CLAIMS, claim, {"allocation": None, "devices": None})
        else:
            others = [one for one in meta["finalizers"] if one != FINALIZER]
            yield patched(CLAIMS, claim, metadata={"finalizers": others or None})
        return
    owner = pod_owner(claim)
    if owner is not None and "deletionTimestamp" not in meta:
        pod = pods.get(owner.uid)
        if pod is None or is_done(pod):
            yield Step("delete", CLAIMS, claim, unless=(owner,))
