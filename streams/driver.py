"""Feeds the books from a consumer that somebody else positions, such as a Faust worker's.

Such a consumer starts wherever its group committed, may hand in records twice, may leave some out
and goes on handing in what it had fetched after it was told to go back. None of that matters: the
place is in the store, the accept rule tells what continues it, and what the consumer left out is
read from the log. The consumer is sent to its place once, at the start, to spare it old records.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final

from kai_es.events.catalogue import SNAPSHOT
from kai_es.ports.clock import Clock
from kai_es.ports.errors import UnavailableError
from kai_es.ports.eventlog import Entry
from kai_es.ports.stores import DivergedError
from kai_es.snapshot.errors import BrokenHistoryError
from streams.books import OPENS, Books
from streams.projection import MovedError

logger = logging.getLogger(__name__)

BACKOFF_FIRST_S: Final = 0.2
BACKOFF_MAX_S: Final = 10.0
STOP_S: Final = 5.0
REVOKED_S: Final = 1.0

JOINS: Final = "joins the other workers of these books"

RETRIED: Final = (UnavailableError, MovedError, DivergedError)
"""What opening the books anew, after a while, may mend."""

Seek = Callable[[int], Awaitable[None]]


class Driver:
    """Keeps books with a consumer of one partition.

    trouble: why nothing is folded, "" = it is, or another worker has the partition.

    Args:
        books: what to keep.
        clock: for waiting.
        seek: tells the consumer to go on from an offset.
    """

    def __init__(self, books: Books, clock: Clock, seek: Seek) -> None:
        self.n_opened = self.n_gaps = 0
        self._books = books
        self._clock = clock
        self._seek_to = seek
        self._lock = asyncio.Lock()
        self._failure = ""
        self._joined = self._assigned = self._open = False
        self._not_before_s = 0.0
        self._backoff_s = BACKOFF_FIRST_S
        self._filling: asyncio.Future[None] | None = None
        self._gap = 0

    @property
    def is_assigned(self) -> bool:
        """Whether the partition is ours; a standby has none."""
        return self._assigned

    @property
    def trouble(self) -> str:
        """See above; until it is told who has the partition, a worker is not even a standby."""
        if self._assigned:
            return self._failure or ("" if self._open else OPENS)
        return "" if self._joined else JOINS

    async def assigned(self, *, ours: bool = True) -> None:
        """The group has said who has the partition."""
        async with self._lock:
            self._joined = True
            self._assigned = self._assigned or ours

    async def revoked(self) -> None:
        """It is not any more.

        What is folded is committed if that is quick: whoever comes next need not fold it. Mostly
        that is we, because another worker has come or gone, and then we go on where we were.
        """
        async with self._lock:
            await self._settled(REVOKED_S)
            self._assigned = self._open = False
            self._failure = ""  # a standby has none, whatever it had before
            await self._books.abandon()

    async def take(self, entry: Entry) -> None:
        """Fold one record, or begin to fold what is missing before it.

        Raises:
            PoisonError: waiting mends nothing.
        """
        async with self._lock:
            resume = await self._feed(entry) if self._open else None
            if resume is not None and self._gap != self.n_opened:
                self.n_gaps += 1
                self._gap = self.n_opened
                # Not here: a consumer whose record is not done with can give up no partition.
                self._filling = asyncio.ensure_future(self._fill(resume, self.n_opened))
        await self._clock.sleep(0)

    async def tick(self) -> None:
        """Open if that is due, commit what has waited. To be called a few times a second.

        Raises:
            HistoryGoneError, GoneError, BrokenHistoryError, PoisonError: waiting mends nothing.
        """
        async with self._lock:
            if self._filling is not None and self._filling.done():
                filled, self._filling = self._filling, None
                await self._guarded(filled)
            if not self._assigned:
                return
            if self._open:
                await self._guarded(self._books.idle())
            elif self._clock.monotonic_s() >= self._not_before_s:
                await self._guarded(self._begin())

    async def close(self) -> None:
        """Commit what is folded if that is quick, then let go."""
        async with self._lock:
            await self._settled(STOP_S)
            self._assigned = self._open = False
            await self._books.abandon()
        if self._filling is not None:
            self._filling.cancel()
            await asyncio.wait((self._filling,))

    async def _begin(self) -> None:
        await self._books.abandon()
        start = await self._books.open()
        await self._seek_to(start)
        self.n_opened += 1
        self._open = True
        self._failure = ""

    async def _feed(self, entry: Entry) -> int | None:
        """Fold a record; the offset to read from if one before it is missing."""
        before, resume = self._books.world.offset, None
        if entry.position > before:
            try:
                resume = await self._books.feed(entry)
            except RETRIED as exc:
                self._failed(exc)
        if self._books.world.offset != before:
            self._backoff_s = BACKOFF_FIRST_S
        return resume

    async def _fill(self, start: int, opened: int) -> None:
        """Fold from the log what the consumer left out, unless the books are opened anew."""
        async for entries in self._books.read(start):
            for entry in entries:
                async with self._lock:
                    if not self._open or self.n_opened != opened:
                        return
                    resume = await self._feed(entry)
                if resume is not None:
                    raise BrokenHistoryError(
                        f"{SNAPSHOT} {entry.position}: the batches that lead there from offset "
                        f"{resume - 1} are not in the log"
                    )
                await self._clock.sleep(0)
        self._gap = 0

    async def _guarded(self, doing: Awaitable[None]) -> None:
        try:
            await doing
        except RETRIED as exc:
            self._failed(exc)

    def _failed(self, exc: Exception) -> None:
        if isinstance(exc, DivergedError):
            if str(exc) != self._failure:
                logger.error("books diverged", extra={"problem": str(exc)})
            self._backoff_s = BACKOFF_MAX_S
        self._pause(str(exc))

    async def _settled(self, seconds: float) -> None:
        if self._open:
            settling = asyncio.ensure_future(self._guarded(self._books.settle()))
            await asyncio.wait((settling,), timeout=seconds)
            if not settling.done():
                settling.cancel()

    def _pause(self, trouble: str) -> None:
        self._failure, self._open = trouble if self._assigned else "", False
        self._not_before_s = self._clock.monotonic_s() + self._backoff_s
        self._backoff_s = min(self._backoff_s * 2, BACKOFF_MAX_S)
