"""The status writer: follows the log, and while it leads writes what objects do not say yet.

Everything it writes is derived from the log, so a new leader needs nothing of its predecessor: it
looks at every object once and writes what differs.
"""

import asyncio
import logging
import random
from collections.abc import Iterable
from typing import Final

from kai_es.events.snapshot import Batch
from kai_es.ports.backoff import Backoff
from kai_es.ports.clock import Clock
from kai_es.ports.cluster import ClusterWrites
from kai_es.ports.errors import FencedError, UnavailableError
from kai_es.ports.eventlog import JOINS, LEASE_MAX_S, Leadership, Lease, lost_error
from kai_es.reader import View
from kai_es.snapshot.world import Applied
from kai_es.status import metrics
from kai_es.status.desk import Allowance, Desk, Key, Waiting
from kai_es.status.events import KubeEvent
from kai_es.status.follow import POD, POD_GROUP, QUEUE, News
from kai_es.status.metrics import QueueNow
from kai_es.status.mirror import Mirror
from kai_es.status.outbox import Outbox
from kai_es.status.planner import Plan, Planned, Planner, Postponed
from kai_es.status.writer import CALM, Answer, Writer

ROLE: Final = "status"
TICK_S: Final = 0.1  # between looks at what is due: statuses are for people
LOG_BACKOFF_S: Final = (0.1, 5.0)  # between tries while the log is away

POD_S: Final = 2.0
"""After a pod was bound its kubelet writes its status a few times; a write meanwhile conflicts, and
takes the API server's time from the binds of its gang."""
GROUP_S: Final = 1.0
QUEUES_S: Final = 1.0
"""One write per queue in this time at most."""
EXPLAIN_S: Final = 1.0
"""A group that is placed within this time is never said to wait."""
EXPLAIN_AGAIN_S: Final = 5.0
EXPLAIN_POD_S: Final = 0.05
"""A group is explained again after `EXPLAIN_AGAIN_S`, or this time per pod if that is longer."""
EXPLAIN_PER_S: Final = 50.0
EXPLAIN_BURST: Final = 500.0
"""Writes of explanations per second on average and at once, over all groups."""
UNSEEN_S: Final = 10.0
"""How long a version is waited for that a write has made, or that made a write fail."""
TOLD_MS: Final = 30_000
"""A new leader tells again what happened so shortly before, under the same names: a predecessor
loses its role within that time."""

_EXPLAIN: Final = "Explain"
_QUEUES: Final = Key("Queues")
_MIRROR: Final = "Mirror"
_UNSEEN: Final = "Unseen "

logger = logging.getLogger(__name__)


