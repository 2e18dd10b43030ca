"""Histories in the words of the field, as batches of `snapshot`."""

from kai_es.events.snapshot import AliveSeen, Batch, Cursor, Origin, Removed, Upserted
from kai_es.kube.labels import GPU_PRODUCT_LABEL, NODE_POOL_LABEL, QUEUE_LABEL, USER_LABEL
from kai_es.kube.objects import GpuRequest, Node, Pod, PodGroup, PodSpec, Queue, QueueShare, kind_of

GPU = 1_000_000
GIB = 2**30
START = 1_764_496_800_000  # 2025-11-30T10:00:00Z
HOUR = 3_600_000
MINUTE = 60_000


class Story:
    """Appends batches; offsets have gaps, as positions do."""

    def __init__(self):
        self.batches = []
        self.rv = 0
        self._position = 0

    def __repr__(self):
        lines = []
        for offset, batch in self.batches:
            lines.append(f"{offset}: +{batch.time - START} ms")
            for row, origin in zip(batch.rows, batch.origins, strict=True):
                lines.append(f"  @{origin.ingest_ms - START} {row}")
        return "\n".join(lines)

    def batch(self, time, *rows, ingest=None, partition=0):
        """One accepted batch. `ingest`: of each row, ms; default the batch's time."""
        prev = self.batches[-1][0] if self.batches else -1
        offset = prev + 1 + len(self.batches) % 3
        start = self._position
        self._position += len(rows)
        ingests = ingest or [time] * len(rows)
        batch = Batch(
            prev=prev,
            time=time,
            cursors=(Cursor("objects", partition, start, self._position),),
            rows=rows,
            origins=tuple(Origin(0, start + n, ms) for n, ms in enumerate(ingests)),
        )
        self.batches.append((offset, batch))
        return offset

    def upsert(self, obj):
        self.rv += 1
        return Upserted(rv=self.rv * 1001, incarnation=0, obj=obj)

    def remove(self, obj):
        self.rv += 1
        name = obj.name
        namespace = getattr(obj, "namespace", "")
        return Removed(
            kind=kind_of(obj),
            uid=obj.uid,
            rv=self.rv * 1001,
            incarnation=0,
            namespace=namespace,
            name=name,
        )


def alive(time, partition=0):
    return AliveSeen(partition=partition, incarnation=0, time=time, kinds=())


def a_node(name="n1", *, gpus=8, cpu=64_000, memory=512 * GIB, ready=True, cordoned=False, **more):
    labels = {
        NODE_POOL_LABEL: more.pop("pool", "train"),
        GPU_PRODUCT_LABEL: more.pop("gpu", "H100"),
    }
    return Node(
        uid=more.pop("uid", f"node-{name}"),
        name=name,
        labels=labels,
        unschedulable=cordoned,
        allocatable={"cpu": cpu, "memory": memory, "gpu": gpus * GPU, "pods": 110},
        conditions={"Ready": "True" if ready else "False"},
        **more,
    )


def a_pod(name="p1", *, node="", phase="Pending", gpus=1, cpu=4000, memory=16 * GIB, **more):
    labels = {USER_LABEL: more.pop("user", "ada")}
    if "queue" in more:
        labels[QUEUE_LABEL] = more.pop("queue")
    return Pod(
        uid=more.pop("uid", f"pod-{name}"),
        namespace=more.pop("namespace", "team"),
        name=name,
        node=node,
        phase=phase,
        labels=labels,
        spec=PodSpec(
            requests={"cpu": cpu, "memory": memory, "gpu": gpus * GPU, "pods": 1},
            gpu=more.pop("gpu_request", GpuRequest(count=gpus, portion=1.0 if gpus else 0.0)),
        ),
        **more,
    )


def a_group(name="g1", queue="team-a", *, kind="PyTorchJob", **more):
    return PodGroup(
        uid=more.pop("uid", f"group-{name}"),
        namespace=more.pop("namespace", "team"),
        name=name,
        queue=queue,
        owner=(kind, name),
        **more,
    )


def a_queue(name, *, parent="", gpu=-1.0, cpu=-1.0, memory=-1.0, **more):
    return Queue(
        uid=more.pop("uid", f"queue-{name}"),
        name=name,
        parent=parent,
        gpu=QueueShare(quota=gpu, limit=-1.0, weight=1.0),
        cpu=QueueShare(quota=cpu, limit=-1.0, weight=1.0),
        memory=QueueShare(quota=memory, limit=-1.0, weight=1.0),
        **more,
    )
