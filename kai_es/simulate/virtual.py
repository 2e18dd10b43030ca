"""Virtual time: an event loop whose clock jumps to the next timer instead of waiting.

Everything that goes by the loop's timers (sleeps, timeouts, leases, followers of a log) goes by
virtual time, so a simulated minute costs what is done in it and a run can be repeated exactly.
"""

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, Final, TypeVar

T = TypeVar("T")

START_MS: Final = 1_700_000_000_000
"""Wall-clock time at which virtual time begins: 2023-11-14T22:13:20Z."""

TURNS_MAX: Final = 200_000
"""Turns of the loop without any passing of time; more means that something goes round in it."""


class NoTimerError(RuntimeError):
    """Everything waits for something that no timer brings, or time has stopped passing."""


class _NoWait(selectors.DefaultSelector):
    """A selector that never waits: it tells the loop's clock how long it would have."""

    def __init__(self) -> None:
        super().__init__()
        self.passed_s = 0.0
        self._turns = 0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout != 0:  # before time passes; asking the kernel every turn is dear
            ready = super().select(0)
            if ready:
                return ready
        if timeout is None:
            raise NoTimerError("everything waits for something that no timer brings")
        if timeout:
            self.passed_s += timeout
            self._turns = 0
        self._turns += 1
        if self._turns > TURNS_MAX:
            raise NoTimerError(f"{TURNS_MAX} turns at {self.passed_s:.3f} s: time does not pass")
        return []


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop in virtual time. Threads are not for it."""

    def __init__(self) -> None:
        self._no_wait = _NoWait()
        super().__init__(self._no_wait)

    def time(self) -> float:
        """Seconds since the loop was made."""
        return self._no_wait.passed_s


class VirtualClock:
    """The Clock port over the running loop's time; `skew_ms` makes its wall clock wrong."""

    def __init__(self, skew_ms: int = 0) -> None:
        self.skew_ms = skew_ms

    def now_ms(self) -> int:
        """See the port."""
        return START_MS + self.skew_ms + int(asyncio.get_running_loop().time() * 1000)

    def monotonic_s(self) -> float:
        """See the port."""
        return asyncio.get_running_loop().time()

    async def sleep(self, seconds: float) -> None:
        """See the port."""
        await asyncio.sleep(seconds)


def run_virtual(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run to the end in virtual time; tasks that are left are cancelled."""
    loop = VirtualLoop()
    try:
        return loop.run_until_complete(coroutine)
    finally:
        loop.run_until_complete(_end(loop))
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()


async def _end(loop: asyncio.AbstractEventLoop) -> None:
    here = asyncio.current_task()
    tasks = [task for task in asyncio.all_tasks(loop) if task is not here]
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
