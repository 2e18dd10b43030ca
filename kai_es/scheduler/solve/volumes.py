"""Whether a pod's volumes are there, and on which nodes it can have them.

Reference: Kubernetes' kube-scheduler/framework/plugins/volumebinding and
component-helpers/storage/volume, which the reference calls (plugins §3.4, §3.7).
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kai_es.kube.objects import Pod
from kai_es.kube.volumes import Claim, CsiDriver, StorageCapacity, StorageClass, Volume
from kai_es.scheduler.columns.labels import LabelColumns
from kai_es.scheduler.columns.selectors import Selector, selector_of
from kai_es.scheduler.solve.node_affinity import RequiredNodes
from kai_es.snapshot.snapshot import Snapshot

Mask = NDArray[np.bool_]

NO_PROVISIONER: Final = frozenset({"", "kubernetes.io/no-provisioner"})
AVAILABLE: Final = "Available"
LOST: Final = "Lost"

NO_VOLUME: Final = "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)"
WRONG_NODE: Final = "node(s) didn't match PersistentVolume's node affinity"
NOTHING_TO_BIND: Final = "node(s) didn't find available persistent volumes to bind"
NO_SPACE: Final = "node(s) did not have enough free storage"


class Needs(NamedTuple):
    """The claims of a pod.

    bound:   to volumes.
    waiting: to be bound where the pod goes.
    problem: why the pod cannot be placed anywhere now, "" = nothing is wrong.
    """

    bound: tuple[Claim, ...] = ()
    waiting: tuple[Claim, ...] = ()
    problem: str = ""


class Storage:
    """Claims, volumes and classes as the rows have them, against the nodes of a shard.

    Args:
        rows: the snapshot.
        labels: of the nodes.
        names: of the nodes, by row.
        whole: free space of drivers is looked at here; else somebody else does.
    """

    def __init__(
        self, rows: Snapshot, labels: LabelColumns, names: Mapping[str, int], *, whole: bool
    ) -> None:
        self._rows = rows
        self._labels = labels
        self._names = names
        self._whole = whole
        self._by_class: dict[str, list[Volume]] | None = None
        self._capacities: dict[str, list[tuple[StorageCapacity, Mask]]] | None = None
        self._masks: dict[str, Mask] = {}

    def claim(self, space: str, name: str) -> Claim | None:
        """A claim by name."""
        found = self._rows.object("PersistentVolumeClaim", (space, name))
        return found if isinstance(found, Claim) else None

    def _volume(self, name: str) -> Volume | None:
        found = self._rows.object("PersistentVolume", name)
        return found if isinstance(found, Volume) else None

    def storage_class(self, name: str | None) -> StorageClass | None:
        """A storage class by name."""
        found = self._rows.object("StorageClass", name) if name else None
        return found if isinstance(found, StorageClass) else None

    # -- wherever the pod goes

    def needs(self, pod: Pod) -> Needs:
        """The claims of a pod, or what is wrong with one."""
        bound, waiting = [], []
        at_once = False
        for name in pod.spec.claims:
            claim = self.claim(pod.namespace, name)
            problem = problem_of(pod, name, claim)
            if problem:
                return Needs(problem=problem)
            assert claim is not None, "a missing claim is a problem"
            found = self.storage_class(claim.storage_class)
            if claim.bound and claim.volume:
                bound.append(claim)
            elif found is not None and found.waits and not claim.volume:
                waiting.append(claim)
            else:
                at_once = True
        if at_once:
            return Needs(problem="pod has unbound immediate PersistentVolumeClaims")
        return Needs(tuple(bound), tuple(waiting))

    # -- node by node

    def refusals(self, needs: Needs) -> list[tuple[Mask, str]]:
        """Nodes where a pod cannot have its volumes, with the reason; a node may have several."""
        nothing = np.zeros(len(self._labels), np.bool_)
        gone, wrong = nothing.copy(), nothing.copy()
        for claim in needs.bound:
            volume = self._volume(claim.volume)
            if volume is None:
                gone[:] = True
            else:
                wrong |= ~self._reach(volume)
        unmatched, small = nothing.copy(), nothing.copy()
        taken: dict[str, Mask] = {}
        for claim in sorted(needs.waiting, key=lambda claim: (claim.size, claim.name)):
            if claim.selected_node:
                left = np.ones(len(self._labels), np.bool_)
                n = self._names.get(claim.selected_node)
                unmatched |= left if n is None else np.arange(len(left)) != n
            else:
                left = self._unmatched(claim, taken)
            cannot, full = self._unprovided(claim)
            unmatched |= left & cannot
            small |= left & ~cannot & full
        found = [
            (unmatched, NOTHING_TO_BIND),
            (wrong, WRONG_NODE),
            (small, NO_SPACE),
            (gone, NO_VOLUME),
        ]
        return [(mask, text) for mask, text in found if mask.any()]

    def _unmatched(self, claim: Claim, taken: dict[str, Mask]) -> Mask:
        """Bool [N]: nodes where no volume is free for a claim; `taken` gets those it takes."""
        left = np.ones(len(self._labels), np.bool_)
        for volume in self._candidates(claim):
            here = left & self._reach(volume)
            if volume.name in taken:
                here &= ~taken[volume.name]
            taken[volume.name] = here | taken.get(volume.name, False)
            left &= ~here
            if not left.any():
                break
        return left

    def _candidates(self, claim: Claim) -> list[Volume]:
        """Volumes that a claim may be bound to, smallest first; one kept for it is the only one."""
        name = claim.storage_class or ""
        fitting = [volume for volume in self._volumes_of(name) if can_hold(volume, claim)]
        kept = [volume for volume in fitting if volume.claim is not None]
        return kept or [volume for volume in fitting if is_free(volume, claim)]

    def _volumes_of(self, name: str) -> list[Volume]:
        if self._by_class is None:
            self._by_class = {}
            for volume in self._rows.objects("PersistentVolume"):
                assert isinstance(volume, Volume)
                self._by_class.setdefault(volume.storage_class, []).append(volume)
            for volumes in self._by_class.values():
                volumes.sort(key=lambda volume: (volume.size, volume.name))
        return self._by_class.get(name, [])

    def _reach(self, volume: Volume) -> Mask:
        """Bool [N]: nodes that can use a volume. Do not change it."""
        found = self._masks.get(volume.name)
        if found is None:
            if volume.node_terms is None:
                found = np.ones(len(self._labels), np.bool_)
            else:
                found = RequiredNodes({}, volume.node_terms).mask(self._labels)
            self._masks[volume.name] = found
        return found

    def _unprovided(self, claim: Claim) -> tuple[Mask, Mask]:
        """Bool [N] each: nodes where no volume can be made for a claim; where space is missing."""
        everywhere = np.ones(len(self._labels), np.bool_)
        found = self.storage_class(claim.storage_class)
        if found is None or found.provisioner in NO_PROVISIONER:
            return everywhere, ~everywhere
        allowed = everywhere
        if found.topologies is not None:
            allowed = self._in_topologies(found.topologies)
        return ~allowed, ~self._has_space(found, claim.size)

    def _in_topologies(self, terms: Iterable[Mapping[str, Any]]) -> Mask:
        some = np.zeros(len(self._labels), np.bool_)
        for term in terms:
            wanted = term.get("matchLabelExpressions") or ()
            one = np.full(len(self._labels), bool(wanted), np.bool_)
            for expression in wanted:
                values = frozenset(expression["values"])
                one &= self._labels.where(expression["key"], values.__contains__)
            some |= one
        return some

    def _has_space(self, found: StorageClass, size: int) -> Mask:
        """Bool [N]: some capacity that a node reaches is large enough, if the driver tells."""
        driver = self._rows.object("CSIDriver", found.provisioner)
        if not self._whole or not isinstance(driver, CsiDriver) or not driver.tells_capacity:
            return np.ones(len(self._labels), np.bool_)
        some = np.zeros(len(self._labels), np.bool_)
        for capacity, nodes in self.capacities().get(found.name, ()):
            most = capacity.size if capacity.largest is None else capacity.largest
            if capacity.nodes is not None and most is not None and most >= size:
                some |= nodes
        return some

    def capacities(self) -> Mapping[str, list[tuple[StorageCapacity, Mask]]]:
        """By storage class: what is told of free space, and bool [N], the nodes that reach it."""
        if self._capacities is None:
            self._capacities = {}
            for capacity in self._rows.objects("CSIStorageCapacity"):
                assert isinstance(capacity, StorageCapacity)
                nodes = self._selected(capacity.nodes)
                self._capacities.setdefault(capacity.storage_class, []).append((capacity, nodes))
            for found in self._capacities.values():
                found.sort(key=lambda one: (one[0].namespace, one[0].name))
        return self._capacities

    def _selected(self, raw: Mapping[str, Any] | None) -> Mask:
        """Bool [N]: nodes that a label selector selects; None selects all."""
        found = np.ones(len(self._labels), np.bool_)
        selector = Selector() if raw is None else selector_of(raw)
        for one in selector.requirements:
            key = one.key

            def test(value: str | None, one: Any = one, key: str = key) -> bool:
                return bool(one.holds({} if value is None else {key: value}))

            found &= self._labels.where(key, test)
        return found


def problem_of(pod: Pod, name: str, claim: Claim | None) -> str:
    """What keeps a pod from using a claim, "" = nothing."""
    ephemeral = name in pod.spec.ephemeral_claims
    if claim is None:
        if ephemeral:
            return (
                "waiting for ephemeral volume controller to create the persistentvolumeclaim "
                f'"{name}"'
            )
        return f'persistentvolumeclaim "{name}" not found'
    if claim.phase == LOST:
        return (
            f'persistentvolumeclaim "{name}" bound to non-existent persistentvolume '
            f'"{claim.volume}"'
        )
    if claim.deleted_ms:
        return f'persistentvolumeclaim "{name}" is being deleted'
    if ephemeral and all(uid != pod.uid for _, _, uid in claim.owners):
        return (
            f"PVC {pod.namespace}/{name} was not created for pod {pod.namespace}/{pod.name} "
            "(pod is not owner)"
        )
    return ""


def can_hold(volume: Volume, claim: Claim) -> bool:
    """Whether a volume is large enough, of the right kind, and not for another claim."""
    return (
        volume.size >= claim.size
        and volume.volume_mode == claim.volume_mode
        and not volume.deleted_ms
        and _kept_for(volume, claim)
    )


def _kept_for(volume: Volume, claim: Claim) -> bool:
    if volume.claim is None:
        return True
    space, name, uid = volume.claim
    return (space, name) == (claim.namespace, claim.name) and uid in ("", claim.uid)


def is_free(volume: Volume, claim: Claim) -> bool:
    """Whether a volume that is kept for nobody may be given to a claim."""
    selector = Selector() if claim.selector is None else selector_of(claim.selector)
    return (
        volume.phase == AVAILABLE
        and selector.matches(volume.labels)
        and set(claim.access_modes) <= set(volume.access_modes)
    )
