"""Who waits for which partition to grow."""

import asyncio
from collections.abc import Hashable, Mapping
from typing import Final, Generic, TypeVar

IDLE_S: Final = 0.08
"""A follower looks up at least this often; the port promises 100 ms."""

Part = TypeVar("Part", bound=Hashable)


class Tail(Generic[Part]):
    """The last known end of each partition, and the followers that wait there.

    Belongs to one event loop; threads come in through `call_soon_threadsafe`.
    """

    def __init__(self) -> None:
        self._ends: dict[Part, int] = {}
        # Ordered, so that a simulation wakes them in the same order every time.
        self._waiters: dict[Part, dict[asyncio.Future[bool], None]] = {}

    def moved(self, ends: Mapping[Part, int]) -> None:
        """Note new ends and wake who waits for them. An end never falls."""
        for part, end in ends.items():
            if end > self._ends.get(part, 0):
                self._ends[part] = end
                self._wake(part)

    def wake_all(self) -> None:
        """Wake everyone: something may have changed that no end tells."""
        for part in list(self._waiters):
            self._wake(part)

    async def beyond(self, part: Part, end: int, timeout_s: float) -> bool:
        """Wait until the partition is known to go beyond `end`; False when the time is over."""
        if self._ends.get(part, 0) > end:
            return True
        loop = asyncio.get_running_loop()
        waiter: asyncio.Future[bool] = loop.create_future()
        waiters = self._waiters.setdefault(part, {})
        waiters[waiter] = None
        timer = loop.call_later(timeout_s, _settle, waiter, False)
        try:
            return await waiter
        finally:
            timer.cancel()
            waiters.pop(waiter, None)

    def _wake(self, part: Part) -> None:
        for waiter in self._waiters.get(part, ()):
            _settle(waiter, True)


def _settle(waiter: asyncio.Future[bool], woken: bool) -> None:
    if not waiter.done():
        waiter.set_result(woken)
