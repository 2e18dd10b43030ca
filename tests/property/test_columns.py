"""Columns that followed every change = columns built from scratch on the same rows."""

from hypothesis import given, settings
from hypothesis import strategies as st

from kai_es.kube.objects import (
    GpuRequest,
    Node,
    Pod,
    PodGroup,
    PodSpec,
    PriorityClass,
    Queue,
    QueueShare,
    SubGroup,
)
from kai_es.scheduler.columns.columns import Columns
from kai_es.scheduler.columns.lens import Lens
from kai_es.snapshot.effective import GroupState, TaskState
from kai_es.snapshot.snapshot import Snapshot
from kai_es.snapshot.status import TaskStatus

GPU = 1_000_000
NAMES = ("a", "b", "c")

nodes = st.builds(
    lambda name, uid, gpus, extra, cordoned, pool: Node(
        uid=uid,
        name=name,
        allocatable={"cpu": 64_000, "memory": 2**38, "gpu": gpus * GPU, "pods": 110, **extra},
        unschedulable=cordoned,
        gpu_memory_mib=40_000,
        labels=pool,
    ),
    st.sampled_from(NAMES),
    st.sampled_from(("n1", "n2", "n3", "n4")),
    st.integers(0, 8),
    st.sampled_from(({}, {"x.y/dev": 4000}, {"a.b/c": 1000}, {"x.y/dev": 0})),
    st.booleans(),
    st.sampled_from(({}, {}, {}, {"kai.scheduler/node-pool": "other"})),
)
specs = st.sampled_from(
    (
        PodSpec(requests={"cpu": 1000, "memory": 2**30, "pods": 1}),
        PodSpec(
            requests={"cpu": 500, "gpu": 2 * GPU, "pods": 1}, gpu=GpuRequest(count=2, portion=1.0)
        ),
        PodSpec(requests={"cpu": 500, "x.y/dev": 1000, "pods": 1}),
        PodSpec(
            requests={"cpu": 100, "pods": 1},
            gpu=GpuRequest(count=1, portion=0.5),
            request_type="Fraction",
        ),
        PodSpec(
            requests={"cpu": 100, "pods": 1},
            gpu=GpuRequest(count=1, memory_mib=8000),
            request_type="GpuMemory",
            scheduler="other",
        ),
    )
)
statuses = st.sampled_from(
    (
        TaskStatus.PENDING,
        TaskStatus.GATED,
        TaskStatus.BINDING,
        TaskStatus.RUNNING,
        TaskStatus.RELEASING,
        TaskStatus.SUCCEEDED,
    )
)


def _set_pod(uid, group, spec, status, node, deleted, sub_group, created):
    def change(snapshot):
        pod = Pod(
            uid=uid,
            namespace="ns",
            name=f"pod-{uid}",
            group=group,
            sub_group=sub_group,
            spec=spec,
            phase="Running" if status in (TaskStatus.RUNNING, TaskStatus.RELEASING) else "",
            deleted_ms=deleted,
            created_ms=created,
        )
        placed = status not in (TaskStatus.PENDING, TaskStatus.GATED, TaskStatus.SUCCEEDED)
        shared = spec.request_type in ("Fraction", "GpuMemory")
        task = TaskState(
            status=status,
            node=node if placed else "",
            gpu_groups=("g1",) if shared and placed else (),
        )
        snapshot.set_pod(pod, rv=1, task=task)

    return change


def _set_group(uid, name, queue, sub_groups, preemptibility, stale):
    group = PodGroup(
        uid=uid,
        namespace="ns",
        name=name,
        queue=queue,
        min_member=2,
        sub_groups=sub_groups,
        preemptibility=preemptibility,
        priority_class="high",
    )
    return lambda s: s.set_group(group, rv=1, state=GroupState(stale_since_ms=stale))


def _set_queue(uid, name, parent):
    queue = Queue(uid=uid, name=name, parent=parent, gpu=QueueShare(quota=1, limit=-1, weight=1))
    return lambda s: s.set_queue(queue, rv=1)


