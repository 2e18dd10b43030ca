"""Which nodes may take a task, resources aside.

Reference: pkg/scheduler/plugins/predicates, pkg/scheduler/k8s_internal/predicates (plugins §3).
Filters are looked at in the table's order there; the reference's own order is random.
"""

from collections.abc import Mapping
from typing import Final

import numpy as np
from numpy.typing import NDArray

from kai_es.events.decisions import Arg, Reason
from kai_es.kube.labels import GPU
from kai_es.kube.objects import Taint, Toleration
from kai_es.scheduler.columns.nodes import NodeFacts
from kai_es.scheduler.columns.resources import PODS_ROW
from kai_es.scheduler.flags import GPUS_NOT_SERVED, SHARES_TAKE_TWO_SLOTS
from kai_es.scheduler.framework.devices import pick_devices
from kai_es.scheduler.framework.extensions import TaskCheck
from kai_es.scheduler.framework.session import Session
from kai_es.scheduler.solve.largest_node import LargestNode
from kai_es.scheduler.solve.neighbour_rule import NeighbourRule
from kai_es.scheduler.solve.neighbours import neighbours_of
from kai_es.scheduler.solve.node_affinity import required_nodes
from kai_es.scheduler.solve.port_rule import PortRule
from kai_es.scheduler.solve.storage_rule import StorageRule
from kai_es.scheduler.solve.volume_rule import VolumeRule
from kai_es.snapshot.shapes import Shape

Mask = NDArray[np.bool_]

SLOTS_OF_NEW_SHARE: Final = 2
"""Of the pod that is the first on a shared device, and of the reservation pod."""
NO_SCHEDULE: Final = frozenset({"NoSchedule", "NoExecute"})


def open_predicates(session: Session, arguments: Mapping[str, str]) -> None:
    """Register the filters."""
    plugin = Predicates(session)
    ext = session.ext
    ext.node_masks.append(plugin.mask)
    ext.node_why.append(plugin.why)
    wanted = session.columns.rows.shapes  # what no pod wants costs nothing per task
    checks: list[TaskCheck] = []
    if wanted.n_ports:
        ext.task_rules.append(PortRule(session))
    if wanted.n_claims:
        volumes = VolumeRule(session)
        checks.append(volumes.missing)
        ext.task_rules.append(volumes)
        ext.volumes = volumes.waiting
        if session.config.schedule_csi_storage:
            ext.task_rules.append(StorageRule(session, volumes.storage))
    if wanted.n_config_maps:
        checks.append(plugin.config_maps)
    checks.append(LargestNode(session).check)
    ext.pre_task += checks
    ext.hopeless += checks
    ext.node_checks.append(plugin.capacity)
    ext.node_checks.append(plugin.pod_slots)
    neighbours = neighbours_of(session)
    if neighbours is not None:
        ext.task_rules.append(NeighbourRule(session, neighbours))


