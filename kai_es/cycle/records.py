"""A cycle as records: requests to the binder and the cycle itself, for one transaction."""

from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple, Self

from kai_es.cycle.turn import requests_in
from kai_es.events.catalogue import BIND_REQUESTS, DECISIONS, TOPICS, partition_of
from kai_es.events.codec import pack
from kai_es.events.decisions import Bind, Cycle, Evict, GateChange, Reign, ReignEnd
from kai_es.events.requests import DELETE, BindRequested, EvictRequested, Request, request_id
from kai_es.kube.labels import RESERVATION_APP
from kai_es.ports.eventlog import Out
from projectors.cycles import chunks_of

BIND_TTL_MS: Final = 120_000
EVICT_TTL_MS: Final = 30_000
"""Later than this after its cycle, the binder refuses a request (architecture §3)."""


def producer_of(shard: str) -> str:
    """Producer id of a shard's scheduler; the log fences by it."""
    return f"scheduler-{shard}"


class Manner(NamedTuple):
    """What a shard's configuration says of how its orders are executed.

    eviction, marks_evicted: see `EvictRequested`; reservation_app: see `BindRequested`.
    """

    eviction: str = DELETE
    marks_evicted: bool = False
    reservation_app: str = RESERVATION_APP

    @classmethod
    def of(cls, settings: Mapping[str, Any]) -> Self:
        """From the settings of a ShardConfig."""
        return cls(
            settings.get("eviction", DELETE),
            settings.get("update_pod_eviction_condition", False),
            settings.get("reservation_app", RESERVATION_APP),
        )


USUAL: Final = Manner()


def to_records(
    cycle: Cycle, *, partition: int, ingest_ms: int, manner: Manner = USUAL
) -> list[Out]:
    """All records of a cycle: all of them become durable, or none.

    Args:
        cycle: as decided.
        partition: of `decisions`, that of the shard.
        ingest_ms: the shell's clock.
        manner: of the shard.
    """
    requests = _request_records(cycle, ingest_ms, manner)
    return [*requests, *_chunk_records(cycle, partition, ingest_ms)]


def _request_records(cycle: Cycle, ingest_ms: int, manner: Manner) -> Iterator[Out]:
    n_partitions = TOPICS[BIND_REQUESTS].partitions
    for op in requests_in(cycle):
        request = _request(cycle, op, manner)
        envelope = pack(
            request,
            topic=BIND_REQUESTS,
            record_id=request.request_id,
            event_time=cycle.inputs.now_ms,
            ingest_time=ingest_ms,
            producer=producer_of(cycle.shard),
            causes=(_chunk_id(cycle, 0),),
        )
        partition = partition_of(op.node, n_partitions)
        yield Out(BIND_REQUESTS, op.pod_uid, partition, envelope)


def _chunk_records(cycle: Cycle, partition: int, ingest_ms: int) -> Iterator[Out]:
    for chunk in chunks_of(cycle):
        envelope = pack(
            chunk,
            topic=DECISIONS,
            record_id=_chunk_id(cycle, chunk.n),
            event_time=cycle.inputs.now_ms,
            ingest_time=ingest_ms,
            producer=producer_of(cycle.shard),
            causes=(f"snapshot/{cycle.offset}",),
        )
        yield Out(DECISIONS, cycle.shard, partition, envelope)


def _chunk_id(cycle: Cycle, n: int) -> str:
    return f"{cycle.shard}/{cycle.cycle}/{n}"


def _request(cycle: Cycle, op: Bind | Evict, manner: Manner) -> Request:
    identity = request_id(shard=cycle.shard, cycle=cycle.cycle, pod_uid=op.pod_uid)
    now_ms = cycle.inputs.now_ms
    if isinstance(op, Bind):
        return BindRequested(
            request_id=identity,
            shard=cycle.shard,
            cycle=cycle.cycle,
            epoch=cycle.epoch,
            namespace=op.namespace,
            pod=op.pod,
            pod_uid=op.pod_uid,
            pod_rv=op.pod_rv,
            node=op.node,
            node_uid=op.node_uid,
            group_uid=op.group_uid,
            not_after_ms=now_ms + BIND_TTL_MS,
            supersedes=op.supersedes,
            received=op.received,
            gpu_count=op.gpu_count,
            gpu_portion=op.gpu_portion,
            gpu_groups=op.gpu_groups,
            claims=op.claims,
            extended=op.extended,
            zones=op.zones,
            volumes=op.volumes,
            reservation_app=manner.reservation_app if op.gpu_groups else "",
        )
    return EvictRequested(
        request_id=identity,
        shard=cycle.shard,
        cycle=cycle.cycle,
        epoch=cycle.epoch,
        namespace=op.namespace,
        pod=op.pod,
        pod_uid=op.pod_uid,
        pod_rv=op.pod_rv,
        node=op.node,
        node_uid=op.node_uid,
        group_uid=op.group_uid,
        not_after_ms=now_ms + EVICT_TTL_MS,
        supersedes=op.supersedes,
        action=op.action,
        message=op.message,
        gang_size=op.gang_size,
        beneficiary=op.beneficiary,
        eviction=manner.eviction,
        marks=manner.marks_evicted,
    )


def reign_record(reign: Reign, *, partition: int, now_ms: int) -> Out:
    """A leader's start."""
    return _mark(reign, f"{reign.shard}/{reign.epoch}", partition=partition, now_ms=now_ms)


def end_record(end: ReignEnd, *, partition: int, now_ms: int) -> Out:
    """A leader's graceful stop."""
    return _mark(end, f"{end.shard}/{end.epoch}/end", partition=partition, now_ms=now_ms)


def gate_record(change: GateChange, *, partition: int, ingest_ms: int) -> Out:
    """A change of the verdict between cycles."""
    identity = f"{change.shard}/{change.epoch}/gate/{change.time}"
    return _mark(change, identity, partition=partition, now_ms=ingest_ms)


def _mark(
    record: Reign | ReignEnd | GateChange, identity: str, *, partition: int, now_ms: int
) -> Out:
    envelope = pack(
        record,
        topic=DECISIONS,
        record_id=identity,
        event_time=now_ms,
        ingest_time=now_ms,
        producer=producer_of(record.shard),
    )
    return Out(DECISIONS, record.shard, partition, envelope)