PODS = tuple(f"p{i}" for i in range(8))
changes = st.one_of(
    st.builds(lambda n, rv: lambda s: s.set_node(n, rv=rv), nodes, st.integers(1, 3)),
    st.builds(lambda uid: lambda s: s.remove_node(uid), st.sampled_from(("n1", "n2", "n3"))),
    st.builds(
        _set_pod,
        st.sampled_from(PODS),
        st.sampled_from(("", "g", "h")),
        specs,
        statuses,
        st.sampled_from(NAMES),
        st.sampled_from((0, 0, 1, 50_000)),
        st.sampled_from(("", "", "w", "nowhere")),
        st.integers(0, 2),
    ),
    st.builds(lambda uid: lambda s: s.remove_pod(uid), st.sampled_from(PODS)),
    st.builds(
        _set_group,
        st.sampled_from(("u1", "u2")),
        st.sampled_from(("g", "h")),
        st.sampled_from(("q1", "q2", "none")),
        st.sampled_from(((), (SubGroup(name="w", min_member=1),))),
        st.sampled_from(("", "non-preemptible")),
        st.sampled_from((0, 5)),
    ),
    st.builds(lambda uid: lambda s: s.remove_group(uid), st.sampled_from(("u1", "u2"))),
    st.builds(
        _set_queue,
        st.sampled_from(("k1", "k2", "k3")),
        st.sampled_from(("q1", "q2", "root")),
        st.sampled_from(("", "root", "q1", "missing")),
    ),
    st.builds(lambda uid: lambda s: s.remove_queue(uid), st.sampled_from(("k1", "k2"))),
    st.builds(
        lambda value: (
            lambda s: s.set_priority_class(PriorityClass(uid="c", name="high", value=value), rv=1)
        ),
        st.sampled_from((50, 125)),
    ),
    st.builds(lambda ms: ms, st.sampled_from((60_000, 130_000, 200_000))),  # refresh at that time
)


def picture(columns):
    """Everything that a session can see, free of row numbers."""
    nodes, queues = columns.nodes, columns.queues
    rows = columns.rows.pod_rows
    order = columns.index.order()
    offered = {n for f in nodes.facts for n in f.node.allocatable}

    def amounts(array):
        return {columns.index.names[r]: array[r].tolist() for r in order if array[r].any()}

    return {
        "nodes": [(f.name, f.uid, f.problems) for f in nodes.facts],
        "allocatable": amounts(nodes.allocatable),
        "offered": offered <= set(columns.index.names),
        "idle": amounts(nodes.amounts[0]),
        "free": amounts(nodes.amounts[1]),
        "used": amounts(nodes.amounts[2]),
        "devices": nodes.devices,
        "foreign": nodes.foreign.tolist(),
        "ready": nodes.ready.tolist(),
        "total": nodes.total(),
        "queues": [(n, queues.path[r], vars_of(queues.uses[r])) for n, r in queues.row.items()],
        "broken": queues.broken,
        "jobs": {
            key: (
                job.uid,
                job.queue,
                job.priority,
                job.preemptible,
                job.tree,
                [[rows[r].pod.uid for r in leaf] for leaf in job.tasks],
                [rows[r].pod.uid for r in job.strangers],
                [list(c) for c in job.counts],
                vars_of(job.uses),
                [[columns.status[r] for r in leaf] for leaf in job.tasks],
                [[columns.leaf_of[r] for r in leaf] for leaf in job.tasks],
                all(columns.job_of[r] is job for leaf in job.tasks for r in leaf),
            )
            for key, job in sorted(columns.jobs.items())
        },
        "by_queue": {q: sorted(jobs) for q, jobs in sorted(columns.by_queue.items()) if jobs},
        "sets": [sorted(t) for t in (columns.pending, columns.waiting, columns.doubtful)],
    }


def vars_of(uses):
    return {name: getattr(uses, name) for name in uses.__slots__}


@given(st.lists(changes, min_size=1, max_size=40), st.booleans())
@settings(max_examples=150)
def test_following_changes_equals_building_anew(steps, by_name):
    snapshot, lens = Snapshot(), Lens(groups_by_name=by_name)
    columns = Columns(snapshot, lens)
    for step in steps:
        if callable(step):
            step(snapshot)
        else:
            columns.refresh(step)
    columns.refresh(150_000)
    anew = Columns(snapshot, lens)
    anew.refresh(150_000)
    assert picture(columns) == picture(anew)


@given(st.lists(changes, min_size=1, max_size=30), st.randoms(use_true_random=False))
@settings(max_examples=100)
def test_order_of_rows_does_not_matter(steps, rng):
    """The same final rows, stored in two orders."""
    first = Snapshot()
    for step in steps:
        if callable(step):
            step(first)
    second = Snapshot()
    stores = [lambda p=p: second.set_pod(p.pod, rv=p.rv, task=p.state) for p in first.pods.values()]
    stores += [
        lambda n=n: second.set_node(n.node, rv=n.rv, closed=n.closed)
        for n in first.nodes.rows.values()
    ]
    stores += [
        lambda g=g: second.set_group(g.group, rv=g.rv, state=g.state)
        for g in first.groups.rows.values()
    ]
    stores += [lambda q=q: second.set_queue(q.queue, rv=q.rv) for q in first.queues.rows.values()]
    stores += [
        lambda c=c: second.set_priority_class(c.priority_class, rv=c.rv)
        for c in first.classes.rows.values()
    ]
    rng.shuffle(stores)
    for store in stores:
        store()
    pictures = []
    for snapshot in (first, second):
        columns = Columns(snapshot, Lens())
        columns.refresh(150_000)
        pictures.append(picture(columns))
    assert pictures[0] == pictures[1]
