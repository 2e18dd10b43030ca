"""What a job needs that is not supported yet; such jobs wait and say so."""

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from kai_es.scheduler.columns.jobs import Job
    from kai_es.scheduler.framework.session import Session
    from kai_es.snapshot.shapes import Shape

UNSUPPORTED: Final = ()
"""Features that the scheduler itself does not have yet."""


def missing_feature(session: "Session", job: "Job") -> str:
    """The first feature that a job needs and does not get, "" = none."""
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
    return tuple(found)
