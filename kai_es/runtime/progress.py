"""Where a cluster stands, read from the log: counts for the live view, and one line of text."""

from collections import Counter
from dataclasses import dataclass, field
from typing import Final

from kai_es.audit.load import active, overload
from kai_es.audit.story import ENDED
from kai_es.events.decisions import Bind, Cycle, Evict
from kai_es.events.snapshot import Batch
from kai_es.kube.objects import Pod
from kai_es.reader import View
from kai_es.scheduler.reasons.codes import NOT_READY
from kai_es.snapshot.reigns import Introduced
from kai_es.snapshot.status import TaskStatus
from kai_es.snapshot.world import Applied, World

ENDED_PHASES: Final = ("Succeeded", "Failed")

REST: Final = (
    "(some pods of their gangs have ended, and too few are left to run together: they wait for "
    "new ones, as with KAI)"
)


@dataclass(slots=True)
class Tally:
    """Pods of pod groups by where they stand; together they are all live pods."""

    pending: int = 0
    binding: int = 0
    running: int = 0
    ended: int = 0

    @property
    def pods(self) -> int:
        """All of them."""
        return self.pending + self.binding + self.running + self.ended


def tally(world: World) -> Tally:
    """Count the live pods that belong to a pod group."""
    binding = {request_id.rpartition("/")[2] for request_id in world.open_requests()}
    counts = Counter(
        _standing(entry.obj, binding) for entry in world.objects.live.get("Pod", {}).values()
    )
    return Tally(**{name: counts[name] for name in ("pending", "binding", "running", "ended")})


def _standing(obj: object, binding: set[str]) -> str:
    assert isinstance(obj, Pod)
    if not obj.group:
        return "foreign"
    if obj.phase in ENDED_PHASES:
        return "ended"
    if obj.node:
        return "running"
    return "binding" if obj.uid in binding else "pending"


def waiting(world: World, shard: str) -> dict[str, int]:
    """Pending pods by the code of their group's dominant reason."""
    reasons = world.reigns.reasons.get(shard, {})
    counts: Counter[str] = Counter()
    for row in world.snapshot.pods.values():
        if row.state.status == TaskStatus.PENDING and row.pod.group:
            group = world.snapshot.groups.get((row.pod.namespace, row.pod.group))
            known = reasons.get(group.group.uid) if group is not None else None
            mates = world.snapshot.pods_of_group.get((row.pod.namespace, row.pod.group), {})
            has_ended = any(mate.state.status in ENDED for mate in mates.values())
            counts[_code(known, has_ended=has_ended)] += 1
    return dict(sorted(counts.items()))


def _code(known: Introduced | None, *, has_ended: bool) -> str:
    if known is None or not known.reasons:
        return "not-looked-at"
    dominant = known.reasons[0]
    if dominant.code == NOT_READY and has_ended:
        return f"{NOT_READY} {REST}"
    feature = dominant.args.get("feature")
    return dominant.code if feature is None else f"{dominant.code} ({feature})"


def overcommitted(world: World) -> list[str]:
    """Names of nodes on which pods hold more of something than the node has."""
    nodes = world.snapshot.nodes
    return [
        name
        for name, pods in sorted(world.snapshot.pods_of_node.items())
        if (row := nodes.get(name)) is not None and overload(row.node, active(pods.values()))
    ]


@dataclass(slots=True)
class Progress:
    """Follows a view and counts.

    n_cycles:   cycles seen; n_binding_cycles: those that contain a bind.
    last:       the newest cycle, None before the first.
    placed:     (namespace, name) of pods seen on a node; one that was evicted keeps its name.
    created:    those of all pods of pod groups ever seen.
    """

    view: View
    n_cycles: int = 0
    n_binding_cycles: int = 0
    n_binds: int = 0
    n_evictions: int = 0
    last: Cycle | None = None
    placed: set[tuple[str, str]] = field(default_factory=set)
    created: set[tuple[str, str]] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.view.listen(self._applied)

    def line(self, seconds: float) -> str:
        """One line of text; `seconds` since the start."""
        now = tally(self.view.world)
        return (
            f"{seconds:6.1f}s  pods {now.pods}: pending {now.pending}, binding {now.binding}, "
            f"running {now.running}, ended {now.ended}  cycles {self.n_cycles}, "
            f"binds {self.n_binds}, evictions {self.n_evictions}"
        )

    def _applied(self, applied: Applied, batch: Batch) -> None:
        del applied
        for row in batch.rows:
            if isinstance(row, Cycle):
                self._cycle(row)
            elif isinstance(obj := getattr(row, "obj", None), Pod) and obj.group:
                self.created.add((obj.namespace, obj.name))
                if obj.node:
                    self.placed.add((obj.namespace, obj.name))

    def _cycle(self, cycle: Cycle) -> None:
        ops = Counter(type(op) for op in cycle.decision.ops)
        self.last = cycle
        self.n_cycles += 1
        self.n_binding_cycles += bool(ops[Bind])
        self.n_binds += ops[Bind]
        self.n_evictions += ops[Evict]
