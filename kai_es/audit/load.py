"""Invariants 4 and 5: no node and no shared device is given more than it has, batch by batch.

Bound pods and open binds of a node against its allocatable amounts. A node may be over after it
shrank or was made again smaller under its name, after a pod that is not ours came, or after a
restore of etcd brought back a pod that had left it; it is excused then until every shard has
decided on a world that shows it, and the node is within bounds again.
"""

from collections.abc import Hashable, Iterable, Mapping
from typing import Final, NamedTuple

from kai_es.audit.findings import Findings
from kai_es.events.decisions import Cycle
from kai_es.events.requests import Bound
from kai_es.events.snapshot import Batch, Upserted
from kai_es.kube.labels import GPU, GPU_MICRO
from kai_es.kube.objects import Node, Pod
from kai_es.snapshot.lifecycle import Request
from kai_es.snapshot.snapshot import GroupKey, PodRow
from kai_es.snapshot.status import ACTIVE_USED
from kai_es.snapshot.world import World

SHRANK: Final = "shrank"
FOREIGN: Final = "a foreign pod came"
RESTORED: Final = "a pod came back with a restore of etcd"
HUNDREDTH: Final = GPU_MICRO // 100
"""Granted shares are told in hundredths, rounded up; the sum of the true shares is what counts."""


class _Excuse(NamedTuple):
    """Why a node may be over, and since which batch."""

    why: str
    offset: int


class Loads:
    """Follows the columns' rows; looks at every node that a batch touched."""

    def __init__(self, world: World, findings: Findings) -> None:
        self._world = world
        self._findings = findings
        self._touched: dict[str, None] = {}
        self._excused: dict[str, _Excuse] = {}
        self._saw: dict[str, int] = {}
        self._allocatable: dict[str, Mapping[str, int]] = {}
        self._counted: dict[str, frozenset[str]] = {}
        world.snapshot.follow(self)

    def node_changed(self, name: str) -> None:
        """A node, or its pods, changed."""
        self._touched[name] = None

    def group_changed(self, key: GroupKey) -> None:
        """Groups weigh nothing by themselves."""

    def queues_changed(self) -> None:
        """Queues weigh nothing."""

    def object_changed(self, kind: str, name: Hashable) -> None:
        """What pods and nodes only refer to weighs nothing."""

    def check(self, offset: int, batch: Batch) -> None:
        """Look at the nodes that a folded batch touched."""
        came = self._unsent(batch)
        self._saw |= {row.shard: row.offset for row in batch.rows if isinstance(row, Cycle)}
        saw = min(self._saw.values(), default=-1)
        for name in self._touched:
            row = self._world.snapshot.nodes.get(name)
            if row is None:
                self._gone(name, offset, why=came.get(name, ""))
                continue
            self._findings.checked("4 node loads")
            self._excuse(row.node, offset, why=came.get(name, ""))
            pods = active(self._world.snapshot.pods_of_node.get(name, {}).values())
            self._counted[name] = frozenset(pod.pod.uid for pod in pods)
            over = overload(row.node, pods)
            excuse = self._excused.get(name)
            if excuse is None and over:
                self._excused[name] = _Excuse("reported", -1)
                self._findings.violated("4", f"snapshot {offset}", f"node {name}: {over}")
            elif excuse is not None and not over and saw >= excuse.offset:
                del self._excused[name]
        self._touched.clear()

    def _gone(self, name: str, offset: int, *, why: str) -> None:
        """There is no such node now; one made under its name finds the pods that are left."""
        if not self._world.snapshot.pods_of_node.get(name):
            self._allocatable.pop(name, None)
            self._excused.pop(name, None)
            self._counted.pop(name, None)
        elif why:
            self._excused[name] = _Excuse(why, offset)

    def is_excused(self, name: str) -> bool:
        """Whether a node may be over now."""
        return name in self._excused

    def _excuse(self, node: Node, offset: int, *, why: str) -> None:
        before = self._allocatable.get(node.name, {})
        shrank = any(node.allocatable.get(r, 0) < amount for r, amount in before.items())
        self._allocatable[node.name] = node.allocatable
        if shrank:
            self._excused[node.name] = _Excuse(SHRANK, offset)
        elif why:
            self._excused[node.name] = _Excuse(why, offset)

    def _unsent(self, batch: Batch) -> dict[str, str]:
        """Nodes to which a pod came that no request of ours sends there now, and why it came."""
        found: dict[str, str] = {}
        for row in batch.rows:
            if not isinstance(row, Upserted) or not isinstance(row.obj, Pod) or not row.obj.node:
                continue
            pod = row.obj
            sent = [r for r in self._world.requests.of_pod(pod.uid) if not r.evict]
            sent = [r for r in sent if r.node == pod.node]
            if not sent:
                found[pod.node] = FOREIGN
            elif pod.uid not in self._counted.get(pod.node, ()) and all(
                _was_done_before(r, row.incarnation) for r in sent
            ):
                found.setdefault(pod.node, RESTORED)
        return found


def overload(node: Node, pods: Iterable[PodRow]) -> str:
    """What is given out on a node beyond what there is, in words; "" = nothing.

    Args:
        node: with its allocatable amounts.
        pods: the active ones on it.

    A shared device is held by its sharers together, not by the pod that reserves it.
    """
    used: dict[str, int] = {}
    shares: dict[str, int] = {}
    for row in pods:
        marks = row.pod.reserves_device
        for resource, amount in row.pod.spec.requests.items():
            if resource != GPU or not marks:
                used[resource] = used.get(resource, 0) + amount
        for group in () if marks else row.state.gpu_groups:
            shares[group] = shares.get(group, 0) + _share_micro(row, node)
    if shares:
        used[GPU] = used.get(GPU, 0) + len(shares) * GPU_MICRO
    over = [
        f"{resource} {amount} of {node.allocatable[resource]}"
        for resource, amount in sorted(used.items())
        if resource in node.allocatable and amount > node.allocatable[resource]
    ]
    over += [
        f"shared device {group} {share} of {GPU_MICRO} millionths"
        for group, share in sorted(shares.items())
        if share > GPU_MICRO
    ]
    return ", ".join(over)


def active(pods: Iterable[PodRow]) -> list[PodRow]:
    """Those that hold what they ask for."""
    return [row for row in pods if row.state.status in ACTIVE_USED]


def _was_done_before(request: Request, incarnation: int) -> bool:
    """Whether it was told before a restore of etcd that the pod is bound; it does not send then."""
    is_bound = isinstance(request.outcome.final, Bound)
    return is_bound and request.incarnation < incarnation and not request.doubted_ms


def _share_micro(row: PodRow, node: Node) -> int:
    """Share of each of its devices, millionths: as granted, without the rounding up of that."""
    granted = row.state.gpu_portion * HUNDREDTH
    gpu = row.pod.spec.gpu
    if gpu.memory_mib:
        asked = gpu.memory_mib * GPU_MICRO // node.gpu_memory_mib if node.gpu_memory_mib else 0
    else:
        asked = round(gpu.portion * GPU_MICRO)
    return asked if not granted or granted - HUNDREDTH < asked <= granted else granted
