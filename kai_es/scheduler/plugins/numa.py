"""Pods onto nodes whose kubelet will align them to NUMA zones, in as few zones as can be.

The plugin keeps the books of the zones: a pod that starts takes from what is free and from what is
free now, one that waits from what is free later, one that leaves still holds what it had.

Reference: pkg/scheduler/plugins/numa (plugins §15).
"""

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kai_es.events.decisions import Reason
from kai_es.kube.topologies import NumaNode
from kai_es.scheduler.columns.nodes import NO_ROW, NodeFacts
from kai_es.scheduler.flags import LEAVING_ZONES_FREE, ZONES_ANEW
from kai_es.scheduler.framework.extensions import TaskMask
from kai_es.scheduler.framework.fit import Fit, NodeSet
from kai_es.scheduler.framework.session import Session
from kai_es.scheduler.framework.statuses import IS_ALLOCATED, IS_USED, PIPELINED, RELEASING
from kai_es.scheduler.numa.alignment import (
    MODELLED,
    SCORED,
    Placement,
    Room,
    Zones,
    align,
    charged,
    zones_of,
)
from kai_es.scheduler.numa.records import Record, placement_of, record_from, record_of
from kai_es.scheduler.numa.requests import is_device, units_of
from kai_es.snapshot.shapes import Shape

FEWEST: Final = 100.0
"""Score of a node that serves a pod from one zone; from n zones it is an nth of it."""

_FALSE: Final = frozenset({"0", "f", "F", "FALSE", "false", "False"})

RUNS: Final = "runs"
WAITS: Final = "waits"
LEAVES: Final = "leaves"
GONE: Final = "gone"

_Mask = NDArray[np.bool_]
_Scores = NDArray[np.float64]


class Settings(NamedTuple):
    """Arguments of the plugin.

    ignored:     resources that are not aligned.
    reconstruct: what zones have is worked out from the pods there, not taken as reported.
    """

    ignored: frozenset[str] = frozenset()
    reconstruct: bool = True


def settings_of(arguments: Mapping[str, str]) -> Settings:
    """The arguments; what cannot be read has its default."""
    names = (name.strip() for name in arguments.get("ignoreList", "").split(","))
    return Settings(
        frozenset(name for name in names if name),
        arguments.get("reconstructAvailable", "") not in _FALSE,
    )


def open_numa(session: Session, arguments: Mapping[str, str]) -> None:
    """Register the rule, the score and the books."""
    numa = Numa(session, settings_of(arguments))
    ext = session.ext
    ext.task_rules.append(numa)
    ext.scores.append(numa.score)
    ext.allocated.append(numa.allocated)
    ext.deallocated.append(numa.deallocated)
    ext.choose_zones = numa.choose
    ext.zones = numa.record


class Held(NamedTuple):
    """What a task has of a node's zones.

    state: RUNS | WAITS | LEAVES | GONE (had, in case that is undone).
    under: of one that waits on its own node: what it still holds there.
    """

    placement: Placement
    state: str
    under: "Held | None" = None


class _Rooms:
    """What the zones of each node have left: in the end, and for who starts now."""

    def __init__(self, rooms: list[tuple[Room, Room]]) -> None:
        self._rooms = rooms
        self.changes: list[int] = []

    def __getitem__(self, n: int) -> tuple[Room, Room]:
        return self._rooms[n]

    def __setitem__(self, n: int, rooms: tuple[Room, Room]) -> None:
        self._rooms[n] = rooms
        self.changes.append(n)


class _Kind:
    """One shape against all nodes.

    later, now: bool [N], it can be aligned, or need not be.
    score:      float64 [N].
    """

    def __init__(self, shape: Shape, n_nodes: int) -> None:
        self.units = units_of(shape.spec)
        self.later = np.ones(n_nodes, np.bool_)
        self.now = np.ones(n_nodes, np.bool_)
        self.score = np.zeros(n_nodes)
        self.seen = -1
        self.scored = False


