"""Starts the roll-up of usage when the books have passed an hour."""

import asyncio
from typing import Final

from kai_es.ports.books import Rollup
from kai_es.ports.clock import Clock
from kai_es.ports.errors import UnavailableError
from streams.projection import AnyProjection

HOUR_MS: Final = 3_600_000
RETRY_S: Final = 5.0
"""After a roll-up that failed; what is wrong with the database is shown until the next one."""


class RollUps:
    """One roll-up at a time, beside the folding.

    Args:
        store: what rolls up.
        projection: the usage projection, whose committed time says when.
        clock: for waiting.
    """

    def __init__(self, store: Rollup, projection: AnyProjection, clock: Clock) -> None:
        self.trouble = ""
        self.n_done = 0
        self._store = store
        self._projection = projection
        self._clock = clock
        self._hour = -1
        self._not_before_s = 0.0
        self._running: asyncio.Task[None] | None = None

    async def idle(self) -> None:
        """Begin a roll-up if there is a new hour. Returns at once."""
        if self._running is not None:
            if not self._running.done():
                return
            finished, self._running = self._running, None
            finished.result()
        hour = self._projection.place.time_ms // HOUR_MS
        if hour > self._hour and self._clock.monotonic_s() >= self._not_before_s:
            self._running = asyncio.ensure_future(self._roll_up(hour))

    async def finish(self) -> None:
        """Wait for the one under way."""
        if self._running is not None:
            running, self._running = self._running, None
            await running

    async def close(self) -> None:
        """Stop the one under way; what it had not stored comes again."""
        if self._running is not None:
            self._running.cancel()
            await asyncio.gather(self._running, return_exceptions=True)
            self._running = None
        self.trouble = ""

    async def _roll_up(self, hour: int) -> None:
        try:
            while await self._store.roll_up():
                await self._clock.sleep(0)
        except UnavailableError as exc:
            self.trouble = str(exc)
            self._not_before_s = self._clock.monotonic_s() + RETRY_S
            return
        self.trouble = ""
        self.n_done += 1
        self._hour = hour
