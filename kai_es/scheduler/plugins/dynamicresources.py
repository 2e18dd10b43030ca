"""Claims on devices: may a pod with claims be placed at all, and what it gets where.

Where and what is in `framework.claims`, since statements undo it; here are the checks that no node
has a say in.

Reference: pkg/scheduler/plugins/dynamicresources (plugins §10.3).
"""

from collections.abc import Iterator, Mapping
from typing import Final

from kai_es.events.decisions import Reason
from kai_es.kube.devices import ResourceClaim, is_gpu
from kai_es.kube.labels import QUEUE_LABEL
from kai_es.kube.objects import Pod
from kai_es.scheduler.framework.claims import Claims
from kai_es.scheduler.framework.session import Session

CONSUMERS_MAX: Final = 256
"""Pods that one claim can be for, a limit of the API."""


def open_dynamicresources(session: Session, arguments: Mapping[str, str]) -> None:
    """Register; without any object of the API only the check of pods remains."""
    rows = session.columns.rows.devices
    if rows:
        claims = session.claims = Claims(session)
        session.ext.dynamic.append(claims.concerns)
    session.ext.pre_task.append(lambda task: _check(session, task))


def _check(session: Session, task: int) -> Reason | None:
    row = session.row(task)
    spec = row.shape.spec
    if not spec.resource_claims and not (session.claims and session.claims.concerns(row.shape)):
        return None
    text = next(_objections(session, row.pod, session.job(task).group.queue), None)
    return None if text is None else Reason(code="claim", args={"text": text})


def _objections(session: Session, pod: Pod, queue: str) -> Iterator[str]:
    """What speaks against a pod with claims, the first in order counts."""
    name, rows = f"{pod.namespace}/{pod.name}", session.columns.rows.devices
    if not rows.served:
        names = ", ".join(reference for reference, _, _ in pod.spec.resource_claims)
        yield (
            f"pod {name} cannot be scheduled, it references resource claims <{names}> "
            "while dynamic resource allocation is not available in the cluster"
        )
    made = dict(pod.claim_names)
    for reference, given, kind in pod.spec.resource_claims:
        claim_name = given if kind == "claim" else made.get(reference, "")
        if not claim_name:
            yield unnamed_claim(pod, reference)
        claim = rows.claim((pod.namespace, claim_name))
        if claim is None:
            key = f"{pod.namespace}/{claim_name}"
            yield f'failed to get resource claim {key}: could not find ResourceClaim "{key}"'
        else:
            yield from _of_claim(session, claim, pod, queue, is_named=kind == "claim")


def unnamed_claim(pod: Pod, reference: str) -> str:
    """What is said of a claim of a template that is not made yet."""
    return (
        f"no resource claim name found for pod {pod.namespace}/{pod.name} "
        f"and claim reference {reference}"
    )


def _of_claim(
    session: Session, claim: ResourceClaim, pod: Pod, queue: str, *, is_named: bool
) -> Iterator[str]:
    key, claims = f"{claim.namespace}/{claim.name}", session.claims
    assert claims is not None, "a claim is a row"
    if len(claims.users_of(claim.uid)) >= CONSUMERS_MAX:
        yield (
            f"resource claim {key} has reached its maximum number of consumers ({CONSUMERS_MAX})"
        )
    if is_named and any(is_gpu(request.device_class) for request in claim.requests):
        yield from _of_queue(session, claim, pod, queue)
    if claims.allocation_of(claim.uid) is None:
        for request in claim.requests:
            wanted = request.device_class
            if not request.alternatives and wanted not in claims.classes:
                yield (
                    f"device class {wanted} does not exist for claim {key} request {request.name}"
                )


def _of_queue(session: Session, claim: ResourceClaim, pod: Pod, queue: str) -> Iterator[str]:
    """A claim that several pods may use belongs to a queue."""
    label = claim.labels.get(session.config.queue_label_key, "")
    head = f"pod {pod.namespace}/{pod.name} cannot be scheduled: DRA claim {claim.name} is a shared"
    if not label:
        yield f"{head} GPU claim but does not have a queue label ({QUEUE_LABEL})"
    elif label != queue:
        yield (
            f"{head} GPU claim with wrong queue label (expected queue: {queue}, "
            f"claim queue label: {label})"
        )
