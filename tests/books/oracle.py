"""Usage the slow way: after every row the whole state from scratch, summed over every stretch."""

from kai_es.events.snapshot import Removed, Upserted
from kai_es.kube.objects import Node, Pod, PodGroup, Queue, kind_of

GAP_MS = 5_000
RESOURCES = ("cpu", "memory", "gpu")


class Oracle:
    """Sums of amount × ms: `held` by (pod, node, path, resource), `waited`, `offered`.

    `nodes`: (node, resource) -> [allocated, idle, down, capacity, over].
    """

    def __init__(self):
        self.versions = {}
        self.time = self.last = 0
        self.held, self.waited, self.offered, self.nodes = {}, {}, {}, {}

    def fold(self, batch):
        prev = self.last
        gap = prev and batch.time - prev > GAP_MS
        entries = []
        for n, (row, origin) in enumerate(zip(batch.rows, batch.origins, strict=True)):
            at = min(max(origin.ingest_ms, prev), batch.time) if gap else batch.time
            entries.append((at, n, row))
        for at, _, row in sorted(entries, key=lambda entry: entry[:2]):
            self.advance(at)
            self._see(row)
        self.advance(batch.time)
        self.last = batch.time

    def _see(self, row):
        if isinstance(row, Upserted):
            key, rank, obj = (kind_of(row.obj), row.obj.uid), (row.incarnation, row.rv, 0), row.obj
        elif isinstance(row, Removed):
            key, rank, obj = (row.kind, row.uid), (row.incarnation, row.rv, 1), None
        else:
            return
        if key not in self.versions or self.versions[key][0] < rank:
            self.versions[key] = (rank, obj)

    def advance(self, to):
        """Add what holds now, from the last time to this one."""
        ms, self.time = to - self.time, max(to, self.time)
        if ms <= 0 or not self.versions:
            return
        live = [(rank, obj) for rank, obj in self.versions.values() if obj is not None]

        def named(kind, name):
            found = [
                (rank, obj.uid, obj)
                for rank, obj in live
                if isinstance(obj, kind) and name == _name(obj)
            ]
            return max(found, key=lambda e: e[:2])[2] if found else None

        on_node = {}
        for _, pod in live:
            if not isinstance(pod, Pod) or pod.phase in ("Succeeded", "Failed"):
                continue
            group = named(PodGroup, (pod.namespace, pod.group)) if pod.group else None
            queue = (group.queue if group else "") or pod.labels.get("kai.scheduler/queue", "")
            path = []
            while queue and queue not in path:
                path.insert(0, queue)
                found = named(Queue, queue)
                queue = found.parent if found else ""
            if pod.node:
                for name in RESOURCES:
                    amount = pod.spec.requests.get(name, 0)
                    _add(self.held, (pod.uid, pod.node, tuple(path), name), amount * ms)
                    where = (pod.node, name)
                    on_node[where] = on_node.get(where, 0) + amount
            elif not pod.gated and not pod.deleted_ms:
                for name in RESOURCES:
                    amount = pod.spec.requests.get(name, 0)
                    _add(self.waited, (pod.uid, tuple(path), name), amount * ms)
        for name in {obj.name for _, obj in live if isinstance(obj, Node)}:
            node = named(Node, name)
            down = node.conditions.get("Ready", "True") != "True"
            state = "down" if down else "drained" if node.unschedulable else "up"
            for resource in RESOURCES:
                capacity = node.allocatable.get(resource, 0)
                _add(self.offered, (name, state, resource), capacity * ms)
                self._identity(name, resource, state, capacity, on_node, ms)

    def _identity(self, name, resource, state, capacity, on_node, ms):
        used = on_node.get((name, resource), 0)
        free = max(capacity - used, 0)
        sums = self.nodes.setdefault((name, resource), [0, 0, 0, 0, 0])
        sums[3] += capacity * ms
        if state == "down":
            sums[2] += capacity * ms
            return
        sums[0] += used * ms
        sums[1 if state == "up" else 2] += free * ms
        sums[4] += max(used - capacity, 0) * ms


def _name(obj):
    return (obj.namespace, obj.name) if isinstance(obj, PodGroup) else obj.name


def _add(sums, key, amount):
    if amount:
        sums[key] = sums.get(key, 0) + amount
