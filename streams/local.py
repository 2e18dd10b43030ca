"""The local runner: follows `snapshot` on the EventLog port and keeps the books."""

import asyncio
import logging
from dataclasses import dataclass, field
from typing import Final

from kai_es.events.catalogue import SNAPSHOT
from kai_es.ports.clock import Clock, wait_for
from kai_es.ports.errors import UnavailableError
from kai_es.ports.eventlog import EventLog, Position
from kai_es.ports.stores import DivergedError
from kai_es.snapshot.errors import BrokenHistoryError
from streams.books import OPENS, Books
from streams.projection import MovedError

logger = logging.getLogger(__name__)

BACKOFF_FIRST_S: Final = 0.2
BACKOFF_MAX_S: Final = 10.0
DIVERGED_S: Final = 5.0
"""A disagreement is for people to look at; trying again at once would only fill the log."""

STOP_S: Final = 5.0
"""A graceful stop waits this long for the last commit; what is not in is folded again."""


@dataclass(slots=True)
class BooksStatus:
    """What health and metrics show.

    lag_s: age of the oldest batch that is not folded, by the local clock.
    committed: by projection, (offset, time in ms) of what is in the store.
    """

    trouble: str = OPENS
    is_caught_up: bool = False
    lag_s: float = 0.0
    offset: int = -1
    n_rows: int = 0
    n_batches: int = 0
    n_reopened: int = 0
    n_diverged: int = 0
    committed: dict[str, tuple[int, int]] = field(default_factory=dict)


class LocalRunner:
    """Feeds `Books` from the log until stopped.

    Cycles never wait for it: while a store is away it waits, with its place in the log unchanged.
    """

    def __init__(self, log: EventLog, books: Books, clock: Clock) -> None:
        self.status = BooksStatus()
        self._log = log
        self._books = books
        self._clock = clock
        self._stopping = asyncio.Event()

    def stop(self) -> None:
        """End `run` after a last commit."""
        self._stopping.set()

    async def run(self) -> None:
        """Follow the log until `stop`.

        Raises:
            HistoryGoneError, GoneError, CorruptLogError, PoisonError, BrokenHistoryError: nothing
            that waiting would mend.
        """
        await self._until_stopped(follow=True)

    async def catch_up(self) -> None:
        """Fold and commit what the log has now, then return. Raises as `run`."""
        await self._until_stopped(follow=False)

    async def _until_stopped(self, *, follow: bool) -> None:
        sessions = asyncio.ensure_future(self._sessions(follow=follow))
        stopping = asyncio.ensure_future(self._stopping.wait())
        try:
            await asyncio.wait((sessions, stopping), return_when=asyncio.FIRST_COMPLETED)
            if not sessions.done():
                await asyncio.wait((sessions,), timeout=STOP_S)
            if sessions.done():
                sessions.result()
        finally:
            stopping.cancel()
            sessions.cancel()
            await asyncio.gather(sessions, stopping, return_exceptions=True)
            await self._books.abandon()

    async def _sessions(self, *, follow: bool) -> None:
        backoff_s = BACKOFF_FIRST_S
        while not self._stopping.is_set():
            n_batches = self.status.n_batches
            try:
                await self._session(follow=follow)
            except UnavailableError as exc:
                self._reopen(str(exc))
            except MovedError as exc:
                self._reopen(str(exc))
                logger.info("books moved", extra={"problem": str(exc)})
            except DivergedError as exc:
                self.status.n_diverged += 1
                if str(exc) != self.status.trouble:
                    logger.error("books diverged", extra={"problem": str(exc)})
                self._reopen(str(exc))
                await self._pause(DIVERGED_S)
            else:
                return
            backoff_s = (
                BACKOFF_FIRST_S
                if self.status.n_batches > n_batches
                else min(backoff_s * 2, BACKOFF_MAX_S)
            )
            await self._pause(backoff_s)

    async def _session(self, *, follow: bool) -> None:
        """From the stores' places to the end of the log, or until stopped."""
        await self._books.abandon()
        start = await self._books.open()
        self.status.trouble = self._books.trouble()
        while not self._stopping.is_set():
            missed = await self._read(start, follow=follow)
            if missed is None:
                break
            if missed == start:
                raise BrokenHistoryError(
                    f"{SNAPSHOT}: the batch that continues offset {start - 1} is not in the log"
                )
            start = missed
        await self._books.settle()
        self._show()

    async def _read(self, start: int, *, follow: bool) -> int | None:
        """Fold from an offset on; the offset to go back to if a batch was missed."""
        async for chunk in self._log.read(SNAPSHOT, 0, Position(start), follow=follow):
            for entry in chunk:
                missed = await self._books.feed(entry)
                if missed is not None:
                    return missed
                self._show()
                if self._stopping.is_set():
                    return None
                await self._clock.sleep(0)
            if not chunk:
                await self._at_end()
            await self._books.idle()
            if self._stopping.is_set():
                return None
        return None

    async def _at_end(self) -> None:
        self.status.is_caught_up = True
        self.status.lag_s = 0.0
        self.status.trouble = self._books.trouble()
        self._show_committed()

    def _show(self) -> None:
        world, status = self._books.world, self.status
        if status.offset != world.offset:
            status.offset = world.offset
            status.n_batches += 1
        status.lag_s = max(self._clock.now_ms() - world.time, 0) / 1000
        status.trouble = self._books.trouble()
        self._show_committed()

    def _show_committed(self) -> None:
        self.status.committed = {
            projection.name: (projection.place.offset, projection.place.time_ms)
            for projection in self._books.projections
        }

    def _reopen(self, trouble: str) -> None:
        self.status.trouble = trouble
        self.status.is_caught_up = False
        self.status.n_reopened += 1

    async def _pause(self, seconds: float) -> None:
        await wait_for(self._stopping, clock=self._clock, seconds=seconds)
