"""Which jobs enter a walk of the queue tree.

Reference: pkg/scheduler/actions/utils/input_jobs.go (scheduler-core §6.2).
"""

import enum
from typing import NamedTuple

from kai_es.scheduler.jobs.delay import within_preemption_delay


class WalkFilters(NamedTuple):
    """What an action asks of its jobs."""

    pending: bool = False
    ready: bool = False
    preemptible: bool = False
    active: bool = False
    preemption_delay: bool = False


class JobFacts(NamedTuple):
    """What the filters look at of a job.

    queue_serves: its queue and all ancestors exist, and the queue is a leaf.
    delay_end_ms: of `delay.preemption_delay_end`.
    """

    has_pending: bool
    ready: bool
    preemptible: bool
    has_active: bool
    queue_serves: bool
    delay_end_ms: int | None


class Exclusion(enum.Enum):
    """Why a job is left out; the value is the word of its fit error, where it gets one."""

    NOT_READY = "not-ready"
    NOTHING_PENDING = "nothing-pending"
    NOT_PREEMPTIBLE = "not-preemptible"
    NOTHING_ACTIVE = "nothing-active"
    NO_QUEUE = "no-queue"
    PREEMPTION_DELAY = "PreemptionDelayNotElapsed"


def exclusion(job: JobFacts, filters: WalkFilters, now_ms: int) -> Exclusion | None:
    """Why a job does not enter; None = it does. The preemption delay is looked at last."""
    tests = (
        (filters.ready and not job.ready, Exclusion.NOT_READY),
        (filters.pending and not job.has_pending, Exclusion.NOTHING_PENDING),
        (filters.preemptible and not job.preemptible, Exclusion.NOT_PREEMPTIBLE),
        (filters.active and not job.has_active, Exclusion.NOTHING_ACTIVE),
        (not job.queue_serves, Exclusion.NO_QUEUE),
        (
            filters.preemption_delay and within_preemption_delay(job.delay_end_ms, now_ms),
            Exclusion.PREEMPTION_DELAY,
        ),
    )
    return next((why for failed, why in tests if failed), None)
