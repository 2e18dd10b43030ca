"""The room that a search keeps up batch by batch = the filter as the page has it (§10.4)."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from kai_es.events.decisions import CycleInputs
from kai_es.kube.labels import GPU_MICRO
from kai_es.kube.objects import (
    GpuRequest,
    Node,
    Pod,
    PodGroup,
    PodSpec,
    Queue,
    TopologyConstraint,
)
from kai_es.kube.topologies import Topology, TopologyLevel
from kai_es.scheduler.config import Config
from kai_es.scheduler.decide import open_session
from kai_es.scheduler.framework.work import Work
from kai_es.scheduler.solve.filters import Freed, IdleGpuFilter, TopologyGpuFilter, required_levels
from kai_es.scheduler.solve.room import Room, gpu_room
from kai_es.scheduler.solve.topology_room import TopologyRoom
from kai_es.snapshot.effective import GroupState, TaskState
from kai_es.snapshot.snapshot import Snapshot
from kai_es.snapshot.status import TaskStatus


def a_spec(gpus):
    gpu = GpuRequest(count=gpus, portion=1.0) if gpus else GpuRequest()
    return PodSpec(requests={"cpu": 1, "gpu": gpus * GPU_MICRO, "pods": 1}, gpu=gpu)


def a_session(sizes, running, pending, labels=None, constraint=None):
    """Nodes of some GPUs, running pods (node, GPUs) as far as they fit, pending pods."""
    snapshot, left = Snapshot(), list(sizes)
    snapshot.set_queue(Queue(uid="q", name="q"), rv=1)
    snapshot.set_group(
        PodGroup(uid="g", namespace="n", name="g", queue="q", topology=constraint),
        rv=1,
        state=GroupState(),
    )
    for n, size in enumerate(sizes):
        amounts = {"cpu": 1000, "memory": 1, "gpu": size * GPU_MICRO, "pods": 110}
        fields = {"labels": labels[n]} if labels else {}
        snapshot.set_node(Node(uid=f"n{n}", name=f"n{n}", allocatable=amounts, **fields), rv=1)
    levels = (TopologyLevel("zone"), TopologyLevel("rack"))
    snapshot.set_object(Topology(uid="t", name="net", levels=levels), rv=1)
    pods = [(gpus, None) for gpus in pending]
    for n, gpus in running:
        if n < len(left) and gpus <= left[n]:
            left[n] -= gpus
            pods.append((gpus, n))
    for number, (gpus, n) in enumerate(pods):
        uid = f"p{number:02}"
        pod = Pod(uid=uid, namespace="n", name=uid, group="g", spec=a_spec(gpus))
        placed = n is not None
        status = TaskStatus.RUNNING if placed else TaskStatus.PENDING
        state = TaskState(status=status, node=f"n{n}" if placed else "")
        snapshot.set_pod(pod, rv=1, task=state)
    inputs = CycleInputs(shard="s", cycle=1, now_ms=1)
    session = open_session(snapshot, Config(node_pool_key="", plugins=()), inputs)
    rows = {uid: snapshot.pods[uid].row for uid in snapshot.pods}
    tasks = [rows[f"p{number:02}"] for number in range(len(pods))]
    return session, tasks[: len(pending)], tasks[len(pending) :]


@settings(max_examples=60)
@given(
    st.lists(st.integers(0, 8), min_size=1, max_size=4),
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 4)), max_size=8),
    st.lists(st.integers(0, 8), min_size=1, max_size=4),
    st.lists(st.integers(1, 3), max_size=8),
)
def test_room_equals_the_filter(sizes, running, pending, batches):
    session, waiting, victims = a_session(sizes, running, pending)
    feasible = np.ones(len(session.nodes), np.bool_)
    room = Room(session, waiting, feasible)
    needs = {str(task): session.row(task).shape.quota for task in waiting}
    page = IdleGpuFilter(gpu_room(session), needs)
    seen = []
    for size in (0, *batches):
        room.add(victims[:size])
        seen += victims[:size]
        victims = victims[size:]
        freed = [
            Freed(str(task), session.node_of(task), session.row(task).shape.quota) for task in seen
        ]
        assert room.possible() == page.possible(needs, freed)


CONSTRAINTS = st.sampled_from(("", "zone", "rack")).map(
    lambda level: TopologyConstraint(topology="net", required=level) if level else None
)


@settings(max_examples=60)
@given(
    st.lists(
        st.tuples(st.integers(0, 8), st.sampled_from("ab"), st.sampled_from("xy")), min_size=1
    ).map(lambda nodes: nodes[:4]),
    st.lists(st.tuples(st.integers(0, 3), st.integers(1, 4)), max_size=8),
    st.lists(st.integers(0, 8), min_size=1, max_size=4),
    st.lists(st.integers(1, 3), max_size=8),
    CONSTRAINTS,
)
def test_topology_room_equals_the_filter(nodes, running, pending, batches, constraint):
    labels = [{"zone": zone, "rack": zone + rack} for _, zone, rack in nodes]
    sizes = [size for size, _, _ in nodes]
    session, waiting, victims = a_session(sizes, running, pending, labels, constraint)
    work = Work(session.job(waiting[0]))
    gpus = gpu_room(session)
    room = TopologyRoom(session, work, waiting, gpus)
    asked = [sum(session.row(task).shape.quota for task in waiting)]
    needs = required_levels(work.tree, asked, [0], session.flags)
    tree = session.columns.topology("net")
    domains = {level: tree.domain[tree.levels.index(level.label)] for level in needs}
    page = TopologyGpuFilter(gpus, domains, needs)
    seen = []
    for size in (0, *batches):
        for task in victims[:size]:
            room.add(session.node_of(task), session.row(task).shape.quota)
        seen += victims[:size]
        victims = victims[size:]
        freed = [
            Freed(str(task), session.node_of(task), session.row(task).shape.quota) for task in seen
        ]
        assert room.possible() == page.possible(freed)
