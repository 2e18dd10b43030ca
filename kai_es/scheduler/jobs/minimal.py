"""Whether a job is worth a search after one of its kind has failed.

Per scheduling signature the smallest failed job is remembered; a later job is searched for only
if it is easier in some task.

Reference: pkg/scheduler/actions/common/minimal_job_comparison.go (scheduler-core §5.15).
"""

from collections.abc import Sequence
from typing import TypeAlias

from kai_es.scheduler.flags import GPU_MEMORY_NOT_COMPARED, Flags

Request: TypeAlias = tuple[int, ...]
"""One task's request in every dimension; all requests of one comparison have equal length."""


def comparable(amounts: Request, *, gpu_count: int, gpu_memory_mib: int, flags: Flags) -> Request:
    """A request in the form that this module compares.

    Args:
        amounts: the request vector of a task.
        gpu_count: devices it asks by memory.
        gpu_memory_mib: of each such device, 0 = it does not ask by memory.
        flags: rule flags in force.

    Returns:
        The vector with the GPU memory as one more dimension: a request by memory is 0 GPUs.
    """
    if GPU_MEMORY_NOT_COMPARED in flags:  # compat: the vector alone
        return amounts
    return (*amounts, gpu_count * gpu_memory_mib)


def easier_to_schedule(job: Sequence[Request], failed: Sequence[Request] | None) -> bool:
    """Whether `job` may succeed where the remembered job did not.

    Args:
        job: requests of its pending tasks, in any order.
        failed: those of the smallest failed job of the same signature, None = none failed yet.
    """
    if failed is None:
        return True
    if not job or not failed:
        return False
    if len(failed) > len(job):
        return True
    for mine, other in zip(sorted(job), sorted(failed), strict=False):
        if _fits(mine, other) and not _fits(other, mine):
            return True
    return False


def replaces(job: Sequence[Request], failed: Sequence[Request] | None) -> bool:
    """Whether a job that failed becomes the remembered one: it is smaller task by task."""
    if failed is None:
        return True
    if not job or not failed or len(job) > len(failed):
        return False
    pairs = zip(sorted(job), sorted(failed), strict=False)
    return all(_fits(mine, other) for mine, other in pairs)


def _fits(one: Request, other: Request) -> bool:
    return all(a <= b for a, b in zip(one, other, strict=True))
