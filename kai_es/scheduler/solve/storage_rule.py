"""Free space of storage drivers, with what leaves counted in (`--schedule-csi-storage`).

Kubernetes' own test of free space sees only what is free now; it is left out then.

Reference: pkg/scheduler/api/storage{capacity,claim}_info (scheduler-core §4.13, §5.9).
"""

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kai_es.events.decisions import Reason
from kai_es.kube.objects import Pod
from kai_es.kube.volumes import Claim, StorageCapacity
from kai_es.scheduler.columns.nodes import NO_ROW
from kai_es.scheduler.columns.sharing import ABSENT, OTHER, RELEASING
from kai_es.scheduler.framework.extensions import TaskMask
from kai_es.scheduler.framework.session import Session
from kai_es.scheduler.solve.volumes import Storage
from kai_es.snapshot.snapshot import PodRow
from kai_es.snapshot.status import ACTIVE_USED, ALIVE, TaskStatus

Mask = NDArray[np.bool_]

BOUND: Final = "Bound"
PENDING: Final = "Pending"


class _Place(NamedTuple):
    """A capacity and what is taken of it.

    nodes:  bool [N], nodes that reach it, and no other of the same class.
    taken:  bytes of claims that have no volume yet.
    leaves: by node row, bytes of claims that go with a pod which leaves it.
    """

    capacity: StorageCapacity
    nodes: Mask
    taken: int
    leaves: Mapping[int, int]


