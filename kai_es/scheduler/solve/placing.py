"""In which order a simulation lets jobs ask for a place.

All jobs with pending tasks stand in the queue tree, so that the order is the real one; only the
victims and the pending job are let through. The others change nothing when they come up, so a run
of them that asks for the same amount comes up as a whole: the place of a queue hangs on the amount
of its next job, not on the job. A tree without a victim or the pending job is left out.

Equal to a walk over all jobs one by one (`tests/property/test_placing.py`).

Reference: pkg/scheduler/actions/common/action.go (scheduler-core §10.3).
"""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from kai_es.scheduler.columns.jobs import Job
from kai_es.scheduler.columns.queues import NO_QUEUE, Fair
from kai_es.scheduler.framework.session import Session
from kai_es.scheduler.framework.statuses import IS_PENDING
from kai_es.scheduler.framework.work import Work
from kai_es.scheduler.jobs.walk import QueueWalk, WalkRules
from kai_es.scheduler.solve.worklist import queue_order

Key = tuple[Any, ...]
Entry = tuple[Key, Work]


class _Run:
    """Neighbours in job order that ask for the same amount."""

    __slots__ = ("amount", "entries")

    def __init__(self, amount: Fair, entries: list[Entry]) -> None:
        self.amount = amount
        self.entries = entries


class _Pending:
    """The jobs of a leaf queue with pending tasks, in runs."""

    __slots__ = ("runs",)

    def __init__(self) -> None:
        self.runs: list[_Run] = []

    def fill(self, entries: list[tuple[Key, Work, Fair]]) -> None:
        entries.sort(key=lambda entry: entry[0])
        for key, work, amount in entries:
            if self.runs and self.runs[-1].amount == amount:
                self.runs[-1].entries.append((key, work))
            else:
                self.runs.append(_Run(amount, [(key, work)]))

    def add(self, key: Key, work: Work, amount: Fair) -> None:
        at = bisect_right(self.runs, key, key=_first)
        before = self.runs[at - 1] if at else None
        if before is not None and before.amount == amount:
            insort(before.entries, (key, work), key=_key)
            return
        new = [_Run(amount, [(key, work)])]
        if before is not None:
            cut = bisect_left(before.entries, key, key=_key)
            if cut < len(before.entries):
                new.append(_Run(before.amount, before.entries[cut:]))
                del before.entries[cut:]
        self.runs[at:at] = new

    def remove(self, key: Key) -> None:
        at = bisect_right(self.runs, key, key=_first) - 1
        run = self.runs[at]
        del run.entries[bisect_left(run.entries, key, key=_key)]
        if not run.entries:
            del self.runs[at]

    def items(self, extras: Sequence[Entry], left_out: set[Job]) -> list[Work]:
        """One job per run, and the extras, in order. A run is cut where an extra stands in it."""
        found: list[Work] = []
        position = 0
        for run in self.runs:
            entries, start = run.entries, 0
            while position < len(extras) and extras[position][0] < entries[-1][0]:
                cut = bisect_left(entries, extras[position][0], key=_key)
                _add_first(found, entries, start, cut, left_out)
                found.append(extras[position][1])
                start, position = cut, position + 1
            _add_first(found, entries, start, len(entries), left_out)
        found.extend(work for _, work in extras[position:])
        return found


def _add_first(
    found: list[Work], entries: list[Entry], start: int, stop: int, left_out: set[Job]
) -> None:
    """The first job of a part of a run stands for all of it."""
    for at in range(start, stop):
        work = entries[at][1]
        if work.job not in left_out:
            found.append(work)
            return


def _key(entry: Entry) -> Key:
    return entry[0]


def _first(run: _Run) -> Key:
    return run.entries[0][0]


class _Items:
    """A leaf of the walk: items in the order given."""

    __slots__ = ("_at", "_items")

    def __init__(self, items: list[Work]) -> None:
        self._items = items
        self._at = 0

    def __len__(self) -> int:
        return len(self._items) - self._at

    def add(self, job: Work) -> None:
        raise AssertionError(f"nothing is pushed back here: {job}")

    def top(self) -> Work:
        return self._items[self._at]

    def take(self) -> Work:
        self._at += 1
        return self._items[self._at - 1]


class OrderOfPlacing:
    """The order for one action; follows what is committed."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._leaves: dict[int, _Pending] | None = None
        self._keys: dict[Job, Key] = {}
        self._rules: WalkRules[Work] = WalkRules(
            queue_key=queue_order(session), job_key=session.job_key, flags=session.flags
        )

    def changed(self, jobs: Iterable[Job]) -> None:
        """Tasks of these jobs were placed or evicted for good."""
        if self._leaves is None:
            return
        for job in jobs:
            key = self._keys.pop(job, None)
            if key is not None:
                leaf = self._leaves[job.queue]
                leaf.remove(key)
                if not leaf.runs:
                    del self._leaves[job.queue]
            if self._serves(job) and self._session.has(job, IS_PENDING):
                work = Work(job)
                key = self._keys[job] = self._session.job_key(work)
                leaf = self._leaves.setdefault(job.queue, _Pending())
                leaf.add(key, work, self._session.next_amount(work))

    def walk(self, victims: Iterable[Job], pending: Work) -> Iterator[Work]:
        """Victims and the pending job, in order."""
        session = self._session
        queues = session.columns.queues
        mine = {job for job in victims if job.queue != NO_QUEUE}
        mine.add(pending.job)
        extras: dict[int, list[Entry]] = {}
        for job in mine:
            extra = pending if job is pending.job else Work(job)
            extras.setdefault(job.queue, []).append((session.job_key(extra), extra))
        if len(extras) == 1 and len(mine) == 1:
            yield pending
            return
        walk = QueueWalk(queues.parent, self._rules, leaves=self._items(extras, mine))
        left = len(mine)
        while left and (work := walk.pop()) is not None:
            if work is pending or (work.job in mine and work.job is not pending.job):
                left -= 1
                yield work

    def _items(self, extras: dict[int, list[Entry]], mine: set[Job]) -> dict[int, _Items]:
        queues = self._session.columns.queues
        if self._leaves is None:
            self._leaves = self._build()
        roots = {queues.path[queue][-1] for queue in extras}
        found: dict[int, _Items] = {}
        for queue in sorted({*self._leaves, *extras}):
            if queues.path[queue][-1] not in roots:
                continue
            here = extras.get(queue, [])
            here.sort(key=_key)
            leaf = self._leaves.get(queue)
            items = [work for _, work in here] if leaf is None else leaf.items(here, mine)
            if items:
                found[queue] = _Items(items)
        return found

    def _serves(self, job: Job) -> bool:
        return job.queue != NO_QUEUE and self._session.columns.queues.is_leaf(job.queue)

    def _build(self) -> dict[int, _Pending]:
        session = self._session
        entries: dict[int, list[tuple[Key, Work, Fair]]] = {}
        for job in session.pending_jobs():
            if self._serves(job):
                work = Work(job)
                key = self._keys[job] = session.job_key(work)
                amount = session.next_amount(work)
                entries.setdefault(job.queue, []).append((key, work, amount))
        leaves: dict[int, _Pending] = {}
        for queue, found in entries.items():
            leaves[queue] = _Pending()
            leaves[queue].fill(found)
        return leaves
