"""No zone is ever promised twice, whatever is placed, evicted, moved and undone."""

import json
from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from kai_es.events.decisions import Bind, Evict
from kai_es.kube.labels import NUMA_OBSERVED
from kai_es.kube.objects import PriorityClass
from kai_es.kube.topologies import NumaNode, NumaZone
from kai_es.scheduler import flags
from kai_es.scheduler.config import Config, PluginOption
from kai_es.scheduler.decide import close, open_session, run_action
from kai_es.scheduler.framework.statement import Statement
from kai_es.scheduler.plugins.numa import Numa
from kai_es.snapshot.status import TaskStatus
from tests.scheduler_world import World, a_spec

CONFIG = Config(
    node_pool_key="", withheld=(), plugins=(*Config().plugins, PluginOption(name="numa"))
)
CORES = 4
ZONES = ("z0", "z1", "z2")

cores = st.integers(1, 6)
nodes = st.lists(
    st.tuples(
        st.sampled_from(["single-numa-node", "restricted", "best-effort"]),
        st.sampled_from(["pod", "container"]),
        st.lists(st.tuples(st.sampled_from(ZONES), st.integers(1, CORES), st.booleans())),
    ),
    min_size=1,
    max_size=3,
)
jobs = st.lists(st.tuples(st.lists(cores, min_size=1, max_size=3), st.booleans()), max_size=5)


class Cluster(World):
    def __init__(self, nodes, jobs):
        super().__init__()
        self.queue("q", quota=-1)
        for name, value in (("low", 50), ("high", 100)):
            cls = PriorityClass(uid=name, name=name, value=value)
            self.snapshot.set_priority_class(cls, rv=1)
        self.runs = {}
        for n, (policy, scope, pods) in enumerate(nodes):
            self._node(f"n{n}", policy, scope, pods)
        for n, (pods, is_high) in enumerate(jobs):
            name = f"j{n}"
            self.group(name, priority_class="high" if is_high else "low", min_member=len(pods))
            for k, number in enumerate(pods):
                spec = a_spec(0, cpu=1000 * number, guaranteed=True)
                self.pod(f"{name}-{k}", name, spec=spec)

    def _node(self, name, policy, scope, pods):
        self.node(name, 0)
        zone = {"cpu": 1000 * CORES}
        zones = tuple(NumaZone(name=z, allocatable=zone, available=zone) for z in ZONES)
        found = NumaNode(uid=name, name=name, policy=policy, scope=scope, zones=zones)
        self.snapshot.set_object(found, rv=1)
        used = Counter()
        for k, (zone_name, number, leaves) in enumerate(pods):
            if used[zone_name] + number > CORES:
                continue
            used[zone_name] += number
            pod = f"{name}-r{k}"
            self.group(pod, priority_class="low", min_member=1)
            record = json.dumps([{"zone": zone_name, "amount": {"cpu": str(number)}}])
            self.pod(
                pod,
                pod,
                name,
                spec=a_spec(0, cpu=1000 * number, guaranteed=True),
                status=TaskStatus.RELEASING if leaves else None,
                annotations={NUMA_OBSERVED: record},
            )
            self.runs[pod] = (name, zone_name, number)


@settings(max_examples=60, deadline=None)
@given(nodes, jobs)
def test_zones_hold_what_they_are_promised(nodes, jobs):
    cluster = Cluster(nodes, jobs)
    inputs = cluster.inputs(flags.NONE)
    session = open_session(cluster.snapshot, CONFIG, inputs)
    for action in session.config.actions:
        run_action(session, action)
        assert not session.journal
        _books_are_right(session)
    used = Counter()
    for node, zone, number in cluster.runs.values():
        used[node, zone] += number  # those that leave still hold theirs
    for op in close(session).ops:
        if isinstance(op, Bind):
            for part in op.zones:
                used[op.node, part.zone] += int(part.amount["cpu"])
    assert max(used.values(), default=0) <= CORES


def _books_are_right(session):
    """What the plugin keeps up is what follows from where every task is now."""
    numa = next(rule for rule in session.ext.task_rules if isinstance(rule, Numa))
    zones = session.ext.zones
    for n, facts in enumerate(session.nodes.columns.facts):
        left = Counter(dict.fromkeys(ZONES, CORES))
        for row in session.rows:
            if row is None or session.node_of(row.row) != n:
                continue
            if session.status[row.row] in (TaskStatus.RELEASING, TaskStatus.PENDING):
                continue
            for part in zones(row.row, n):
                left[part.zone] -= int(part.amount["cpu"])
        names = numa.zones[n].names
        room = {
            name: free["cpu"] // 1000 for name, free in zip(names, numa.rooms[n][0], strict=True)
        }
        assert room == dict(left), facts.name
        assert min(left.values()) >= 0


def test_operations_that_are_undone_leave_the_books_as_they_were():
    cluster = Cluster([("single-numa-node", "pod", [("z0", 3, False)])], [([3], True)])
    session = open_session(cluster.snapshot, CONFIG, cluster.inputs(flags.NONE))
    numa = next(rule for rule in session.ext.task_rules if isinstance(rule, Numa))
    before = numa.rooms[0]
    statement = Statement(session)
    task = cluster.snapshot.pods["n0-r0"].row
    statement.evict(task)
    assert numa.rooms[0] != before
    statement.unevict(task)
    assert numa.rooms[0] == before
    statement.evict(task)
    statement.discard()
    assert numa.rooms[0] == before
    assert not any(isinstance(op, Evict) for op in close(session).ops)
