"""From the state to the rows that columns are built from, for what has changed.

Everything shown is derived: showing all of a restored state gives the rows that showing change by
change gave.
"""

from typing import Final

import msgspec

from kai_es.kube.devices import DeviceClass, ResourceClaim, ResourceSlice
from kai_es.kube.objects import Node, Pod, PodGroup, PriorityClass, Queue, ShardConfig
from kai_es.snapshot.effective import TaskState
from kai_es.snapshot.lifecycle import task_state
from kai_es.snapshot.pools import MOVING
from kai_es.snapshot.ranking import Live
from kai_es.snapshot.relevance import same_task
from kai_es.snapshot.state import State

INCARNATION_RANK: Final = 1 << 64
"""Above any resourceVersion: turns (incarnation, rv) into one number where names are resolved."""


class Touched:
    """What the rows of one batch may have changed, in order of first mention.

    decided: pods that a cycle has just ordered something for.
    """

    __slots__ = ("decided", "groups", "nodes", "others", "pods")

    def __init__(self) -> None:
        self.pods: dict[str, None] = {}
        self.groups: dict[str, None] = {}
        self.nodes: dict[str, None] = {}
        self.others: dict[tuple[str, str], None] = {}
        self.decided: set[str] = set()

    def add(self, kind: str, uid: str) -> None:
        """An object, or what is known of it, may have changed."""
        match kind:
            case "Pod":
                self.pods[uid] = None
            case "PodGroup":
                self.groups[uid] = None
            case "Node":
                self.nodes[uid] = None
            case _:
                self.others[kind, uid] = None


def show(state: State, touched: Touched) -> bool:
    """Show what has changed; returns whether `decide` reads any of it, cycles' own orders aside."""
    display = _Display(state, touched)
    for uid in touched.pods:
        display.pod(uid)
    for uid in touched.groups:
        display.group(uid)
    for uid in touched.nodes:
        display.node(uid)
    for kind, uid in touched.others:
        display.other(kind, uid)
    snapshot = state.snapshot
    snapshot.offset, snapshot.time_ms = state.offset, state.time
    snapshot.devices.served = state.liveness.is_served("ResourceClaim")
    snapshot.resume = {name: shard.resume for name, shard in state.reigns.shards.items()}
    return display.has_changed


class _Display:
    def __init__(self, state: State, touched: Touched) -> None:
        self.has_changed = False
        self._state = state
        self._snapshot = state.snapshot
        self._touched = touched

    def pod(self, uid: str) -> None:
        seen = self._state.sighting(uid)
        self._state.requests.trim(uid, seen)
        shown = self._snapshot.pods.get(uid)
        task: TaskState | None = None
        if seen.pod is None:
            self._snapshot.remove_pod(uid)
        else:
            entry = self._state.objects.live["Pod"][uid]
            task = task_state(seen, self._state.requests.of_pod(uid))
            if shown is None or not same_task(shown.state, task):
                self.has_changed = self.has_changed or uid not in self._touched.decided
            if shown is None or shown.pod is not seen.pod or shown.state != task:
                self._snapshot.set_pod(seen.pod, rv=entry.rv, task=task)
        for node in self._state.parking.judge(uid, seen.pod, task):
            self.has_changed = True
            for node_uid in self._snapshot.nodes.uids(node):
                self._touched.nodes[node_uid] = None

    def group(self, uid: str) -> None:
        entry = self._state.objects.get("PodGroup", uid)
        if entry is None:
            self._snapshot.remove_group(uid)
            return
        assert isinstance(entry.obj, PodGroup)
        state = self._state.standings.state(entry.obj)
        move = self._state.pools.moves.get(("PodGroup", uid))
        if move is not None and state.held is None:
            state = msgspec.structs.replace(state, held=move.reason())
        self._snapshot.set_group(entry.obj, rv=_name_rank(entry), state=state)

    def node(self, uid: str) -> None:
        entry = self._state.objects.get("Node", uid)
        if entry is None:
            self._snapshot.remove_node(uid)
            return
        assert isinstance(entry.obj, Node)
        closed = self._state.parking.reasons(entry.obj.name)
        if ("Node", uid) in self._state.pools.moves:
            closed = (*closed, MOVING)
        self._snapshot.set_node(entry.obj, rv=_name_rank(entry), closed=closed)

    def other(self, kind: str, uid: str) -> None:
        entry = self._state.objects.get(kind, uid)
        if entry is None:
            remove = {
                "Queue": self._snapshot.remove_queue,
                "PriorityClass": self._snapshot.remove_priority_class,
                "ShardConfig": self._snapshot.remove_config,
                "ResourceClaim": self._snapshot.remove_claim,
                "ResourceSlice": self._snapshot.remove_slice,
                "DeviceClass": self._snapshot.remove_device_class,
            }.get(kind)
            if remove is not None:
                remove(uid)
            else:
                self._snapshot.remove_object(kind, uid)
            return
        obj = entry.obj
        match obj:
            case Queue():
                self._snapshot.set_queue(obj, rv=_name_rank(entry))
            case PriorityClass():
                self._snapshot.set_priority_class(obj, rv=_name_rank(entry))
            case ShardConfig():
                self._snapshot.set_config(obj)
            case ResourceClaim():
                self._snapshot.set_claim(obj, rv=_name_rank(entry))
            case ResourceSlice():
                self._snapshot.set_slice(obj, rv=_name_rank(entry))
            case DeviceClass():
                self._snapshot.set_device_class(obj, rv=_name_rank(entry))
            case Pod() | Node() | PodGroup():
                raise AssertionError(f"{kind} has a way of its own")
            case _:
                self._snapshot.set_object(obj, rv=_name_rank(entry))


def _name_rank(entry: Live) -> int:
    """Rank among the live uids of one name, as one number."""
    return entry.incarnation * INCARNATION_RANK + entry.rv
