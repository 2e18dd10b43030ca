"""Safety: what must hold after every accepted batch, whatever fails meanwhile."""

from dataclasses import dataclass, field

from kai_es.audit.findings import Findings
from kai_es.audit.reading import Reading
from kai_es.eventlog.memory import MemoryLog
from kai_es.events.catalogue import SNAPSHOT
from kai_es.events.decisions import Bind, Cycle
from kai_es.events.snapshot import Parked, Removed, Upserted
from kai_es.intake.index import FIRST_INCARNATION
from kai_es.kube.labels import NODE_POOL_LABEL
from kai_es.kube.objects import Node, Pod, PodGroup
from kai_es.ports.eventlog import Position
from kai_es.snapshot.lifecycle import ENDED_PHASES
from kai_es.snapshot.world import World
from tests.worlds.accounts import identity
from tests.worlds.jobs import shard_name

IDENTITY_EVERY = 20
"""Commits; all buckets are swept then, and at the end."""


@dataclass
class _Place:
    """A node's or group's pool, and the offset that shows it.

    formers: shards that may still act on it -> offset that shows that it left them.
    """

    pool: str
    since: int
    formers: dict[str, int] = field(default_factory=dict)


class Watcher:
    """Follows `snapshot` and looks at the log's world after each batch.

    Invariants 1, 3, 4, 5 (shares), 7, 8, 10, 11 and 13 as `log verify` checks them; 14 and 15
    against the API server; 16 (nodes) by the pools' labels; 19 in the books as they are stored.
    """

    def __init__(self, world):
        self._world = world
        self._findings = Findings()
        self.reading = Reading(World(), self._findings, is_whole=True)
        self._n_commits = 0
        self._pools = {}

    async def run(self):
        log = MemoryLog(store=self._world.store)
        async for chunk in log.read(SNAPSHOT, 0, Position(0), follow=True):
            for entry in chunk:
                prev_ms = self.reading.world.time
                batch = self.reading.take(entry)
                if batch is not None:
                    self._shown(prev_ms, batch)
                    self._look(batch)

    def _shown(self, prev_ms, batch):
        """Note since when the log shows which pod where."""
        for row, origin in zip(batch.rows, batch.origins, strict=True):
            if isinstance(row, Removed) and row.kind == "Pod":
                uid = row.uid
            elif isinstance(row, Upserted) and isinstance(row.obj, Pod):
                uid = row.obj.uid
            else:
                continue
            truth = self._world.truth
            if row.incarnation == FIRST_INCARNATION + self._world.site.n_restores:
                truth.shown(uid)
            truth.use.shown(uid, row.rv, prev_ms=prev_ms, batch=batch, origin=origin)

    def _look(self, batch):
        if self._findings.n_violations:
            found = self._findings.report().violations[0]
            self._violated(found.invariant, f"{found.where}: {found.text}")
        for row in batch.rows:
            if isinstance(row, Removed):
                is_past = row.incarnation < FIRST_INCARNATION + self._world.site.n_restores
                if not is_past and row.uid in self._world.truth.alive.get(row.kind, {}):
                    self._violated("14", f"{row.kind} {row.uid} is removed in the log but alive")
            elif isinstance(row, Cycle):
                self._used_by_one(row)
            elif isinstance(row, Upserted) and isinstance(row.obj, Node | PodGroup):
                self._pooled(row.obj)
        self._let_go()
        self._accounted()
        self._booked()

    def _pooled(self, obj):
        """Note to which pool a node or group belongs now, and which offset shows it."""
        pool, offset = obj.labels.get(NODE_POOL_LABEL, ""), self.reading.world.offset
        place = self._pools.setdefault(obj.uid, _Place(pool, offset))
        if place.pool == pool:
            return
        if not place.formers:  # else the one it leaves now could not use it yet
            place.formers[shard_name(place.pool)] = offset
        place.formers.pop(shard_name(pool), None)
        place.pool, place.since = pool, offset

    def _let_go(self):
        """Forget shards that have seen that something left them, or do not reign any more."""
        for place in self._pools.values():
            if place.formers:
                place.formers = {
                    name: offset
                    for name, offset in place.formers.items()
                    if self._acts(name, offset)
                }

    def _acts(self, name, left):
        shard = self.reading.world.reigns.shards.get(name)
        return shard is not None and shard.is_reigning and shard.input_offset < left

    def _used_by_one(self, cycle):
        """Nodes and groups are used by one shard at a time, hand-over included (invariant 16)."""
        world = self.reading.world
        for op in cycle.decision.ops:
            if not isinstance(op, Bind):
                continue
            for request in world.requests.of_node(op.node_uid):
                if request.shard != cycle.shard and world.is_open(request):
                    text = f"{cycle.shard} binds to {op.node} beside {request.id}, which is open"
                    self._violated("16", text)
            self._in_its_pool(cycle, op.node_uid, f"node {op.node}")
            self._in_its_pool(cycle, op.group_uid, f"group {op.group_uid}")

    def _in_its_pool(self, cycle, uid, what):
        """What a cycle uses is in its shard's pool, and the former shard has let it go."""
        place = self._pools.get(uid)
        if place is None:
            return
        text = f"{cycle.shard}: cycle {cycle.cycle} uses {what}, which"
        if shard_name(place.pool) != cycle.shard and cycle.offset >= place.since:
            self._violated("16", f"{text} is in pool {place.pool!r}")
        for name, left in place.formers.items():
            if name != cycle.shard and self._acts(name, left):
                self._violated("16", f"{text} {name} has not let go")

    def _accounted(self):
        """Every bound pod is accounted, or its node is closed (invariant 15)."""
        world = self.reading.world
        for uid, entry in world.objects.live.get("Pod", {}).items():
            pod = entry.obj
            if not isinstance(pod, Pod) or not pod.node or pod.phase in ENDED_PHASES:
                continue
            row = world.snapshot.nodes.get(pod.node)
            if row is None or row.closed:
                continue
            if uid not in world.snapshot.pods_of_node.get(pod.node, {}):
                self._violated("15", f"pod {pod.name} on {pod.node} is not accounted there")
        for parked in world.parking.entries.values():
            if not isinstance(parked, Parked) or parked.kind != "Pod":
                continue
            row = world.snapshot.nodes.get(parked.node)
            if row is None or row.closed or parked.phase in ENDED_PHASES:
                continue
            pod = world.snapshot.pods_of_node.get(parked.node, {}).get(parked.uid)
            if pod is None or pod.pod.spec.requests != parked.requests:
                text = f"pod {parked.name}, which cannot be read, is not accounted on {parked.node}"
                self._violated("15", text)

    def _booked(self):
        usage = self._world.usage
        if usage.database.n_commits == self._n_commits:
            return
        self._n_commits = usage.database.n_commits
        try:
            usage.books.check()
        except AssertionError as exc:
            self._violated("19", str(exc))
        if self._n_commits % IDENTITY_EVERY == 0:
            wrong = identity(usage.books, usage.at.time_ms)
            if wrong:
                self._violated("19", wrong)

    def _violated(self, invariant, text):
        self._world.failures.violated(invariant, text)
