"""Clocks for tests of services."""

import asyncio

from kai_es.runtime.clock import SystemClock


class HastyClock(SystemClock):
    """Real time in which waiting takes a hundredth."""

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds / 100)


async def let_run(seconds):
    """Let others run for so long, and for many turns: on a busy machine time alone does not."""
    for _ in range(max(int(seconds * 1000), 1)):
        for _ in range(50):
            await asyncio.sleep(0)
        await asyncio.sleep(0.001)
