"""The preemption delay: how long a job may not be placed at the cost of others.

Reference: pkg/scheduler/api/podgroup_info/job_info.go (scheduler-core §5.10, fairness §7).
"""


def preemption_delay_end(*, created_ms: int, last_eviction_ms: int, delay_ms: int) -> int | None:
    """Moment from which the job may trigger evictions, ms since the epoch; None = at once.

    Args:
        created_ms: creation of the pod group.
        last_eviction_ms: last time a committed statement evicted one of its pods, 0 = never.
        delay_ms: `spec.preemptionDelay`.
    """
    if delay_ms <= 0:
        return None
    return max(created_ms, last_eviction_ms) + delay_ms


def within_preemption_delay(end_ms: int | None, now_ms: int) -> bool:
    """Whether the delay still holds."""
    return end_ms is not None and now_ms < end_ms
