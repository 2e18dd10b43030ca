"""Real time as a `ports.clock.Clock`."""

import asyncio
import time


class SystemClock:
    """The machine's clocks and the event loop's timer."""

    def now_ms(self) -> int:
        """See the port."""
        return time.time_ns() // 1_000_000

    def monotonic_s(self) -> float:
        """See the port."""
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        """See the port."""
        await asyncio.sleep(seconds)
