"""Raw Queue to `Queue`. Reference: pkg/apis/scheduling/v2, .../api/queue_info (apis §2)."""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from kai_es.kube.conditions import json_text, split_conditions
from kai_es.kube.objects import Queue, QueueShare, QueueStatus
from kai_es.kube.shape import Int64, Metadata, shaped, uid_of
from kai_es.kube.times import duration_ms, time_ms

KIND: Final = "Queue"
DEFAULT_PRIORITY: Final = 100
TOTALS: Final = ("allocated", "allocatedNonPreemptible", "childQueues", "requested")
"""What `QueueStatus.totals` holds of a queue's status."""


class _Camel(msgspec.Struct, rename="camel", gc=False):
    """Field names as in the API."""


class RawShare(_Camel):
    """`spec.resources.<resource>`; unset and 0 are the same."""

    quota: float | None = None
    limit: float | None = None
    over_quota_weight: float | None = None


class RawShares(_Camel):
    """`spec.resources`."""

    gpu: RawShare | None = None
    cpu: RawShare | None = None
    memory: RawShare | None = None


class RawQueueSpec(_Camel):
    """`spec` of a queue."""

    display_name: str | None = None
    parent_queue: str | None = None
    priority: Int64 | None = None
    resources: RawShares | None = None
    preempt_min_runtime: str | None = None
    reclaim_min_runtime: str | None = None


class RawQueue(_Camel):
    """A queue."""

    metadata: Metadata
    spec: RawQueueSpec | None = None
    status: Any = None


def parse_queue(raw: object) -> Queue:
    """A queue.

    Raises:
        InvalidObjectError: a field that is read has a wrong type or value.
    """
    shape = shaped(KIND, raw, RawQueue)
    metadata = shape.metadata
    what = f"Queue {metadata.name}"
    spec = shape.spec or RawQueueSpec()
    shares = spec.resources or RawShares()
    preempt, reclaim = spec.preempt_min_runtime, spec.reclaim_min_runtime
    status = shape.status if isinstance(shape.status, Mapping) else {}
    conditions, as_of = split_conditions(status.get("conditions"))
    return Queue(
        uid=uid_of(KIND, metadata),
        name=metadata.name,
        created_ms=time_ms(
            metadata.creation_timestamp, what=what, field="metadata.creationTimestamp"
        ),
        deleted_ms=time_ms(
            metadata.deletion_timestamp, what=what, field="metadata.deletionTimestamp"
        ),
        labels=metadata.labels or {},
        display_name=spec.display_name or "",
        parent=spec.parent_queue or "",
        priority=DEFAULT_PRIORITY if spec.priority is None else spec.priority,
        gpu=_share(shares.gpu),
        cpu=_share(shares.cpu),
        memory=_share(shares.memory),
        preempt_min_runtime_ms=(
            duration_ms(preempt, what=what, field="spec.preemptMinRuntime") if preempt else None
        ),
        reclaim_min_runtime_ms=(
            duration_ms(reclaim, what=what, field="spec.reclaimMinRuntime") if reclaim else None
        ),
        status=QueueStatus(
            totals=json_text({name: status[name] for name in TOTALS if status.get(name)}),
            conditions=conditions,
            as_of=as_of,
        ),
    )


def _share(raw: RawShare | None) -> QueueShare:
    if raw is None:
        return QueueShare()
    return QueueShare(
        quota=raw.quota or 0.0, limit=raw.limit or 0.0, weight=raw.over_quota_weight or 0.0
    )
