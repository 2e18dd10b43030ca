"""Safety: what must hold after every accepted batch, whatever fails meanwhile."""

from kai_es.audit.findings import Findings
from kai_es.audit.reading import Reading
from kai_es.eventlog.memory import MemoryLog
from kai_es.events.catalogue import SNAPSHOT
from kai_es.events.snapshot import Removed
from kai_es.kube.objects import Pod
from kai_es.ports.eventlog import Position
from kai_es.snapshot.lifecycle import ENDED_PHASES
from kai_es.snapshot.world import World


class Watcher:
    """Follows `snapshot` and looks at the log's world after each batch.

    Invariants 1, 3, 4, 7, 8, 10, 11 and 13 as `log verify` checks them; 14 and 15 against the API
    server; 19 in the books as they are stored.
    """

    def __init__(self, world):
        self._world = world
        self._findings = Findings()
        self.reading = Reading(World(), self._findings, is_whole=True)
        self._n_commits = 0

    async def run(self):
        log = MemoryLog(store=self._world.store)
        async for chunk in log.read(SNAPSHOT, 0, Position(0), follow=True):
            for entry in chunk:
                batch = self.reading.take(entry)
                if batch is not None:
                    self._look(batch)

    def _look(self, batch):
        if self._findings.n_violations:
            found = self._findings.report().violations[0]
            self._violated(found.invariant, f"{found.where}: {found.text}")
        for row in batch.rows:
            if isinstance(row, Removed) and row.uid in self._world.truth.alive.get(row.kind, {}):
                self._violated("14", f"{row.kind} {row.uid} is removed in the log but alive")
        self._accounted()
        self._booked()

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

    def _booked(self):
        usage = self._world.usage
        if usage.database.n_commits == self._n_commits:
            return
        self._n_commits = usage.database.n_commits
        try:
            usage.books.check()
        except AssertionError as exc:
            self._violated("19", str(exc))

    def _violated(self, invariant, text):
        self._world.failures.violated(invariant, text)