class StorageRule:
    """The rule of one session."""

    def __init__(self, session: Session, storage: Storage) -> None:
        self._session = session
        self._storage = storage
        rows = session.columns.rows
        self._classes = {
            found.name
            for found in rows.objects("StorageClass")
            if (known := storage.storage_class(found.name)) is not None
            and known.waits
            and rows.object("CSIDriver", known.provisioner) is not None
        }
        self._holders = [row for row in session.rows if row is not None and self._of(row.pod)]
        self._reach = self._only_ones()
        self._places: tuple[int, dict[str, list[_Place]]] = (-1, {})

    def _of(self, pod: Pod) -> list[Claim]:
        """Claims of a pod that count."""
        found = (self._storage.claim(pod.namespace, name) for name in pod.spec.claims)
        return [one for one in found if one is not None and one.storage_class in self._classes]

    def _only_ones(self) -> Mapping[str, list[tuple[StorageCapacity, Mask]]]:
        """Capacities by class; a node that reaches several of one class reaches none at all."""
        n_nodes = len(self._session.nodes)
        found = {name: self._storage.capacities().get(name, []) for name in sorted(self._classes)}
        unclear = np.zeros(n_nodes, np.bool_)
        for capacities in found.values():
            reached = np.zeros(n_nodes, np.int32)
            for _, nodes in capacities:
                reached += nodes
            unclear |= reached > 1
        return {
            name: [(capacity, nodes & ~unclear) for capacity, nodes in capacities]
            for name, capacities in found.items()
        }

    # -- what is taken

    def _now(self) -> dict[str, list[_Place]]:
        """Capacities as the session has them now."""
        stamp = len(self._session.nodes.changes)
        if self._places[0] != stamp:
            claims: dict[tuple[str, int], Claim] = {}
            leaves: dict[tuple[str, int], int] = {}
            for row in self._holders:
                for n, kind in self._entries(row):
                    for claim in self._of(row.pod):
                        claims[claim.uid, n] = claim
                        if kind == RELEASING and _owner(claim) == row.pod.uid:
                            leaves[claim.uid, n] = claim.size
            self._places = (stamp, self._count(claims, leaves))
        return self._places[1]

    def _count(
        self, claims: Mapping[tuple[str, int], Claim], leaves: Mapping[tuple[str, int], int]
    ) -> dict[str, list[_Place]]:
        found: dict[str, list[_Place]] = {}
        for name, capacities in self._reach.items():
            for capacity, nodes in capacities:
                here = {
                    uid: claim
                    for (uid, n), claim in claims.items()
                    if claim.storage_class == name and nodes[n]
                }
                taken = sum(claim.size for claim in here.values() if claim.phase != BOUND)
                by_node: dict[int, int] = {}
                for (uid, n), size in leaves.items():
                    if uid in here and nodes[n]:
                        by_node[n] = by_node.get(n, 0) + size
                found.setdefault(name, []).append(_Place(capacity, nodes, taken, by_node))
        return found

    def _entries(self, row: PodRow) -> Iterable[tuple[int, int]]:
        """Nodes that a pod counts on, and how."""
        session = self._session
        home = session.nodes.columns.row.get(row.state.node, NO_ROW)
        if session.columns.job_of[row.row] is None:
            status = session.columns.status_of(row)
            if home != NO_ROW and status in ACTIVE_USED:
                yield home, RELEASING if status is TaskStatus.RELEASING else OTHER
            return
        for n in dict.fromkeys((home, session.node_of(row.row))):
            entry = session.entry(row.row, n) if n != NO_ROW else None
            if entry is not None and entry[0] != ABSENT:
                yield n, entry[0]

    # -- the rule

    def _needs(self, task: int) -> dict[str, int]:
        """Bytes that a task needs of each class."""
        needs: dict[str, int] = {}
        for claim in self._of(self._session.row(task).pod):
            if claim.phase == PENDING and claim.storage_class is not None:
                needs[claim.storage_class] = needs.get(claim.storage_class, 0) + claim.size
        return needs

    def _deleted(self, task: int) -> list[str]:
        """Claims that go with a pod which is gone or leaves."""
        pods = self._session.columns.rows.pods
        found = []
        for claim in self._of(self._session.row(task).pod):
            owner = _owner(claim)
            row = pods.get(owner)
            if owner and (row is None or row.state.status not in ALIVE):
                found.append(f"{claim.namespace}/{claim.name}")
        return found

    def _rooms(self, name: str, need: int, *, leaving: bool) -> tuple[Mask, Mask]:
        """Bool [N] each: nodes that reach storage of a class; those where `need` is free."""
        reached = np.zeros(len(self._session.nodes), np.bool_)
        enough = reached.copy()
        for place in self._now().get(name, ()):
            reached |= place.nodes
            free = (place.capacity.size or 0) - place.taken
            if need <= free:
                enough |= place.nodes
            elif leaving:
                for n, size in place.leaves.items():
                    enough[n] |= need <= free + size
        return reached, enough

    def mask(self, task: int) -> TaskMask | None:
        """Where a task may go, None = anywhere."""
        needs, deleted = self._needs(task), self._deleted(task)
        if not needs and not deleted:
            return None
        now = np.full(len(self._session.nodes), not deleted, np.bool_)
        later = np.ones(len(self._session.nodes), np.bool_)
        for name, need in needs.items():
            now &= self._rooms(name, need, leaving=False)[1]
            later &= self._rooms(name, need, leaving=True)[1]
        return TaskMask(now, later)

    def why(self, task: int) -> Iterable[tuple[Mask, Reason]]:
        """Nodes that are left out, by reason."""
        everywhere = np.ones(len(self._session.nodes), np.bool_)
        deleted = self._deleted(task)
        if deleted:
            text = "task has deleted storage claims: " + "".join(f", {name}" for name in deleted)
            return [(everywhere, _reason(text))]
        found: list[tuple[Mask, Reason]] = []
        for name, need in self._needs(task).items():
            reached, enough = self._rooms(name, need, leaving=True)
            found.append(
                (~reached, _reason(f"no allocatable storage from storageclass {name} found"))
            )
            text = f"node(s) did not have enough free storage for storageclass {name}"
            found.append((reached & ~enough, _reason(text)))
        return found


def _reason(text: str) -> Reason:
    return Reason(code="node-volume", args={"text": text})


def _owner(claim: Claim) -> str:
    """Uid of the pod that a claim belongs to, "" = none, or several owners."""
    if len(claim.owners) != 1 or claim.owners[0][0].lower() != "pod":
        return ""
    return claim.owners[0][2]
