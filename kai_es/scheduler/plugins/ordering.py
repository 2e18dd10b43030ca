"""Order of jobs, tasks and sub-groups: priority, elastic, kubeflow, ray, taskorder, subgrouporder.

Reference: pkg/scheduler/plugins/{priority,elastic,kubeflow,ray,taskorder,subgrouporder}
(plugins §11).
"""

from collections.abc import Mapping

from kai_es.scheduler.framework.session import Session
from kai_es.scheduler.framework.statuses import IS_ACTIVE
from kai_es.scheduler.framework.work import Work
from kai_es.scheduler.jobs.gang import elasticity
from kai_es.scheduler.jobs.order import kubeflow_key, member_by_need, ray_key, task_priority_key

_Arguments = Mapping[str, str]


def open_priority(session: Session, arguments: _Arguments) -> None:
    """Higher job priority first."""
    session.ext.job_keys.append(lambda work: -work.job.priority)


def open_elastic(session: Session, arguments: _Arguments) -> None:
    """Jobs below their minimum first, then those at it, then those above."""

    def key(work: Work) -> int:
        return int(elasticity(work.tree, session.tally(work, IS_ACTIVE)))

    session.ext.job_keys.append(key)


def open_kubeflow(session: Session, arguments: _Arguments) -> None:
    """Leaders of Kubeflow jobs first."""
    session.ext.task_keys.append(kubeflow_key)


def open_ray(session: Session, arguments: _Arguments) -> None:
    """Heads of Ray clusters first."""
    session.ext.task_keys.append(ray_key)


def open_taskorder(session: Session, arguments: _Arguments) -> None:
    """Pods by their task-priority label."""
    session.ext.task_keys.append(task_priority_key)


def open_subgrouporder(session: Session, arguments: _Arguments) -> None:
    """Sub-groups that lack most first."""
    session.ext.member_key = member_by_need
