"""In which order the jobs that wait would be served, if nothing were placed in between.

Reference: pkg/scheduler/plugins/reflectjoborder/reflect_job_order.go (plugins §12.3).
"""

from typing import NamedTuple

from kai_es.events.decisions import CycleInputs
from kai_es.scheduler.actions.allocate import NAME
from kai_es.scheduler.config import Config
from kai_es.scheduler.decide import open_session
from kai_es.scheduler.solve.worklist import pending_works
from kai_es.snapshot.snapshot import Snapshot


class Waiting(NamedTuple):
    """A job that waits: its pod group's name, queue and priority."""

    name: str
    queue: str
    priority: int


def job_order(snapshot: Snapshot, config: Config, inputs: CycleInputs) -> list[Waiting]:
    """The jobs that the action allocate would try, in its order."""
    if config.queue_depth.get(NAME) == 0:
        return []
    session = open_session(snapshot, config, inputs)
    names = [queue.name for queue in session.columns.queues.queues]
    works = pending_works(session, NAME, lambda _job: True)
    found: list[Waiting] = []
    while (work := works.pop()) is not None:
        job = work.job
        found.append(Waiting(job.name, names[job.queue], job.priority))
    return found
