"""The room that a search keeps up batch by batch = the filter as the page has it (§10.4)."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from kai_es.events.decisions import CycleInputs
from kai_es.kube.labels import GPU_MICRO
from kai_es.kube.objects import GpuRequest, Node, Pod, PodGroup, PodSpec, Queue
from kai_es.scheduler.config import Config
from kai_es.scheduler.decide import open_session
from kai_es.scheduler.solve.filters import Freed, IdleGpuFilter
from kai_es.scheduler.solve.room import Room, gpu_room
from kai_es.snapshot.effective import GroupState, TaskState
from kai_es.snapshot.snapshot import Snapshot
from kai_es.snapshot.status import TaskStatus


def a_spec(gpus):
    gpu = GpuRequest(count=gpus, portion=1.0) if gpus else GpuRequest()
    return PodSpec(requests={"cpu": 1, "gpu": gpus * GPU_MICRO, "pods": 1}, gpu=gpu)


def a_session(sizes, running, pending):
    """Nodes of some GPUs, running pods (node, GPUs) as far as they fit, pending pods."""
    snapshot, left = Snapshot(), list(sizes)
    snapshot.set_queue(Queue(uid="q", name="q"), rv=1)
    snapshot.set_group(
        PodGroup(uid="g", namespace="n", name="g", queue="q"), rv=1, state=GroupState()
    )
    for n, size in enumerate(sizes):
        amounts = {"cpu": 1000, "memory": 1, "gpu": size * GPU_MICRO, "pods": 110}
        snapshot.set_node(Node(uid=f"n{n}", name=f"n{n}", allocatable=amounts), rv=1)
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
