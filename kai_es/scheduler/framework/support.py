"""What a job needs that is not supported yet; such jobs wait and say so."""

from typing import TYPE_CHECKING, Final

from kai_es.scheduler.jobs.tree import Member, PodSet

if TYPE_CHECKING:
    from kai_es.scheduler.columns.jobs import Job
    from kai_es.scheduler.framework.session import Session
    from kai_es.snapshot.shapes import Shape

UNSUPPORTED: Final = ("dra", "pod-affinity", "topology")
"""Features that the scheduler itself does not have yet."""


def missing_feature(session: "Session", job: "Job") -> str:
    """The first feature that a job needs and does not get, "" = none."""
    group = job.group
    if (group.topology is not None or group.sub_groups) and _has_constraint(job.tree.root):
        return "topology"
    known = session.missing_by_shape
    last = None
    for leaf in job.tasks:
        for task in leaf:
            shape = session.row(task).shape
            if shape is last:
                continue
            last = shape
            missing = known.get(shape)
            if missing is None:
                missing = known[shape] = _missing(session, shape)
            if missing:
                return missing
    return ""


def _missing(session: "Session", shape: "Shape") -> str:
    withheld = {*UNSUPPORTED, *session.config.withheld}
    return next((feature for feature in _features(shape) if feature in withheld), "")


def _features(shape: "Shape") -> tuple[str, ...]:
    spec = shape.spec
    found = []
    if spec.request_type == "Fraction":
        found.append("gpu-fraction")
    if spec.request_type == "GpuMemory":
        found.append("gpu-memory")
    if spec.gpu.dra or spec.resource_claims:
        found.append("dra")
    affinity = spec.affinity or {}
    if affinity.get("podAffinity") or affinity.get("podAntiAffinity"):
        found.append("pod-affinity")
    return tuple(found)


def _has_constraint(member: Member) -> bool:
    if member.topology is not None and member.topology.topology:
        return True
    return not isinstance(member, PodSet) and any(map(_has_constraint, member.members))
