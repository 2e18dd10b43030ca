"""In which order a simulation lets jobs ask for a place.

All jobs with pending tasks stand in the queue tree, so that the order is the real one; only the
victims and the pending job are let through. The others change nothing when they come up, so a run
of them that asks for the same amount comes up as a whole: the place of a queue hangs on the amount
of its next job, not on the job. A tree without a victim or the pending job is left out.

Equal to a walk over all jobs one by one (`tests/property/test_placing.py`).

Reference: pkg/scheduler/actions/common/action.go (scheduler-core §10.3).
"""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from kai_es.scheduler.columns.jobs import Job
from kai_es.scheduler.columns.queues import NO_QUEUE, Fair
from kai_es.scheduler.flags import WEAKER_QUEUE_PARTIAL
from kai_es.scheduler.framework.session import Session
from kai_es.scheduler.framework.statuses import IS_PENDING
from kai_es.scheduler.framework.work import Work
from kai_es.scheduler.jobs.steady_walk import SteadyWalk
from kai_es.scheduler.jobs.walk import QueueWalk, WalkRules
from kai_es.scheduler.solve.worklist import amount_order

Key = tuple[Any, ...]
Entry = tuple[Key, Work]


class _Item(NamedTuple):
    """What comes up: a work, or None for a run of those that are not let through."""

    work: Work | None
    amount: Fair


class _Run:
    """Neighbours in job order that ask for the same amount."""

    __slots__ = ("amount", "entries", "item")

    def __init__(self, amount: Fair, entries: list[Entry]) -> None:
        self.amount = amount
        self.entries = entries
        self.item = _Item(None, amount)


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


def _key(entry: Entry) -> Key:
    return entry[0]


def _first(run: _Run) -> Key:
    return run.entries[0][0]


class _Items:
    """A leaf of the walk: runs as one item each, and the works that are let through.

    A run is cut where one of those stands in it, and is left out if all of it is among them.

    Args:
        runs: of the leaf.
        extras: works that are let through, in order.
        mine: their jobs.
        next_amount: what a work asks for.
    """

    __slots__ = ("_at", "_extra", "_extras", "_item", "_mine", "_next_amount", "_run", "_runs")

    def __init__(
        self,
        runs: Sequence[_Run],
        extras: Sequence[Entry],
        mine: Collection[Job],
        next_amount: Callable[[Work], Fair],
    ) -> None:
        self._runs = runs
        self._extras = extras
        self._mine = mine
        self._next_amount = next_amount
        self._run = self._at = self._extra = 0
        self._item = self._next()

    def __len__(self) -> int:
        """0 = at the end; it is not known how many are left."""
        return 0 if self._item is None else 1

    def add(self, job: _Item) -> None:
        raise AssertionError(f"nothing is pushed back here: {job}")

    def top(self) -> _Item:
        assert self._item is not None, "not at the end"
        return self._item

    def take(self) -> _Item:
        item = self.top()
        self._item = self._next()
        return item

    def _next(self) -> _Item | None:
        extras = self._extras
        while self._run < len(self._runs):
            run = self._runs[self._run]
            entries, start = run.entries, self._at
            stop = len(entries)
            is_cut = self._extra < len(extras) and extras[self._extra][0] < entries[-1][0]
            if is_cut:
                stop = self._at = bisect_left(entries, extras[self._extra][0], key=_key)
            else:
                self._run, self._at = self._run + 1, 0
            if any(entries[at][1].job not in self._mine for at in range(start, stop)):
                return run.item
            if is_cut:
                return self._next_extra()
        return self._next_extra() if self._extra < len(extras) else None

    def _next_extra(self) -> _Item:
        work = self._extras[self._extra][1]
        self._extra += 1
        return _Item(work, self._next_amount(work))


class OrderOfPlacing:
    """The order for one action; follows what is committed."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._leaves: dict[int, _Pending] | None = None
        self._keys: dict[Job, Key] = {}
        order = amount_order(session)
        self._rules: WalkRules[_Item] = WalkRules(
            queue_key=lambda row, item, freed: order(row, item.amount, freed),  # type: ignore[union-attr]
            job_key=id,
            flags=session.flags,
        )
        self._is_steady = WEAKER_QUEUE_PARTIAL not in session.flags

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
        for works in extras.values():
            works.sort(key=_key)
        n_left = {queue: len(works) for queue, works in extras.items()}
        if len(n_left) > 1:
            leaves = self._items(extras, mine)
            kind = SteadyWalk if self._is_steady else QueueWalk
            walk = kind(queues.parent, self._rules, leaves=leaves)
            while len(n_left) > 1 and (item := walk.pop()) is not None:
                if item.work is not None:
                    queue = item.work.job.queue
                    n_left[queue] -= 1
                    if not n_left[queue]:
                        del n_left[queue]
                    yield item.work
        for queue, n in n_left.items():  # of one leaf, so nobody comes between
            for _, work in extras[queue][-n:]:
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
            leaf = self._leaves.get(queue)
            runs = [] if leaf is None else leaf.runs
            items = _Items(runs, here, mine, self._session.next_amount)
            if items:
                found[queue] = items
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
