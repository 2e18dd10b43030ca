"""Virtual time: an event loop whose clock jumps to the next timer instead of waiting."""

import asyncio
import selectors
import time

from tests.histories.builders import T0


class _NoWait:
    """A selector that never waits: it tells the loop's clock how long it would have."""

    def __init__(self):
        self._inner = selectors.DefaultSelector()
        self.passed_s = 0.0

    def select(self, timeout=None):
        ready = self._inner.select(0)
        if not ready:
            assert timeout is not None, "everything waits for something that no timer brings"
            self.passed_s += max(timeout, 0)
        return ready

    def __getattr__(self, name):
        return getattr(self._inner, name)


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop in virtual time. Threads are not for it."""

    def __init__(self):
        self._no_wait = _NoWait()
        super().__init__(self._no_wait)

    def time(self):
        return self._no_wait.passed_s


class LoopClock:
    """The Clock port over the running loop's time; `skew_ms` makes it wrong."""

    def __init__(self, skew_ms=0):
        self.skew_ms = skew_ms

    def now_ms(self):
        return T0 + self.skew_ms + int(asyncio.get_running_loop().time() * 1000)

    def monotonic_s(self):
        return asyncio.get_running_loop().time()

    async def sleep(self, seconds):
        await asyncio.sleep(seconds)


class RealClock(LoopClock):
    """The Clock port over the machine's clocks."""

    def now_ms(self):
        return time.time_ns() // 1_000_000 + self.skew_ms

    def monotonic_s(self):
        return time.monotonic()


def run_virtual(coroutine):
    """Run to the end in virtual time."""
    loop = VirtualLoop()
    try:
        return loop.run_until_complete(coroutine)
    finally:
        loop.run_until_complete(_end(asyncio.all_tasks(loop)))
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()


async def _end(tasks):
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
