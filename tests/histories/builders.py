"""Rows with defaults, in domain words."""

from kai_es.events.decisions import (
    Bind,
    Cycle,
    CycleDecision,
    CycleInputs,
    Evict,
    Gate,
    Reign,
    Verdict,
)
from kai_es.events.requests import AttemptFailed, Bound, Evicted, Refused, request_id
from kai_es.events.snapshot import Batch, Cursor, Origin, Removed, Upserted
from kai_es.kube.objects import Node, Pod, PodGroup, PodSpec, Queue, QueueShare

GPU = 1_000_000
T0 = 1_700_000_000_000


def a_node(name="n1", *, uid=None, gpus=8, ready=True, **fields):
    amounts = {"cpu": 64_000, "memory": 256 << 30, "gpu": gpus * GPU, "pods": 110}
    return Node(
        uid=uid or f"node-{name}",
        name=name,
        allocatable=amounts,
        capacity=amounts,
        conditions={"Ready": "True" if ready else "False"},
        gpu_memory_mib=40_000,
        gpu_memory_synced=True,
        gpu_count=gpus,
        **fields,
    )


def a_queue(name="q", *, quota=8.0, parent="", **fields):
    share = QueueShare(quota=quota, limit=-1.0, weight=1.0)
    free = QueueShare(quota=-1.0, limit=-1.0, weight=1.0)
    return Queue(
        uid=f"queue-{name}", name=name, parent=parent, gpu=share, cpu=free, memory=free, **fields
    )


def a_group(name="g", *, uid=None, queue="q", min_member=1, generation=1, **fields):
    return PodGroup(
        uid=uid or f"group-{name}",
        namespace="ns",
        name=name,
        queue=queue,
        min_member=min_member,
        generation=generation,
        created_ms=T0,
        **fields,
    )


def a_pod(name="p", *, uid=None, group="g", phase="Pending", node="", gpus=1, stamp=None, **fields):
    requests = {"cpu": 1_000, "memory": 1 << 30, "gpu": gpus * GPU, "pods": 1}
    spec = PodSpec(requests=requests, scheduler="kai-scheduler")
    group_uid, generation = stamp or ("", 0)
    return Pod(
        uid=uid or f"pod-{name}",
        namespace="ns",
        name=name,
        created_ms=T0,
        phase=phase,
        node=node,
        group=group,
        group_uid=group_uid,
        group_generation=generation,
        spec=spec,
        **fields,
    )


def seen(obj, rv=1, incarnation=0):
    return Upserted(rv=rv, incarnation=incarnation, obj=obj)


def gone(obj, rv=99, incarnation=0):
    kind = str(type(obj).__struct_config__.tag)
    return Removed(kind=kind, uid=obj.uid, rv=rv, incarnation=incarnation, name=obj.name)


def a_bind(pod, node, *, pod_rv=1, **fields):
    return Bind(
        pod_uid=pod.uid,
        pod_rv=pod_rv,
        namespace=pod.namespace,
        pod=pod.name,
        group_uid=f"group-{pod.group}",
        node=node.name,
        node_uid=node.uid,
        **fields,
    )


def an_evict(pod, node, *, pod_rv=1, **fields):
    return Evict(
        pod_uid=pod.uid,
        pod_rv=pod_rv,
        namespace=pod.namespace,
        pod=pod.name,
        group_uid=f"group-{pod.group}",
        node=node.name,
        node_uid=node.uid,
        action="reclaim",
        beneficiary="group-other",
        **fields,
    )


def a_cycle(number, *ops, shard="default", epoch=1, now_ms=T0, offset=0, same=None, **decision):
    return Cycle(
        shard=shard,
        epoch=epoch,
        cycle=number,
        offset=offset,
        config_digest="c",
        inputs=CycleInputs(
            shard=shard, cycle=number, now_ms=now_ms, gate=Gate(verdict=Verdict.OPEN)
        ),
        decision=CycleDecision(ops=ops, **decision),
        reasons_same=same or {},
        digest=f"digest-{number}",
    )


def a_reign(epoch=1, first_cycle=1, shard="default"):
    return Reign(shard=shard, epoch=epoch, first_cycle=first_cycle)


def request_of(number, pod, shard="default"):
    return request_id(shard=shard, cycle=number, pod_uid=pod.uid)


def bound(number, pod, node, *, attempt=1, binder="b1"):
    return Bound(
        request_id=request_of(number, pod),
        attempt=attempt,
        binder=binder,
        pod_uid=pod.uid,
        node=node.name,
        node_uid=node.uid,
    )


def evicted(number, pod, *, attempt=1, binder="b1"):
    return Evicted(
        request_id=request_of(number, pod), attempt=attempt, binder=binder, pod_uid=pod.uid
    )


def failed(number, pod, *, attempt=1, binder="b1", code="volume", final=True):
    return AttemptFailed(
        request_id=request_of(number, pod),
        attempt=attempt,
        binder=binder,
        pod_uid=pod.uid,
        group_uid=f"group-{pod.group}",
        code=code,
        final=final,
    )


def refused(number, pod, *, attempt=1, binder="b1", code="expired"):
    return Refused(
        request_id=request_of(number, pod),
        attempt=attempt,
        binder=binder,
        pod_uid=pod.uid,
        code=code,
    )


class Writer:
    """Cuts rows of one made-up source partition into batches that join."""

    def __init__(self, time=T0, part=("objects", 0)):
        self.time = time
        self.part = part
        self.prev = -1
        self.position = 0
        self.offset = -1

    def batch(self, *rows, after_ms=10, ingest_ms=None):
        """The next batch and its offset."""
        self.time += after_ms
        at = self.time if ingest_ms is None else ingest_ms
        start, self.position = self.position, self.position + len(rows)
        batch = Batch(
            prev=self.prev,
            time=self.time,
            cursors=(Cursor(*self.part, start, self.position),),
            rows=rows,
            origins=tuple(Origin(0, start + i, at) for i in range(len(rows))),
        )
        self.offset += 1
        self.prev = self.offset
        return self.offset, batch


def fold(world, *rows, writer=None, **options):
    """Apply rows as one batch; returns the outcome."""
    writer = writer or Writer()
    return world.apply(*writer.batch(*rows, **options))
