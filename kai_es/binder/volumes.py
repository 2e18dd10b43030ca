"""What binding a pod's claims of volumes takes: Kubernetes' volume binding at one look. Pure.

In: the pod, its node, claims, classes and volumes as they are. Out: what to write now, and which
claims are still to be waited for; or an `ObstacleError`. Look again until nothing is left: a look
that finds its own writes done writes nothing.

Which volume a claim gets is found here and not in the decision, as in the reference: the decision
knows only that the node has one. What was written stays when the binding fails: a volume made for a
node holds its pod there, until the provisioner takes the annotation back.

Reference: Kubernetes' volumebinding plugin and volume/persistentvolume (binder.md §9.1).
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from kai_es.binder.obstacles import VOLUME, ObstacleError
from kai_es.kube.objects import Pod
from kai_es.kube.parse_volumes import (
    SELECTED_NODE,
    parse_storage_class,
    parse_volume,
    parse_volume_claim,
)
from kai_es.kube.volumes import Claim, StorageClass, Volume
from kai_es.ports.cluster import Resource
from kai_es.scheduler.solve.node_affinity import RequiredNodes
from kai_es.scheduler.solve.volumes import (
    NO_PROVISIONER,
    NO_VOLUME,
    NOTHING_TO_BIND,
    WRONG_NODE,
    can_hold,
    is_free,
    problem_of,
)

Object = dict[str, Any]

CLAIMS: Final = Resource("PersistentVolumeClaim", "v1", "persistentvolumeclaims")
VOLUMES: Final = Resource("PersistentVolume", "v1", "persistentvolumes")
CLASSES: Final = Resource("StorageClass", "storage.k8s.io/v1", "storageclasses")
BOUND_BY_CONTROLLER: Final = "pv.kubernetes.io/bound-by-controller"


class Place(NamedTuple):
    """The node that a pod goes to."""

    name: str
    labels: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Sought:
    """Claims of a pod that have no volume yet, smallest first, and those that have one.

    waiting: parsed and raw.
    bound:   parsed; their volumes must be reachable from the node.
    """

    waiting: tuple[tuple[Claim, Object], ...] = ()
    bound: tuple[Claim, ...] = ()

    @property
    def unsettled(self) -> tuple[Claim, ...]:
        """Those for which nothing was begun: they need to know all volumes."""
        return tuple(one for one, _ in self.waiting if not one.volume and not one.selected_node)


@dataclass(frozen=True, slots=True)
class Look:
    """What one look found.

    keep:     volumes with the claim they are kept for, to be replaced.
    provide:  claims for which a volume is to be made on the node: merge patch by raw claim.
    pending:  names of the claims that are not bound yet, those of above too.
    """

    keep: tuple[Object, ...] = ()
    provide: tuple[tuple[Object, Object], ...] = ()
    pending: tuple[str, ...] = ()


@dataclass(slots=True)
class Asked:
    """What was written for this binding: claims by name, to see that it was not taken back."""

    provided: set[str] = field(default_factory=set)
    kept: set[str] = field(default_factory=set)


def sought(
    pod: Pod, claims: Mapping[str, Object | None], classes: Mapping[str, Object | None]
) -> Sought:
    """The claims of a pod.

    Args:
        pod: as it is.
        claims: raw, by name; None = there is none.
        classes: raw, by name, as far as the claims name them.

    Raises:
        ObstacleError: a claim that the pod cannot be bound with.
    """
    waiting: list[tuple[Claim, Object]] = []
    bound: list[Claim] = []
    for name in pod.spec.claims:
        raw = claims[name]
        claim = None if raw is None else parse_volume_claim(raw)
        problem = problem_of(pod, name, claim)
        if problem or claim is None or raw is None:
            raise ObstacleError(VOLUME, problem)
        if claim.bound and claim.volume:
            bound.append(claim)
        elif _waits(claim, classes):
            waiting.append((claim, raw))
        else:
            raise ObstacleError(VOLUME, "pod has unbound immediate PersistentVolumeClaims")
    waiting.sort(key=lambda one: (one[0].size, one[0].name))
    return Sought(tuple(waiting), tuple(bound))


def _class_of(claim: Claim, classes: Mapping[str, Object | None]) -> StorageClass | None:
    raw = classes.get(claim.storage_class) if claim.storage_class else None
    return None if raw is None else parse_storage_class(raw)


def _waits(claim: Claim, classes: Mapping[str, Object | None]) -> bool:
    found = _class_of(claim, classes)
    return found is not None and found.waits


def look(
    needs: Sought,
    place: Place,
    volumes: Iterable[Object],
    classes: Mapping[str, Object | None],
    asked: Asked,
) -> Look:
    """What to write now, and for whom to wait.

    Args:
        needs: the claims.
        place: the node.
        volumes: all of them if something is `unsettled`, else those that claims name.
        classes: as for `sought`.
        asked: what was written after earlier looks.

    Raises:
        ObstacleError: the node cannot have the volumes, or what was asked for was taken back.
    """
    known = {raw["metadata"]["name"]: raw for raw in volumes}
    for claim in needs.bound:
        _check_reach(claim.volume, known, place)
    keep: list[Object] = []
    provide: list[tuple[Object, Object]] = []
    for claim, raw in needs.waiting:
        if claim.volume in known:  # else it was made since the list
            _check_reach(claim.volume, known, place)
        if claim.volume or _is_asked_for(claim, place, asked):
            continue
        volume = _volume_for(claim, known, place)
        if volume is None:
            provide.append((raw, _provided(claim, place, classes, asked)))
        elif volume.claim is None or not volume.claim[2]:
            kept = _kept(known[volume.name], raw, is_ours=volume.claim is None)
            known[volume.name] = kept
            keep.append(kept)
    pending = tuple(claim.name for claim, _ in needs.waiting)
    return Look(tuple(keep), tuple(provide), pending)


def _is_asked_for(claim: Claim, place: Place, asked: Asked) -> bool:
    """Whether a volume is being made for a claim."""
    if claim.selected_node:
        if claim.selected_node != place.name:
            raise ObstacleError(VOLUME, f"{claim.name}: a volume is made on another node")
        return True
    if claim.name in asked.provided:
        raise ObstacleError(VOLUME, f'provisioning failed for PVC "{claim.name}"')
    return False


def _provided(
    claim: Claim, place: Place, classes: Mapping[str, Object | None], asked: Asked
) -> Object:
    """The patch that has a volume made for a claim."""
    if claim.name in asked.kept:
        raise ObstacleError(VOLUME, f"{claim.name}: its volume was given to somebody else")
    if not _can_provide(_class_of(claim, classes), place):
        raise ObstacleError(VOLUME, f"{claim.name}: {NOTHING_TO_BIND}")
    return {"metadata": {"annotations": {SELECTED_NODE: place.name}}}


def _check_reach(name: str, known: Mapping[str, Object], place: Place) -> None:
    raw = known.get(name)
    if raw is None:
        raise ObstacleError(VOLUME, f"{name}: {NO_VOLUME}")
    if not _reaches(parse_volume(raw), place):
        raise ObstacleError(VOLUME, f"{name}: {WRONG_NODE}")


def _reaches(volume: Volume, place: Place) -> bool:
    if volume.node_terms is None:
        return True
    return RequiredNodes({}, volume.node_terms).matches(place.name, place.labels)


def _volume_for(claim: Claim, known: Mapping[str, Object], place: Place) -> Volume | None:
    """The volume that is kept for a claim, or else the smallest free one that suits it."""
    parsed = (parse_volume(raw) for raw in known.values())
    fitting = [
        volume
        for volume in parsed
        if volume.storage_class == (claim.storage_class or "") and can_hold(volume, claim)
    ]
    kept = [volume for volume in fitting if volume.claim is not None]
    free = kept or [volume for volume in fitting if is_free(volume, claim)]
    here = [volume for volume in free if _reaches(volume, place)]
    return min(here, key=lambda volume: (volume.size, volume.name), default=None)


def _kept(volume: Object, claim: Object, *, is_ours: bool) -> Object:
    """A volume as kept for a claim; the control plane does the rest. `is_ours`: we chose it."""
    meta = claim["metadata"]
    reference = {
        "apiVersion": "v1",
        "kind": CLAIMS.kind,
        "namespace": meta["namespace"],
        "name": meta["name"],
        "uid": meta["uid"],
        "resourceVersion": meta["resourceVersion"],
    }
    metadata = dict(volume["metadata"])
    if is_ours:
        notes = metadata.get("annotations") or {}
        metadata["annotations"] = {**notes, BOUND_BY_CONTROLLER: "yes"}
    return {**volume, "metadata": metadata, "spec": {**volume["spec"], "claimRef": reference}}


def _can_provide(found: StorageClass | None, place: Place) -> bool:
    if found is None or found.provisioner in NO_PROVISIONER:
        return False
    if found.topologies is None:
        return True
    return any(_term_holds(term, place.labels) for term in found.topologies)


def _term_holds(term: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    wanted: Sequence[Mapping[str, Any]] = term.get("matchLabelExpressions") or ()
    return bool(wanted) and all(labels.get(one["key"]) in one["values"] for one in wanted)
