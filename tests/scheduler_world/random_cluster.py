"""Random clusters: queues, running and pending jobs, from a seed and a profile."""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from kai_es.kube.objects import PriorityClass, SubGroup, TopologyConstraint
from kai_es.kube.topologies import Topology, TopologyLevel
from kai_es.snapshot.effective import GroupState
from kai_es.snapshot.status import TaskStatus
from tests.scheduler_world import NOW_MS, World, a_queue, a_spec

PROFILES = (
    "basic",
    "fair",
    "gang",
    "reclaim",
    "preempt",
    "consolidate",
    "topology",
    "affinity",
    "everything",
)
TOPOLOGY = Topology(
    uid="net", name="net", levels=tuple(map(TopologyLevel, ("zone", "rack", "host")))
)
PRIORITIES = {"train": 50, "build-preemptible": 75, "build": 100, "inference": 125}


@dataclass(slots=True)
class _Node:
    name: str
    pool: str
    gpus: int
    cpu: int
    slots: int = 100


class RandomCluster:
    """One cluster; `world` holds its rows."""

    def __init__(self, profile: str, seed: int) -> None:
        self.rng = random.Random(f"{profile}-{seed}")
        self.profile = profile
        self.world = World()
        for name, value in PRIORITIES.items():
            self.world.snapshot.set_priority_class(
                PriorityClass(uid=name, name=name, value=value), rv=1
            )
        self.has_topology = profile in ("topology", "everything")
        if self.has_topology:
            self.world.snapshot.set_object(TOPOLOGY, rv=1)
        self.nodes = self._nodes()
        self.leaves = self._queues(sum(node.gpus for node in self.nodes))
        for number in range(self.rng.randint(4, 24)):
            self._job(number)

    def _nodes(self) -> list[_Node]:
        rng = self.rng
        found = []
        for i in range(rng.randint(2, 9)):
            gpus, cpu = rng.choice((2, 4, 8)), rng.choice((16, 32, 64))
            pool = rng.choice(("", "", "", "a", "b"))
            name = f"n{i:02d}"
            labels = {"pool": pool} if pool else {}
            if self.has_topology or self.profile == "affinity":
                labels |= {"zone": f"z{i % 2}", "rack": f"r{i // 2 % 2}", "host": name}
                if rng.random() < 0.1:
                    del labels["rack"]
            fields: dict[str, Any] = {"labels": labels}
            if rng.random() < 0.1:
                fields["unschedulable"] = True
            self.world.node(name, gpus, more={"cpu": cpu * 1000}, **fields)
            found.append(_Node(name, pool, gpus, cpu * 1000))
        return found

    def _queues(self, total: int) -> list[str]:
        rng, leaves = self.rng, []
        for d in range(rng.randint(1, 3)):
            dep = f"d{d}"
            self._queue(dep, "", rng.choice((-1, total // 2, total // 3)), rng.choice((-1, total)))
            for t in range(rng.randint(1, 3)):
                leaf = f"{dep}-t{t}"
                quota = rng.choice((0, 1, 2, total // 6, total // 4))
                self._queue(leaf, dep, quota, rng.choice((-1, -1, max(1, total // 3))))
                leaves.append(leaf)
        return leaves

    def _queue(self, name: str, parent: str, quota: int, limit: int) -> None:
        rng = self.rng
        queue = a_queue(
            name,
            quota,
            parent,
            limit=limit,
            priority=rng.choice((100, 100, 50, 200)),
            created_ms=NOW_MS - rng.randint(0, 3) * 1000,
        )
        self.world.snapshot.set_queue(queue, rv=1)

    def _job(self, number: int) -> None:
        rng, profile = self.rng, self.profile
        name, leaf = f"j{number:03d}", rng.choice(self.leaves)
        gang = profile in ("gang", "reclaim", "topology", "everything") and rng.random() < 0.5
        size = rng.choice((2, 3, 4)) if gang else 1
        share = profile == "everything" and rng.random() < 0.3
        gpus: float = rng.choice((0.25, 0.5)) if share else rng.choice((1, 1, 1, 2, 4))
        if profile == "everything" and rng.random() < 0.2:
            gpus = 0
        priority = rng.choice(
            ("train", "train", "train", "build", "build-preemptible", "inference")
        )
        selector = {"pool": rng.choice(("a", "b"))} if rng.random() < 0.1 else {}
        social = profile in ("affinity", "everything") and rng.random() < 0.6
        spec = a_spec(
            gpus,
            affinity=self._affinity() if social else None,
            host_ports=(("TCP", "", 80),) if social and rng.random() < 0.2 else (),
            cpu=rng.choice((500, 1000, 4000)),
            node_selector=selector,
            priority=PRIORITIES[priority],
            priority_class=priority,
        )
        running = rng.random() < {"fair": 0.5, "basic": 0.4, "preempt": 0.7}.get(profile, 0.65)
        hosts = self._hosts(size, gpus, spec.requests["cpu"], selector) if running else None
        self._store(name, leaf, size, spec, priority, hosts)

    def _constraint(self) -> TopologyConstraint:
        """Required, preferred or both; now and then one that cannot be understood."""
        levels = ("", "zone", "rack", "host")
        required, preferred = self.rng.choice(levels[:3]), self.rng.choice(levels)
        name = "net" if self.rng.random() < 0.95 else "unknown"
        return TopologyConstraint(topology=name, required=required, preferred=preferred)

    def _affinity(self) -> Any:
        """Terms about pods of one app, which may be its own."""
        rng = self.rng

        def terms() -> list[Any]:
            app = rng.choice(("a", "b", "c"))
            key = rng.choice(("host", "zone"))
            return [{"topologyKey": key, "labelSelector": {"matchLabels": {"app": app}}}]

        required = "requiredDuringSchedulingIgnoredDuringExecution"
        found = {}
        if rng.random() < 0.3:
            found["podAffinity"] = {required: terms()}
        if rng.random() < 0.7:
            found["podAntiAffinity"] = {required: terms()}
        return found or None

    def _hosts(
        self, size: int, gpus: float, cpu: int, selector: dict[str, str]
    ) -> list[str] | None:
        if 0 < gpus < 1:
            return None
        taken: list[_Node] = []
        for _ in range(size):
            fits = [
                node
                for node in self.nodes
                if node.gpus >= gpus
                and node.cpu >= cpu
                and selector.get("pool", node.pool) == node.pool
            ]
            if not fits:
                for node in taken:
                    node.gpus, node.cpu = node.gpus + int(gpus), node.cpu + cpu
                return None
            node = self.rng.choice(fits)
            node.gpus, node.cpu = node.gpus - int(gpus), node.cpu - cpu
            taken.append(node)
        return [node.name for node in taken]

    def _store(
        self,
        name: str,
        leaf: str,
        size: int,
        spec: Any,
        priority: str,
        hosts: Sequence[str] | None,
    ) -> None:
        rng = self.rng
        labels = {"app": rng.choice(("a", "b", "c"))}
        fields: dict[str, Any] = {
            "priority_class": priority,
            "preemptibility": "",
            "min_member": rng.randint(1, size) if rng.random() < 0.3 else size,
            "state": GroupState(last_start_ms=NOW_MS - 60_000 if hosts else 0),
        }
        if self.has_topology and rng.random() < 0.6:
            fields["topology"] = self._constraint()
        if size > 2 and rng.random() < 0.3:
            together = (
                (self._constraint(), self._constraint()) if self.has_topology else (None, None)
            )
            fields["sub_groups"] = (
                SubGroup(name="a", min_member=1, topology=together[0]),
                SubGroup(name="b", min_member=size - 2, topology=together[1]),
            )
            fields["min_sub_group"] = rng.choice((None, 1))
            self.world.group(name, queue=leaf, **fields)
            for number in range(size):
                node = hosts[number] if hosts else ""
                sub_group = "a" if number < 2 else "b"
                self.world.pod(
                    f"{name}-{number}", name, node, spec=spec, sub_group=sub_group, labels=labels
                )
            return
        status = None
        if hosts and rng.random() < 0.05:
            status = TaskStatus.RELEASING
        self.world.group(
            name,
            *(hosts or [""] * size),
            queue=leaf,
            spec=spec,
            status=status,
            labels=labels,
            **fields,
        )
