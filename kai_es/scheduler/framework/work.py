"""A job, or a part of one, as an attempt to place or to evict sees it.

Reference: pkg/scheduler/api/podgroup_info (scheduler-core §5.10, §10.1 partial job).
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from kai_es.scheduler.jobs.gang import reduced

if TYPE_CHECKING:
    from kai_es.scheduler.columns.jobs import Job
    from kai_es.scheduler.jobs.tree import JobTree

Leaves = Sequence[Sequence[int]]
"""Pod rows by leaf, in task order."""


class Work:
    """A whole job (`tasks` None), or only some of its tasks under lowered minimums.

    tree:  what this work needs.
    tasks: by leaf, the tasks it consists of; None = all of the job.
    """

    __slots__ = ("job", "tasks", "tree")

    def __init__(
        self, job: "Job", tree: "JobTree | None" = None, tasks: Leaves | None = None
    ) -> None:
        self.job = job
        self.tree = job.tree if tree is None else tree
        self.tasks = tasks

    @property
    def is_whole(self) -> bool:
        """Whether it is the job itself."""
        return self.tasks is None


def part_of(job: "Job", tasks: Leaves) -> Work:
    """A part of a job; minimums are lowered to what it has (§10.1)."""
    return Work(job, reduced(job.tree, [len(leaf) for leaf in tasks]), tasks)


def rest_of(job: "Job", tasks: Leaves) -> Work:
    """A victim with these tasks left; its minimums stay (§10.2)."""
    return Work(job, job.tree, tasks)
