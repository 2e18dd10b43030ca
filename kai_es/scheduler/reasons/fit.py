"""Texts of tasks and jobs that were not placed, and how several become one.

Reference: pkg/scheduler/api/common_info/{pod_errors,job_errors}.go (scheduler-core §12).
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from kai_es.kube.labels import DEFAULT_POD_SET
from kai_es.scheduler.reasons.quota import Asked

NO_NODE: Final = "no nodes with enough resources were found"
NO_POD: Final = "Unable to schedule pod"
NO_GROUP: Final = "Unable to schedule podgroup"
TOO_SMALL: Final = "Not enough resources for the workload"
"""Reason word of a topology domain that is too small."""


class JobError(NamedTuple):
    """One thing that kept a job from being placed.

    reason:   the reference's word for its kind.
    messages: what is counted and joined with other errors' messages.
    detailed: one line of the detailed form.
    asked:    of a queue that refused the whole job.
    """

    reason: str
    messages: tuple[str, ...]
    detailed: str
    asked: Asked | None = None

    @classmethod
    def of(cls, reason: str, message: str, sub_group: str = "") -> "JobError":
        """An error with one message, of a sub-group or of the whole job."""
        return cls(reason, (message,), in_sub_group(message, sub_group))


def in_sub_group(text: str, sub_group: str) -> str:
    """A detailed text of a sub-group; the whole job and `default` go without a name."""
    if sub_group in ("", DEFAULT_POD_SET):
        return text
    return f"subgroup {sub_group}: {text}"


# -- tasks


def refusal_text(pod: str, node: str, reasons: Sequence[str]) -> str:
    """Why one node refused a pod (`namespace/name`)."""
    return f"Pod {pod} cannot be scheduled on node {node}. reasons: {', '.join(reasons)}"


def task_text(counts: Mapping[str, int], general: str = NO_NODE) -> str:
    """Why no node took a task.

    Args:
        counts: nodes by short reason.
        general: what stands in front, or alone where no node was looked at.
    """
    if not counts:
        return general
    pieces = sorted(f"{n} {reason}" for reason, n in counts.items())
    return f"{general}: " + ". \n".join(pieces) + "."


def task_detailed_text(nodes: Mapping[str, Sequence[str]], general: str = NO_NODE) -> str:
    """Why no node took a task, node by node.

    Args:
        nodes: detailed reasons by node name.
        general: the line that is not about a node; sorting puts it behind the others.
    """
    pieces = [f"\n<{node}>: {', '.join(reasons)}." for node, reasons in nodes.items()]
    return "".join(sorted([f"\n{general}.", *pieces]))


def not_placed_text(
    pod: str,
    why: str,
    *,
    placed: int,
    needed: int | None,
    sub_group: str = "",
) -> str:
    """Why an attempt to place a job ended at one of its tasks.

    Args:
        pod: `namespace/name`.
        why: text of the task.
        placed: tasks of its pod set before it.
        needed: minimum of its pod set, None = the job is no gang, or has its minimum.
        sub_group: name of the pod set, "" = the job has only `default`.
    """
    if needed is None:
        return f"Resources were not found for pod {pod} due to: {why}"
    if not sub_group:
        return (
            f"Resources were found for {placed} pods while {needed} are required for gang "
            f"scheduling. Additional pods cannot be scheduled due to: {why}"
        )
    return (
        f"Resources were found for {placed} pods from all sub-groups while sub-group {sub_group} "
        f"requires {needed} pods for gang scheduling. Additional pods cannot be scheduled in this "
        f"sub-group due to: {why}"
    )


class WaitingSet(NamedTuple):
    """A pod set that has too few pods."""

    name: str
    needed: int
    exist: int
    gated: int


def not_ready_text(sets: Iterable[WaitingSet]) -> str:
    """Why a job is not tried yet."""
    text = "Job is not ready for scheduling."
    for one in sets:
        tail = f"currently {one.exist} exist, {one.gated} are gated"
        if one.name == DEFAULT_POD_SET:
            text += f" Waiting for {one.needed} pods, {tail}"
        else:
            text += f" Waiting for {one.needed} pods for SubGroup {one.name}, {tail}."
    return text


# -- jobs


def job_text(errors: Sequence[JobError]) -> str:
    """All errors of a job in one text; equal messages are counted."""
    counts = Counter(message for error in errors for message in error.messages)
    text = _head(errors)
    if counts:
        pieces = sorted(f"{n} {text}" if n > 1 else text for text, n in counts.items())
        text += ": " + ". \n".join(pieces) + "."
    return text


def job_detailed_text(errors: Sequence[JobError]) -> str:
    """All errors of a job, a line each."""
    lines = sorted(f"\n{error.detailed}." for error in errors)
    return f"\n{_head(errors)}." + "".join(lines)


def _head(errors: Sequence[JobError]) -> str:
    return errors[0].reason if len(errors) == 1 else NO_GROUP
