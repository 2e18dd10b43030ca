"""What the fold makes of an object: the state that columns are built from.

`kai_es.snapshot.world` (ranking and life cycle) hands these to `kai_es.snapshot.snapshot`
(columns). A conformance runner builds them itself, with explicit statuses.
"""

import msgspec

from kai_es.events.decisions import ClaimGrant, ExtendedGrant, Reason, ZoneAmount
from kai_es.snapshot.status import TaskStatus


class TaskState(msgspec.Struct, frozen=True, kw_only=True):
    """Where a pod stands after rows, requests and results are ranked.

    status:     never ALLOCATED or PIPELINED from the fold (those live in a session);
                STUCK_IN_RELEASING is derived at session open from `Pod.deleted_ms`.
    node:       name of the node on which it counts: spec.nodeName, else that of its open bind
                request or `bound` result, else "".
    gpu_groups, received, gpu_count, gpu_portion: what it holds of devices (binder.md §3.1).
    claims, extended: devices that its bind request gives it, as long as it has not started; later
                the claims themselves say so.
    zones:      NUMA zones that its bind request gives it.
    request_id: its last request, "" = none; a new one names it in `supersedes`.
    """

    status: TaskStatus
    node: str = ""
    gpu_groups: tuple[str, ...] = ()
    received: str = ""
    gpu_count: int = 0
    gpu_portion: int = 0
    request_id: str = ""
    claims: tuple[ClaimGrant, ...] = ()
    extended: ExtendedGrant | None = None
    zones: tuple[ZoneAmount, ...] = ()


class GroupState(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a pod group beyond its object.

    stale_since_ms, last_start_ms, last_eviction_ms, room_made_ms: marks, ms, 0 = none
        (architecture §4, `GroupMark`).
    held:      why it must not be scheduled now (`group-not-seen`), None = free.
    backoff:   (reason code, not before ms, attempts) per code with a failed bind.
    """

    stale_since_ms: int = 0
    last_start_ms: int = 0
    last_eviction_ms: int = 0
    room_made_ms: int = 0
    held: Reason | None = None
    backoff: tuple[tuple[str, int, int], ...] = ()