class Predicates:
    """The filters of one session."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._columns = session.nodes.columns
        self._labels = session.columns.labels()

    # -- nodes

    def mask(self, shape: Shape) -> Mask:
        """Bool [N]: no filter refuses the node."""
        facts = self._columns.facts
        mask = self._columns.ready.copy()
        if any(f.mig or f.dra_gpus for f in facts) or shape.spec.legacy_mig or shape.spec.gpu.mig:
            fits = (self.wrong_kind(shape, n) is None for n in range(len(facts)))
            mask &= np.fromiter(fits, np.bool_, len(facts))
        if shape.memory_mib:
            mask &= np.array([f.node.gpu_memory_synced for f in facts], np.bool_)
        mask &= self._labels.tolerated(
            lambda taints: untolerated(taints, shape.spec.tolerations) is None
        )
        required = required_nodes(shape.spec)
        if required is not None:
            mask &= required.mask(self._labels)
        if self._session.config.restrict_nodes:
            mask &= self._labels.where(self._worker_key(shape), lambda value: value is not None)
        return mask

    def why(self, shape: Shape, n: int) -> Reason | None:
        """Why a filter refuses a node, the first in order."""
        facts = self._columns.facts[n]
        reason = self.wrong_kind(shape, n)
        if reason is None and shape.memory_mib and not facts.node.gpu_memory_synced:
            reason = Reason(code="gpu-memory-unknown", args={"node": facts.name})
        if reason is None and facts.problems:
            reason = Reason(code="node-not-ready", args={"problems": ", ".join(facts.problems)})
        return reason or self._demanded(shape, facts)

    def _demanded(self, shape: Shape, facts: NodeFacts) -> Reason | None:
        """What the pod or the configuration demands of a node and does not find."""
        taint = untolerated(facts.node.taints, shape.spec.tolerations)
        if taint is not None:
            return Reason(code="taint", args={"key": taint.key, "value": taint.value})
        required = required_nodes(shape.spec)
        if required is not None and not required.matches(facts.name, facts.node.labels):
            return Reason(code="node-affinity")
        key = self._worker_key(shape)
        if self._session.config.restrict_nodes and key not in facts.node.labels:
            code = "gpu-task-on-cpu-node" if shape.needs_gpu else "cpu-task-on-gpu-node"
            return Reason(code=code, args={"node": facts.name})
        return None

    def wrong_kind(self, shape: Shape, n: int) -> Reason | None:
        """MIG, shared and CPU tasks against the kind of the node (plugins §3.8)."""
        facts = self._columns.facts[n]
        if shape.spec.legacy_mig:
            return Reason(code="legacy-mig", args={"node": facts.name})
        if not shape.needs_gpu:
            return None
        wants_mig = shape.spec.request_type == "MigInstance"
        code = ""
        args: dict[str, Arg] = {}
        if facts.dra_gpus and shape.shared:
            code = "share-on-dra-node"
        elif facts.dra_gpus and self._not_served(shape, facts):
            code = "gpus-not-served"
        elif not facts.mig:
            code = "mig-on-other-node" if wants_mig else ""
        elif wants_mig and self._columns.legacy_mig[n]:
            code, args = "mig-beside-legacy", {"tasks": " ".join(self._columns.legacy_mig[n])}
        elif facts.mig_strategy == "single" and shape.spec.request_type != "Regular":
            code = "mig-strategy-single"
        elif facts.mig_strategy == "mixed" and not wants_mig:
            code = "mig-strategy-mixed"
        return Reason(code=code, args=args) if code else None

    def _not_served(self, shape: Shape, facts: NodeFacts) -> bool:
        """Whether a request for whole GPUs meets GPUs that it cannot be given (core Q-29)."""
        session = self._session
        if not shape.gpu or facts.node.allocatable.get(GPU, 0) or GPUS_NOT_SERVED in session.flags:
            return False
        served = {} if session.claims is None else session.claims.served(shape)
        names = {n for one in shape.spec.extended for n, _, _ in one.requests if n.endswith(GPU)}
        return not names or not names <= served.keys()

    def _worker_key(self, shape: Shape) -> str:
        config = self._session.config
        return config.gpu_worker_key if shape.needs_gpu else config.cpu_worker_key

    # -- tasks on a node, where shares of devices decide

    def capacity(self, task: int, n: int) -> Reason | None:
        """Queue capacity by what the task weighs on this node (plugins §3.3).

        Of whole devices that is what the check of the job has added up already.
        """
        check = self._session.ext.node_capacity
        if check is None or not self._session.row(task).shape.shared:
            return None
        reason = check(task, n)
        return None if reason is None else Reason(code="node-over-capacity", parts=(reason,))

    def pod_slots(self, task: int, n: int) -> Reason | None:
        """A device that is newly shared needs a slot for its reservation pod (plugins §3.9)."""
        session = self._session
        if session.nodes.free[PODS_ROW, n] >= SLOTS_OF_NEW_SHARE:
            return None
        if not session.row(task).shape.shared:
            return None
        pick = pick_devices(session, task, n, idle=True)
        known = session.nodes.devices[n]
        if SHARES_TAKE_TWO_SLOTS in session.flags:
            is_new = pick is None or not all(group.isdecimal() for group in pick[0])
        else:
            is_new = pick is None or any(group not in known for group in pick[0])
        return Reason(code="pod-slots") if is_new else None

    # -- tasks

    def config_maps(self, task: int) -> Reason | None:
        """Config maps that a pod cannot start without and that do not exist."""
        row = self._session.row(task)
        wanted = row.shape.spec.config_maps
        if not wanted:
            return None
        rows = self._session.columns.rows
        missing = [n for n in wanted if rows.object("ConfigMap", (row.pod.namespace, n)) is None]
        if not missing:
            return None
        return Reason(code="missing-config-maps", args={"names": " ".join(missing)})


def untolerated(taints: tuple[Taint, ...], tolerations: tuple[Toleration, ...]) -> Taint | None:
    """The first taint that keeps a pod away."""
    for taint in taints:
        if taint.effect in NO_SCHEDULE and not any(_tolerates(t, taint) for t in tolerations):
            return taint
    return None


def _tolerates(toleration: Toleration, taint: Taint) -> bool:
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    if toleration.operator == "Exists":
        return True
    return toleration.operator in ("", "Equal") and toleration.value == taint.value