class StatusWriter:
    """Writes statuses while it leads.

    Args:
        view: on `snapshot`; this service runs it.
        holder: this process, unique among those that run now.
        mirror: whether requests are shown as BindRequest objects, too.
        rng: jitter of back-offs.
    """

    def __init__(
        self,
        *,
        cluster: ClusterWrites,
        view: View,
        leadership: Leadership,
        clock: Clock,
        holder: str,
        mirror: bool = False,
        rng: random.Random | None = None,
    ) -> None:
        self._view = view
        self._leadership = leadership
        self._clock = clock
        self._holder = holder
        self._rng = rng or random.Random(holder)
        self._planner = Planner(view.world)
        self._desk = Desk()
        self._outbox = Outbox()
        self._writer = Writer(cluster, clock, self._rng)
        self._mirror = Mirror(view.world, cluster, self._writer.check) if mirror else None
        self._allowance = Allowance(per_s=EXPLAIN_PER_S, burst=EXPLAIN_BURST)
        self._explained: dict[str, float] = {}
        self._quiet: set[str] = set()
        self._busy: set[tuple[str, str]] = set()
        self._missed: set[tuple[str, str]] = set()
        self._leads = False
        self._log_trouble = JOINS
        self._lease: Lease
        self._group: asyncio.TaskGroup
        view.listen(self._fold)

    def leads(self) -> bool:
        """Whether this process writes now, not a standby."""
        return self._leads

    def trouble(self) -> str:
        """What keeps it from its work, "" = nothing; a standby has no trouble."""
        if self._leads and self._writer.trouble:
            return f"API server unavailable: {self._writer.trouble}"
        return self._log_trouble

    def lag_s(self) -> float:
        """How long the most overdue object is overdue."""
        return self._desk.oldest_s(self._clock.monotonic_s())

    def n_waiting(self) -> int:
        """Objects still to be looked at, and writes on their way."""
        return len(self._desk) + self._writer.n_flight if self._leads else 0

    def queues_now(self) -> Iterable[QueueNow]:
        """For metrics: queues with what they hold; nothing from a standby."""
        if not self._leads:
            return ()
        totals = self._planner.queue_totals()
        rows = sorted(self._view.world.snapshot.queues.live(), key=lambda row: row.name)
        return [QueueNow(row.queue, totals[row.name].allocated) for row in rows]

    async def run(self) -> None:
        """Follow the log; wait until this process leads, then write until cancelled.

        Raises:
            FencedError: somebody else leads now: the process ends.
            Exception: as `View.run`.
        """
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._view.run(), name="status-view")
                group.create_task(self._lead(), name="status-lead")
        except* FencedError as errors:
            raise FencedError(str(errors.exceptions[0])) from errors

    async def _lead(self) -> None:
        backoff = Backoff(*LOG_BACKOFF_S, self._rng)
        while True:
            try:
                self._lease = await self._leadership.acquire(ROLE, self._holder, self._waits)
            except UnavailableError as exc:
                self._log_trouble = str(exc)
                await self._clock.sleep(backoff.next_s())
                continue
            try:
                await self._take_turn()
            finally:
                self._leads = False
                await self._lease.release()

    def _waits(self) -> None:
        self._log_trouble = ""  # a standby that has joined says nothing for hours

    async def _take_turn(self) -> None:
        await self._view.caught_up.wait()
        self._writer.lease = self._lease
        self._outbox.forget_before(self._clock.now_ms() - TOLD_MS)
        everything = self._planner.everything()
        self._quiet.update(everything.explained)
        self._leads, self._log_trouble = True, ""
        self._take(everything)
        logger.info("leads", extra={"role": ROLE, "looks_at": len(self._desk)})
        try:
            async with asyncio.TaskGroup() as group:
                self._group = group
                group.create_task(self._watch_lease(), name="status-lease")
                group.create_task(self._work(), name="status-work")
        except* FencedError as errors:
            raise FencedError(str(errors.exceptions[0])) from errors

    async def _watch_lease(self) -> None:
        await self._lease.lost()
        raise lost_error(ROLE)

    # -- following

    def _fold(self, applied: Applied, batch: Batch) -> None:
        del applied
        news, told = self._planner.fold(batch)
        self._outbox.put(told)
        if self._leads:
            self._take(news)

    def _take(self, news: News) -> None:
        now_s = self._clock.monotonic_s()
        want = self._desk.want
        for uid in news.pods:
            want(Key(POD, uid), now_s, POD_S)
            if self._mirror is not None:
                want(Key(_MIRROR, uid), now_s, 0)
        for uid in news.groups:
            want(Key(POD_GROUP, uid), now_s, GROUP_S)
        for uid in news.explained:
            want(Key(_EXPLAIN, uid), now_s, self._explain_in_s(uid, now_s))
        if news.queues:
            want(_QUEUES, now_s, QUEUES_S)
        for kind, uid in news.seen:
            self._see(kind, uid, now_s)

    def _see(self, kind: str, uid: str, now_s: float) -> None:
        """There is a new version: what was written, or what somebody else has made of it."""
        is_own, was_awaited = self._planner.is_own(kind, uid), self._planner.awaits(kind, uid)
        if not self._planner.is_current(kind, uid):
            return
        missed = (kind, uid) in self._missed
        self._missed.discard((kind, uid))
        if missed or (not is_own and (was_awaited or kind != POD)):
            self._desk.want(_QUEUES if kind == QUEUE else Key(kind, uid), now_s, POD_S)

    def _explain_in_s(self, uid: str, now_s: float) -> float:
        return max(EXPLAIN_S, self._explained.get(uid, now_s) - now_s)

    # -- working

    async def _work(self) -> None:
        while True:
            now_s = self._clock.monotonic_s()
            if self._lease.age_s() <= LEASE_MAX_S:
                if self._writer.has_room():
                    for key, waiting in self._desk.due(now_s):
                        self._do(key, waiting, now_s)
                self._tell(now_s)
            metrics.WAITING.set(len(self._desk))
            metrics.EVENTS_WAITING.set(len(self._outbox))
            await self._clock.sleep(TICK_S)

    def _is_calm(self) -> bool:
        """Whether there is little to write that cannot wait, now and soon."""
        return self._desk.n_of(POD) < CALM and self._writer.is_calm()

    def _do(self, key: Key, waiting: Waiting, now_s: float) -> None:
        match key.kind:
            case "Pod":
                self._begin(key, waiting, self._planner.pod(key.uid, self._clock.now_ms()))
            case "PodGroup":
                waited_s = now_s - waiting.since_s
                now_ms = self._clock.now_ms()
                plan = self._planner.group(
                    key.uid, now_ms, waited_s=waited_s, is_calm=self._is_calm()
                )
                self._begin(key, waiting, plan)
            case "Queues":
                for planned in self._planner.queues():
                    self._begin(_QUEUES, waiting, planned)
            case "Explain":
                self._explain(key, waiting, now_s)
            case "Mirror":
                self._show(key, waiting, now_s)
            case "Unseen Pod" | "Unseen PodGroup" | "Unseen Queue":
                self._give_up(key, now_s)
            case _:
                raise AssertionError(f"{key} is no work")

    def _begin(self, key: Key, waiting: Waiting, plan: Plan) -> None:
        now_s = self._clock.monotonic_s()
        if plan is None:
            return
        if isinstance(plan, Postponed):
            self._desk.postpone(key, waiting, now_s, plan.after_s)
            return
        target = (plan.kind, plan.uid)
        if target in self._busy:
            self._desk.postpone(key, waiting, now_s, POD_S)
            return
        if not self._planner.is_current(*target):
            self._missed.add(target)  # the version that is waited for wakes it
            return
        self._busy.add(target)
        if plan.later_s:
            self._desk.want(key, now_s, plan.later_s)
        self._group.create_task(self._write(key, plan), name="status-write")

    async def _write(self, key: Key, planned: Planned) -> None:
        target = (planned.kind, planned.uid)
        try:
            answer, rv = await self._writer.write(planned)
        finally:
            self._busy.discard(target)
        now_s = self._clock.monotonic_s()
        match answer:
            case Answer.DONE:
                self._planner.wrote(planned, rv)
            case Answer.CONFLICT | Answer.REFUSED:
                self._planner.refused(planned)
            case Answer.UNAVAILABLE:
                self._desk.want(key, now_s, self._writer.pause_s())
                return
            case Answer.GONE:
                return
        if self._planner.is_current(*target):  # its version was folded before the call ended
            self._missed.discard(target)
            self._desk.want(key, now_s, POD_S)
        elif answer is not Answer.REFUSED and (answer is not Answer.DONE or rv > planned.rank.rv):
            self._desk.want(Key(_UNSEEN + planned.kind, planned.uid), now_s, UNSEEN_S)

    def _give_up(self, key: Key, now_s: float) -> None:
        """Look at an object again though the version that was waited for has not come."""
        kind = key.kind.removeprefix(_UNSEEN)
        if self._planner.awaits(kind, key.uid):
            self._planner.give_up_waiting(kind, key.uid)
            self._missed.discard((kind, key.uid))
            self._desk.want(_QUEUES if kind == QUEUE else Key(kind, key.uid), now_s, 0)

    def _explain(self, key: Key, waiting: Waiting, now_s: float) -> None:
        uid = key.uid
        if not self._allowance.has(now_s):
            self._desk.postpone(key, waiting, now_s, EXPLAIN_S)
            return
        told = self._planner.explain(uid, self._clock.now_ms())
        if told is None:
            self._explained.pop(uid, None)
            self._quiet.discard(uid)
            return
        if uid in self._quiet:
            self._quiet.discard(uid)
        else:
            self._outbox.put(told.events)
        self._allowance.spend(1 + len(told.pods))
        again_s = max(EXPLAIN_AGAIN_S, len(told.pods) * EXPLAIN_POD_S)
        self._explained[uid] = now_s + again_s
        self._desk.want(Key(POD_GROUP, uid), now_s, 0)
        for pod in told.pods:
            self._desk.want(Key(POD, pod), now_s, 0)

    def _show(self, key: Key, waiting: Waiting, now_s: float) -> None:
        target = (_MIRROR, key.uid)
        if target in self._busy:
            self._desk.postpone(key, waiting, now_s, TICK_S)
            return
        self._busy.add(target)
        self._group.create_task(self._write_mirror(key), name="status-mirror")

    async def _write_mirror(self, key: Key) -> None:
        mirror = self._mirror
        assert mirror is not None
        try:
            answer = await self._writer.call("mirror", lambda: mirror.write(key.uid))
        finally:
            self._busy.discard((_MIRROR, key.uid))
        if answer in (Answer.CONFLICT, Answer.UNAVAILABLE):
            mirror.forget(key.uid)
            self._desk.want(key, self._clock.monotonic_s(), self._writer.pause_s())

    def _tell(self, now_s: float) -> None:
        while self._writer.has_room_for_events(is_calm=self._is_calm()):
            event = self._outbox.take(now_s)
            if event is None:
                return
            self._group.create_task(self._write_event(event), name="status-event")
            self._writer.n_events += 1

    async def _write_event(self, event: KubeEvent) -> None:
        answer = await self._writer.tell(event)
        if answer is Answer.UNAVAILABLE:
            await self._clock.sleep(self._writer.pause_s())
            self._outbox.put_back(event)
