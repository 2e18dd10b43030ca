"""What jobs have in common that fail alike, as a key.

A search places the pods that come next, so their kinds tell, with the constraints that stand above
them and what of the job orders it, age aside; how many there are of each is compared afterwards
(`jobs.minimal`). Where pods have rules about other pods, namespace and
labels are in it as well; with the plugin `numa` what is asked for too.

compat: all pods that are not active tell (`jobs.signature.job_signature`), with the statuses of the
start of the session.
"""

from collections.abc import Callable

from kai_es.kube.objects import TopologyConstraint
from kai_es.scheduler.flags import (
    SIGNATURES_OF_ALL_TASKS,
    SIGNATURES_WITHOUT_LABELS,
    SIGNATURES_WITHOUT_ZONES,
)
from kai_es.scheduler.framework.session import Session
from kai_es.scheduler.framework.statuses import IS_ACTIVE
from kai_es.scheduler.framework.work import Work
from kai_es.scheduler.jobs.signature import (
    alignment_signature,
    labels_signature,
    pod_signature,
)
from kai_es.scheduler.jobs.tree import Member, PodSet

Constraint = tuple[str, str, str]
Path = tuple[Constraint, ...]

_NONE: Constraint = ("", "", "")


def signature_of(session: Session, work: Work) -> tuple[object, ...]:
    """By pod set with a task that tells: constraints from the root, pod signatures."""
    found: list[tuple[Path, tuple[bytes, ...]]] = []
    if SIGNATURES_OF_ALL_TASKS in session.flags:
        status = session.columns.status
        _collect(
            session, work, work.tree.root, (), lambda task: status[task] not in IS_ACTIVE, found
        )
        return tuple(sorted(found))
    coming = set(session.next_tasks(work, real=False))
    _collect(session, work, work.tree.root, (), coming.__contains__, found)
    order = tuple(key(work) for key in session.ext.job_keys)
    kinds = {(path, tuple(dict.fromkeys(pods))) for path, pods in found}
    return (work.job.preemptible, order, *sorted(kinds))


def _collect(
    session: Session,
    work: Work,
    member: Member,
    above: Path,
    tells: Callable[[int], bool],
    found: list[tuple[Path, tuple[bytes, ...]]],
) -> None:
    path = (*above, _constraint(member.topology))
    if not isinstance(member, PodSet):
        for child in member.members:
            _collect(session, work, child, path, tells, found)
        return
    pods = sorted(
        _pod(session, task) for task in session.work_tasks(work, member.leaf) if tells(task)
    )
    if pods:
        found.append((path, tuple(pods)))


def _constraint(constraint: TopologyConstraint | None) -> Constraint:
    if constraint is None:
        return _NONE
    return constraint.topology, constraint.required, constraint.preferred


def _pod(session: Session, task: int) -> bytes:
    row = session.row(task)
    shape = row.shape
    known = session.pod_signatures.get(shape)
    if known is None:
        known = pod_signature(shape.spec)
        if session.ext.zones is not None and SIGNATURES_WITHOUT_ZONES not in session.flags:
            known += alignment_signature(shape.spec)  # more may be aligned where less is not
        session.pod_signatures[shape] = known
    if session.columns.rows.has_pod_affinity and SIGNATURES_WITHOUT_LABELS not in session.flags:
        # what keeps one pod away from another depends on their labels
        return known + labels_signature(row.pod.namespace, row.pod.labels)
    return known