class Numa:
    """The books of one session."""

    def __init__(self, session: Session, settings: Settings) -> None:
        self._session = session
        self._settings = settings
        rows = session.columns.rows
        self._nodes = [rows.object("NodeResourceTopology", f.name) for f in _facts(session)]
        self.zones = [zones_of(n) if isinstance(n, NumaNode) else None for n in self._nodes]
        self._most = max((len(z.names) for z in self.zones if z is not None), default=0)
        self._kinds: dict[Shape, _Kind] = {}
        self._held: dict[tuple[int, int], Held | None] = {}
        self._chosen: Placement | None = None
        self._merged = LEAVING_ZONES_FREE in session.flags
        rooms = [((), ()) if z is None else self._at_start(z) for z in self.zones]
        self.rooms = _Rooms(rooms)
        self._seed()

    def _at_start(self, zones: Zones) -> tuple[Room, Room]:
        whole = self._settings.reconstruct and zones.policy in SCORED
        room = zones.allocatable if whole else zones.available
        return room, room

    def _seed(self) -> None:
        """Take over what is known of the pods that are there."""
        session = self._session
        for row in session.rows:
            if row is None:
                continue
            status = session.columns.status_of(row)
            stays = status in IS_ALLOCATED or status == PIPELINED
            if not stays and status not in IS_USED:
                continue
            n = session.nodes.columns.row.get(row.state.node, NO_ROW)
            zones = self.zones[n] if n != NO_ROW else None
            if zones is None or not self.concerns(row.shape, zones):
                continue
            record = record_of(row.pod.annotations, row.state.zones)
            placement = placement_of(record, zones.names)
            if placement:
                held = Held(placement, RUNS if stays else LEAVES)
                self._held[row.row, n] = held
                if self._settings.reconstruct and zones.policy in SCORED:
                    self.rooms[n] = self._with(self.rooms[n], held, -1)

    # -- whom it concerns

    def kind(self, shape: Shape) -> _Kind:
        """What is known of a shape, up to date."""
        found, changes = self._made(shape), self.rooms.changes
        if found.seen < 0:
            found.scored = self._is_sensitive(shape)
            for n in range(len(self.zones)):
                self._look(found, shape, n)
        else:
            for n in set(changes[found.seen :]):
                self._look(found, shape, n)
        found.seen = len(changes)
        return found

    def concerns(self, shape: Shape, zones: Zones) -> bool:
        """Whether pods of a shape are aligned by a node with these zones."""
        if shape.spec.guaranteed:
            return True
        pod = self._made(shape).units.pod
        return any(pod.get(name, 0) > 0 and is_device(name) for name in self._aware(zones))

    def _made(self, shape: Shape) -> _Kind:
        found = self._kinds.get(shape)
        if found is None:
            found = self._kinds[shape] = _Kind(shape, len(self.zones))
        return found

    def _aware(self, zones: Zones) -> frozenset[str]:
        return zones.aware - self._settings.ignored

    def aligned(self, shape: Shape, zones: Zones) -> frozenset[str]:
        """Resources of which a shape's requests are aligned."""
        aware = self._aware(zones)
        return aware if shape.spec.guaranteed else frozenset(n for n in aware if is_device(n))

    def _is_sensitive(self, shape: Shape) -> bool:
        """Whether the topology of some node matters to a shape."""
        if self._most == 0:
            return False
        if shape.spec.guaranteed:
            return True
        scored = (zones for zones in self.zones if zones is not None and zones.policy in SCORED)
        return any(self.concerns(shape, zones) for zones in scored)

    def _look(self, kind: _Kind, shape: Shape, n: int) -> None:
        """Whether, and how well, a node aligns a shape."""
        zones = self.zones[n]
        if zones is None:
            kind.score[n] = FEWEST / self._most if kind.scored else 0.0
            return
        span = len(zones.names)
        if zones.policy in SCORED and self.concerns(shape, zones):
            later = self.place(shape, n, now=False)
            if zones.policy in MODELLED:
                kind.later[n] = later is not None
                kind.now[n] = later is not None and self.place(shape, n, now=True) is not None
            span = 0 if later is None else max(len(later), 1)
        kind.score[n] = FEWEST / span if kind.scored and span else 0.0

    def place(self, shape: Shape, n: int, *, now: bool) -> Placement | None:
        """Where a node's zones would have a pod of this shape, None = nowhere."""
        zones = self.zones[n]
        if zones is None or zones.policy not in SCORED or not self.concerns(shape, zones):
            return ()
        free, free_now = self.rooms[n]
        room = _least(free, free_now) if now and free_now != free else free
        return align(zones, room, self._made(shape).units, self.aligned(shape, zones))

    # -- the rule and the score

    def mask(self, task: int) -> TaskMask | None:
        """Where a task may go, None = anywhere."""
        if self._most == 0:
            return None
        kind = self.kind(self._session.row(task).shape)
        return TaskMask(kind.now, kind.later)

    def why(self, task: int) -> Iterable[tuple[_Mask, Reason]]:
        """Nodes that are left out."""
        if self._most == 0:
            return ()
        kind = self.kind(self._session.row(task).shape)
        return [(~kind.later, Reason(code="numa"))]

    def score(self, _fit: Fit, _nodes: NodeSet, task: int) -> _Scores | float:
        """Up to 100 for one zone."""
        kind = self.kind(self._session.row(task).shape)
        return kind.score if kind.scored else 0.0

    # -- the books

    def choose(self, task: int, n: int, idle: bool) -> bool:
        """Choose zones for a task that is about to be placed.

        Returns:
            Whether a victim that finds itself on its own node has to start anew in other zones.
        """
        self._chosen = None
        zones = self.zones[n]
        if zones is None:
            return False
        shape = self._session.row(task).shape
        self.kind(shape)
        placement = self.place(shape, n, now=idle) or ()
        held = self._held.get((task, n))
        if held is not None and held.state == LEAVES and self._session.virtual[task]:
            if not placement or self._may_stay(shape, zones, n, held.placement, placement):
                return False
            self._chosen = placement
            return True
        self._chosen = placement
        return False

    def _may_stay(self, shape: Shape, zones: Zones, n: int, old: Placement, new: Placement) -> bool:
        """Whether a victim can keep its zones."""
        names = self.aligned(shape, zones)
        mine = {zone: {k: v for k, v in part.items() if k in names} for zone, part in old}
        if mine == dict(new):
            return True
        if ZONES_ANEW in self._session.flags:
            return False
        free = self.rooms[n][0]
        return all(
            free[zone].get(name, 0) >= amount
            for zone, part in mine.items()
            for name, amount in part.items()
        )

    def allocated(self, task: int, n: int) -> None:
        """A task was placed, or is back where it was."""
        chosen, self._chosen = self._chosen, None
        if self.zones[n] is None:
            return
        old = self._held.get((task, n))
        placement = chosen if chosen is not None else (() if old is None else old.placement)
        if not placement and old is None:
            return
        waits = self._session.status[task] == PIPELINED
        under = old if waits and old is not None and old.state == LEAVES else None
        self._write(task, n, old, Held(placement, WAITS if waits else RUNS, under))

    def deallocated(self, task: int, n: int) -> None:
        """A task was evicted, or its placement undone."""
        old = self._held.get((task, n))
        if old is None or old.state in (GONE, LEAVES):
            return
        session = self._session
        if old.state == WAITS:
            new = old.under or Held(old.placement, GONE)
        else:
            home = session.nodes.columns.row.get(session.row(task).state.node, NO_ROW)
            leaves = session.status[task] == RELEASING and home == n
            new = Held(old.placement, LEAVES if leaves else GONE)
        self._write(task, n, old, new)

    def _write(self, task: int, n: int, old: Held | None, new: Held) -> None:
        journal = self._session.journal
        journal.append((self._held, (task, n), old))
        self._held[task, n] = new
        before = rooms = self.rooms[n]
        if old is not None:
            rooms = self._with(rooms, old, 1)
        journal.append((self.rooms, n, before))
        self.rooms[n] = self._with(rooms, new, -1)

    def _with(self, rooms: tuple[Room, Room], held: Held, sign: int) -> tuple[Room, Room]:
        free, now = rooms
        if held.state in (RUNS, WAITS):
            free = charged(free, held.placement, sign)
        if self._merged:
            return free, free
        for one in (held, held.under):
            if one is not None and one.state in (RUNS, LEAVES):
                now = charged(now, one.placement, sign)
        return free, now

    def placement(self, task: int, n: int) -> Placement:
        """The zones that a task has on a node."""
        held = self._held.get((task, n))
        return () if held is None or held.state == GONE else held.placement

    def record(self, task: int, n: int) -> Record:
        """The same as the bind request has it."""
        node = self._nodes[n]
        if not isinstance(node, NumaNode):
            return ()
        names = [zone.name for zone in node.zones]
        return record_from(self.placement(task, n), names, node.gpus)


def _facts(session: Session) -> Iterable[NodeFacts]:
    return session.nodes.columns.facts


def _least(one: Room, other: Room) -> Room:
    return tuple(
        {name: min(amount, b.get(name, 0)) for name, amount in a.items()}
        for a, b in zip(one, other, strict=True)
    )
