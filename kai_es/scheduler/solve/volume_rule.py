"""Volumes as rules of placing.

Reference: pkg/scheduler/k8s_internal/predicates (plugins §3.7).
"""

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from kai_es.events.decisions import Reason
from kai_es.scheduler.framework.extensions import TaskMask
from kai_es.scheduler.framework.session import Session
from kai_es.scheduler.solve.volumes import Needs, Storage

Mask = NDArray[np.bool_]


class VolumeRule:
    """The rule of one session: what pods' claims allow; nothing in a session changes it."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._storage: Storage | None = None
        self._needs: dict[int, Needs] = {}
        self._found: dict[int, list[tuple[Mask, str]]] = {}

    @property
    def storage(self) -> Storage:
        """The storage of the cluster."""
        if self._storage is None:
            session = self._session
            self._storage = Storage(
                session.columns.rows,
                session.columns.labels(),
                session.nodes.columns.row,
                whole=not session.config.schedule_csi_storage,
            )
        return self._storage

    def missing(self, task: int) -> Reason | None:
        """Why a task can be placed nowhere, whatever else gives way."""
        if not self._session.row(task).shape.spec.claims:
            return None
        problem = self._of(task).problem
        return Reason(code="volume", args={"text": problem}) if problem else None

    def waiting(self, task: int) -> tuple[str, ...]:
        """Claims of a task that are bound where it goes, by name."""
        if not self._session.row(task).shape.spec.claims:
            return ()
        return tuple(sorted(claim.name for claim in self._of(task).waiting))

    def _of(self, task: int) -> Needs:
        found = self._needs.get(task)
        if found is None:
            found = self._needs[task] = self.storage.needs(self._session.row(task).pod)
        return found

    def _refusals(self, task: int) -> list[tuple[Mask, str]]:
        if not self._session.row(task).shape.spec.claims:
            return []
        found = self._found.get(task)
        if found is None:
            found = self._found[task] = self.storage.refusals(self._of(task))
        return found

    def mask(self, task: int) -> TaskMask | None:
        """Where a task may go, None = anywhere."""
        refusals = self._refusals(task)
        if not refusals:
            return None
        free = np.ones(len(self._session.nodes), np.bool_)
        for nodes, _ in refusals:
            free &= ~nodes
        return TaskMask(free, free)

    def why(self, task: int) -> Iterable[tuple[Mask, Reason]]:
        """Nodes that are left out, by reason."""
        return [
            (nodes, Reason(code="node-volume", args={"text": text}))
            for nodes, text in self._refusals(task)
        ]
