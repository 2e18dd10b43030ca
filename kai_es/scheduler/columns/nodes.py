"""The nodes of a shard and what is idle, free and used on each.

Reference: pkg/scheduler/api/node_info/node_info.go (scheduler-core §5.5).
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from kai_es.kube.labels import (
    APP_LABEL,
    GPU,
    GPU_MICRO,
    MIG_PREFIX,
    MIG_STRATEGY_LABEL,
    SCALING_APP,
)
from kai_es.kube.objects import Node
from kai_es.scheduler.columns import claimed, sharing
from kai_es.scheduler.columns.claimed import NOTHING_CLAIMED, Claimed
from kai_es.scheduler.columns.lens import Lens
from kai_es.scheduler.columns.resources import (
    GPU_ROW,
    Demand,
    ResourceIndex,
    Vector,
)
from kai_es.scheduler.columns.sharing import NO_DEVICES, OTHER, PIPELINED, RELEASING, Devices
from kai_es.snapshot.device_rows import DeviceRows
from kai_es.snapshot.shapes import Shape, mig_slices, portion_hundredths
from kai_es.snapshot.snapshot import NodeRow, PodRow, Snapshot
from kai_es.snapshot.status import ACTIVE_USED, TaskStatus

NO_ROW: Final = -1

IDLE: Final = 0
FREE: Final = 1
USED: Final = 2
"""Planes of `NodeColumns.amounts`; free = idle + releasing."""

KIND: Final = tuple(
    RELEASING
    if status is TaskStatus.RELEASING
    else PIPELINED
    if status is TaskStatus.PIPELINED
    else OTHER
    for status in TaskStatus
)
"""How a task of each status counts on its node."""

_BAD_CONDITIONS: Final = ("MemoryPressure", "DiskPressure", "PIDPressure", "NetworkUnavailable")
_TRUE: Final = frozenset({"1", "t", "T", "TRUE", "true", "True"})

DemandOf = Callable[[Shape], Demand]
StatusOf = Callable[[PodRow], TaskStatus]


class NodeFacts:
    """What of one node follows from its object alone.

    problems:    why no pod may come to it now, in the order of display, () = ready.
    gpu_memory:  MiB of each device.
    gpu_count:   devices it carries: label, else allocatable.
    dra_gpus:    devices that drivers offer there, which are allocatable too.
    mig:         it is cut into MIG devices; mig_strategy "single" | "mixed" | "".
    mig_gpus:    GPU slices that its MIG profiles stand for, gpu_micro.
    """

    __slots__ = (
        "closed",
        "dra_gpus",
        "gpu_count",
        "gpu_memory",
        "mig",
        "mig_gpus",
        "mig_strategy",
        "name",
        "node",
        "problems",
        "uid",
    )

    def __init__(self, row: NodeRow, lens: Lens, dra_gpus: int = 0) -> None:
        node = row.node
        self.dra_gpus = dra_gpus
        self.node = node
        self.closed = row.closed
        self.name = node.name
        self.uid = node.uid
        self.problems = (*_problems(node), *row.closed)
        self.gpu_memory = node.gpu_memory_mib
        gpus = self.gpus // GPU_MICRO
        self.gpu_count = node.gpu_count if node.gpu_count >= 0 else gpus
        self.mig = _is_mig(node, lens)
        strategy = node.labels.get(MIG_STRATEGY_LABEL, "")
        self.mig_strategy = strategy if self.mig and strategy in ("single", "mixed") else ""
        self.mig_gpus = GPU_MICRO * sum(
            (mig_slices(name) or (0, 0))[0] * amount
            for name, amount in node.allocatable.items()
            if name.startswith(MIG_PREFIX)
        )

    @property
    def gpus(self) -> int:
        """Whole devices that it offers in one way or the other, gpu_micro."""
        return self.node.allocatable.get(GPU, 0) + self.dra_gpus * GPU_MICRO

    @property
    def cpu_only(self) -> bool:
        """Whether it has no device of any kind."""
        return not self.mig and self.gpus <= 0


def _problems(node: Node) -> tuple[str, ...]:
    found = ["node is unschedulable"] if node.unschedulable else []
    conditions = node.conditions
    if conditions:
        if conditions.get("Ready", "True") != "True":
            found.append("node has NotReady condition")
        found += [
            f"node has {kind} condition"
            for kind in _BAD_CONDITIONS
            if conditions.get(kind, "False") != "False"
        ]
    return tuple(found)


def _is_mig(node: Node, lens: Lens) -> bool:
    label = node.labels.get(lens.mig_worker_key)
    if label is not None:
        return label in _TRUE
    return any(n.startswith(MIG_PREFIX) and a > 0 for n, a in node.allocatable.items())


class NodeColumns:
    """Nodes of the shard, one row each, in byte order of the name. N nodes, R resources.

    facts:       length N.
    row:         name -> row.
    allocatable: int64 [R, N].
    amounts:     int64 [3, R, N], planes IDLE, FREE, USED.
    devices:     length N, shared devices of each node.
    claimed:     length N, devices of claims on each node.
    legacy_mig:  length N, `namespace/name` of legacy MIG tasks.
    special:     length N, pods on it that others must look at (`Shape.special`).
    lossy:       bool [N], a pod uses what the node no longer offers.
    foreign:     int64 [3, N], CPU, memory and GPUs of pods of other schedulers.
    ready:       bool [N].
    version:     rises whenever facts change; fit caches hang on it.
    """

    def __init__(self, lens: Lens, index: ResourceIndex) -> None:
        self._lens = lens
        self._index = index
        self.facts: list[NodeFacts] = []
        self.row: dict[str, int] = {}
        self.devices: list[Devices] = []
        self.claimed: list[Claimed] = []
        self.legacy_mig: list[tuple[str, ...]] = []
        self.special: list[tuple[PodRow, ...]] = []
        self.version = 0
        self._memo: dict[str, Any] = {}
        self._shape(0)

    def __len__(self) -> int:
        return len(self.facts)

    def _shape(self, n: int) -> None:
        n_resources = len(self._index)
        self.allocatable = np.zeros((n_resources, n), np.int64)
        self.amounts = np.zeros((3, n_resources, n), np.int64)
        self.lossy = np.zeros(n, np.bool_)
        self.foreign = np.zeros((3, n), np.int64)
        self.ready = np.zeros(n, np.bool_)

    def update(
        self, changed: Iterable[str], rows: Snapshot, demand_of: DemandOf, status_of: StatusOf
    ) -> list[str]:
        """Follow the rows of these node names.

        Returns:
            Names of nodes that came, went, or whose facts changed.
        """
        new: list[tuple[str, NodeRow | None]] = []
        accounts: list[str] = []
        for name in changed:
            row = rows.nodes.get(name)
            assert row is None or isinstance(row, NodeRow)
            if row is not None and not self._lens.selects_node(row.node):
                row = None
            old = self.row.get(name)
            dra_gpus = rows.devices.gpus_of_node(name)
            if old is None if row is None else old is not None and self._same(old, row, dra_gpus):
                if old is not None:
                    accounts.append(name)
                continue
            new.append((name, row))
        if new:
            self._change_facts(new, rows.devices)
            accounts += [name for name, row in new if row is not None]
        for name in accounts:
            pods = rows.pods_of_node.get(name, {})
            self._account(self.row[name], pods, demand_of, status_of)
            if rows.devices.claims.rows:
                self._account_claimed(self.row[name], pods, rows.devices, status_of)
        return [name for name, _ in new]

    def _same(self, n: int, row: NodeRow, dra_gpus: int) -> bool:
        facts = self.facts[n]
        if facts.closed != row.closed or facts.dra_gpus != dra_gpus:
            return False
        return facts.node is row.node or facts.node == row.node

    def _change_facts(self, new: list[tuple[str, NodeRow | None]], devices: DeviceRows) -> None:
        self.version += 1
        self._memo = {}
        grew = self._index.add(
            name for _, row in new if row is not None for name in row.node.allocatable
        )
        facts = {fact.name: fact for fact in self.facts}
        for name, row in new:
            if row is None:
                facts.pop(name, None)
            else:
                facts[name] = NodeFacts(row, self._lens, devices.gpus_of_node(name))
        if grew or facts.keys() != self.row.keys():
            self._rearrange([facts[name] for name in sorted(facts)])
        for name, row in new:
            if row is None:
                continue
            n = self.row[name]
            self.facts[n] = facts[name]
            self.allocatable[:, n] = self._index.vector(facts[name].node.allocatable)
            self.allocatable[GPU_ROW, n] = facts[name].gpus
            self.ready[n] = not facts[name].problems

    def _rearrange(self, facts: list[NodeFacts]) -> None:
        """New rows for a new set of nodes; what is known of those that stay moves with them."""
        old_row, old = self.row, self.__dict__.copy()
        self.facts = facts
        self.row = {fact.name: n for n, fact in enumerate(facts)}
        self._shape(len(facts))
        here = [n for n, fact in enumerate(facts) if fact.name in old_row]
        there = [old_row[facts[n].name] for n in here]
        n_old = old["allocatable"].shape[0]
        self.allocatable[:n_old, here] = old["allocatable"][:, there]
        self.amounts[:, :n_old, here] = old["amounts"][:, :, there]
        self.foreign[:, here] = old["foreign"][:, there]
        self.lossy[here] = old["lossy"][there]
        self.ready[here] = old["ready"][there]
        self.devices = [NO_DEVICES] * len(facts)
        self.claimed = [NOTHING_CLAIMED] * len(facts)
        self.legacy_mig = [()] * len(facts)
        self.special = [()] * len(facts)
        for n, was in zip(here, there, strict=True):
            self.devices[n] = old["devices"][was]
            self.claimed[n] = old["claimed"][was]
            self.legacy_mig[n] = old["legacy_mig"][was]
            self.special[n] = old["special"][was]

    # -- accounts

    def _account(
        self, n: int, pods: Mapping[str, PodRow], demand_of: DemandOf, status_of: StatusOf
    ) -> None:
        """Count the pods of a node anew."""
        counts: dict[Demand, list[int]] = {}
        shared: list[PodRow] = []
        legacy: list[str] = []
        special: list[PodRow] = []
        foreign = [0, 0, 0]
        reserved = np.zeros((3, len(self._index)), np.int64)
        lens = self._lens
        for row in pods.values():
            status = status_of(row)
            if status not in ACTIVE_USED:
                continue
            pod, shape = row.pod, row.shape
            count = counts.setdefault(demand_of(shape), [0, 0, 0])
            count[KIND[status]] += 1
            app = pod.labels.get(APP_LABEL) if pod.labels else None
            if app == lens.reservation_app:
                # whole devices only: a reservation pod's group accounts for its device
                change = demand_of(shape).changes[KIND[status]][sharing.ABSENT]
                reserved[:, GPU_ROW] += change[:, GPU_ROW]
            elif shape.shared and row.state.gpu_groups:
                shared.append(row)
            if shape.special:
                special.append(row)
            if shape.spec.legacy_mig:
                legacy.append(f"{pod.namespace}/{pod.name}")
            if shape.spec.scheduler not in ("", lens.scheduler_name) and app not in (
                lens.reservation_app,
                SCALING_APP,
            ):
                foreign = [a + b for a, b in zip(foreign, shape.fair, strict=True)]
        self._store(n, counts, reserved)
        self.foreign[:, n] = foreign
        self.legacy_mig[n] = tuple(sorted(legacy))
        self.special[n] = tuple(special)
        self.devices[n] = NO_DEVICES
        self.claimed[n] = NOTHING_CLAIMED
        if shared:
            self._account_shared(n, shared, status_of)

    def _store(self, n: int, counts: Mapping[Demand, list[int]], reserved: Vector) -> None:
        total = np.zeros((3, len(self._index)), np.int64)
        for demand, (releasing, pipelined, other) in counts.items():
            if releasing:
                total += demand.as_releasing * releasing
            if pipelined:
                total += demand.as_pipelined * pipelined
            if other:
                total += demand.as_other * other
        total += reserved
        nothing = self.allocatable[:, n] == 0
        self.lossy[n] = total[:, nothing].any()
        total[:, nothing] = 0
        total[IDLE] += self.allocatable[:, n]
        total[FREE] += self.allocatable[:, n]
        self.amounts[:, :, n] = total

    def _account_shared(self, n: int, shared: list[PodRow], status_of: StatusOf) -> None:
        """Add the tasks that share devices, by name: the result hangs on the order."""
        facts = self.facts[n]
        idle, free, used = self.amounts[:, GPU_ROW, n].tolist()
        whole = sharing.Whole(facts.gpu_count, idle, used, free - idle)
        devices = NO_DEVICES
        for row in sorted(shared, key=lambda row: (row.pod.namespace, row.pod.name, row.pod.uid)):
            memory = task_memory(row.shape, facts.gpu_memory)
            kind = KIND[status_of(row)]
            devices, whole = sharing.add(devices, whole, row.state.gpu_groups, memory, kind)
        self.devices[n] = devices
        self.amounts[:, GPU_ROW, n] = (whole.idle, whole.idle + whole.releasing, whole.used)

    def _account_claimed(
        self, n: int, pods: Mapping[str, PodRow], rows: DeviceRows, status_of: StatusOf
    ) -> None:
        """Count devices that several pods use once."""
        for row in pods.values():
            devices = rows.devices_of(row.pod, row.state) if row.shape.dra else ()
            status = status_of(row)
            if not devices or row.shape.shared or status not in ACTIVE_USED:
                continue
            if row.pod.labels.get(APP_LABEL) == self._lens.reservation_app:
                continue  # its devices do not count at all
            self.claimed[n], gpus = claimed.change(
                self.claimed[n], (sharing.ABSENT, ()), (KIND[status], devices)
            )
            if self.allocatable[GPU_ROW, n]:
                self.amounts[:, GPU_ROW, n] += gpus

    # -- sums

    @property
    def any_mig(self) -> bool:
        """Whether some node offers MIG profiles."""
        if "any_mig" not in self._memo:
            self._memo["any_mig"] = any(facts.mig_gpus for facts in self.facts)
        return bool(self._memo["any_mig"])

    @property
    def gpu_memory(self) -> NDArray[np.int64]:
        """MiB of each device, int64 [N]."""
        if "gpu_memory" not in self._memo:
            self._memo["gpu_memory"] = np.array([f.gpu_memory for f in self.facts], np.int64)
        found: NDArray[np.int64] = self._memo["gpu_memory"]
        return found

    @property
    def mig_rows(self) -> list[tuple[int, int]]:
        """Resource row and GPU slices in gpu_micro of every MIG profile on offer."""
        found = ((row, mig_slices(name)) for name, row in self._index.row.items())
        return [(row, slices[0] * GPU_MICRO) for row, slices in found if slices]

    def total(self) -> tuple[int, int, int]:
        """CPU, memory and GPUs that queues divide: ready nodes, less pods of other schedulers."""
        cpu, memory, gpu = (self.allocatable[:3] * self.ready).sum(axis=1).tolist()
        away_cpu, away_memory, away_gpu = (self.foreign * self.ready).sum(axis=1).tolist()
        no_gpu = 0
        for n, fact in enumerate(self.facts):
            if not self.ready[n]:
                continue
            if self._lens.restrict_nodes and not self._lens.is_gpu_worker(fact.node):
                no_gpu += int(self.allocatable[GPU_ROW, n])
            elif fact.mig_gpus:
                gpu += fact.mig_gpus
        return cpu - away_cpu, memory - away_memory, gpu - no_gpu - away_gpu


def task_memory(shape: Shape, gpu_memory: int) -> int:
    """MiB that a task takes of each of its devices on a node with this memory per device."""
    gpu = shape.spec.gpu
    return gpu.memory_mib if gpu.memory_mib > 0 else int(gpu.portion * gpu_memory)


def portion_on(shape: Shape, gpu_memory: int) -> int:
    """Hundredths of each device that a shared request takes on such a node."""
    gpu = shape.spec.gpu
    if gpu.memory_mib > 0:
        return sharing.hundredths_up(gpu.memory_mib, gpu_memory)
    return portion_hundredths(gpu.portion)


def accepted_gpu(shape: Shape, gpu_memory: int) -> int:
    """GPUs that a task is granted on such a node, gpu_micro; MIG counts in slices."""
    if shape.shared:
        return portion_on(shape, gpu_memory) * shape.spec.gpu.count * (GPU_MICRO // 100)
    return shape.quota
