"""The scheduler as a part: first it finds where to take up the history, then it runs.

It starts from the newest checkpoint. While the database is away the beginning of the log does as
well; when that is trimmed it waits, and says so (architecture §5).
"""

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import Final, NamedTuple

from kai_es.cycle.scheduler import Scheduler
from kai_es.cycle.status import SchedulerStatus
from kai_es.events.catalogue import SNAPSHOT
from kai_es.events.decisions import Verdict
from kai_es.ports.backoff import Backoff
from kai_es.ports.clock import Clock
from kai_es.ports.errors import UnavailableError
from kai_es.ports.eventlog import JOINS, EventLog
from kai_es.ports.race import race
from kai_es.ports.stores import CheckpointStore
from kai_es.reader import View, nearest_world
from kai_es.reader.restore import HistoryGoneError
from kai_es.runtime.pages import NOT_FOUND, PATHS, not_ready
from kai_es.runtime.part import NO_PAGES, Gauges, Page, Pages, Part, Problems
from kai_es.snapshot.checkpoint import CheckpointError
from kai_es.snapshot.world import World

logger = logging.getLogger(__name__)

RETRY_S: Final = (1.0, 15.0)
"""Between tries to find a history; nothing but a person or a server's return mends it."""


class Running(NamedTuple):
    """A scheduler, what else is wrong around it, and what it serves."""

    scheduler: Scheduler
    problems: Problems = tuple
    pages: Pages = NO_PAGES


async def find_world(
    log: EventLog,
    checkpoints: CheckpointStore | None,
    clock: Clock,
    say: Callable[[str], None],
) -> World:
    """The nearest world, as soon as there is one.

    Args:
        log: where `snapshot` is.
        checkpoints: None = there are none.
        clock: for waiting.
        say: is told why it has to be waited, "" = no more.
    """
    backoff = Backoff(*RETRY_S)
    while True:
        try:
            world = await _nearest(log, checkpoints)
        except (UnavailableError, HistoryGoneError, CheckpointError) as exc:
            say(f"no history to start from: {exc}")
            await clock.sleep(backoff.next_s())
            continue
        say("")
        logger.info("takes up the history", extra={"offset": world.offset})
        return world


async def _nearest(log: EventLog, checkpoints: CheckpointStore | None) -> World:
    world = await nearest_world(log, checkpoints)
    if world.offset < (await log.end(SNAPSHOT))[0]:
        return world
    logger.warning(
        "checkpoint of another log left aside",
        extra={"problem": f"it is of offset {world.offset}, which this log has not reached"},
    )
    return await nearest_world(log, None)


class SchedulerPart:
    """Runs a scheduler from the nearest world.

    Args:
        log: where `snapshot` is.
        clock: for waiting.
        checkpoints: None = there are none.
        make: a view on the world -> the scheduler that goes on from there.
    """

    def __init__(
        self,
        log: EventLog,
        clock: Clock,
        *,
        checkpoints: CheckpointStore | None,
        make: Callable[[View], Running],
    ) -> None:
        self._log = log
        self._clock = clock
        self._checkpoints = checkpoints
        self._make = make
        self._trouble = ""
        self._stopping = asyncio.Event()
        self._running: Running | None = None

    def part(self) -> Part:
        """For a process."""
        return Part(
            name="scheduler",
            run=self.run,
            stop=self.stop,
            ready=self.problems,
            gauges=self._gauges(),
            pages={path: partial(self._page, path) for path in PATHS},
        )

    async def _page(self, path: str) -> Page:
        """Before there is a history there is nothing to serve."""
        running = self._running
        if running is None:
            return not_ready(self._trouble or "no history to start from yet")
        if path not in running.pages:
            return NOT_FOUND
        return await running.pages[path]()

    @property
    def status(self) -> SchedulerStatus:
        """Of the scheduler, or of none."""
        return self._running.scheduler.status if self._running is not None else SchedulerStatus()

    def stop(self) -> None:
        """End the reign in good order; `run` returns."""
        self._stopping.set()
        if self._running is not None:
            self._running.scheduler.stop()

    async def run(self) -> None:
        """Find a history, then schedule until stopped. Raises as `Scheduler.run`."""
        found: list[World] = []
        await race(self._find(found), self._stopping.wait())
        if not self._stopping.is_set():
            self._running = self._make(View(self._log, self._clock, found[0]))
            await self._running.scheduler.run()

    def problems(self) -> list[str]:
        """A leader whose gate is closed is not doing its work; a standby is."""
        if self._running is None:
            return [self._trouble or JOINS]
        status = self.status
        found = [text for text in (status.trouble, status.config_problem) if text]
        if status.state == "leading" and status.gate.verdict is not Verdict.OPEN:
            verdict = status.gate.verdict.name.lower()
            found += [f"gate {verdict}: {reason}" for reason in status.gate.reasons]
        return [*found, *self._running.problems()]

    async def _find(self, found: list[World]) -> None:
        found.append(await find_world(self._log, self._checkpoints, self._clock, self._say))

    def _say(self, trouble: str) -> None:
        self._trouble = trouble

    def _gauges(self) -> Gauges:
        def lag_s() -> float:
            running = self._running
            return running.scheduler.view.age_ms() / 1000 if running is not None else 0.0

        return {
            "leading": (
                "1 = at work, 0 = standby",
                lambda: float(self.status.state == "leading"),
            ),
            "lag_seconds": ("Age of the newest batch folded", lag_s),
            "cycles": ("Cycles published", lambda: self.status.n_cycles),
            "binds": ("Binds decided", lambda: self.status.n_binds),
            "evictions": ("Evictions decided", lambda: self.status.n_evicts),
            "decision_seconds": (
                "Duration of the last decision",
                lambda: self.status.took_ms / 1000,
            ),
        }
