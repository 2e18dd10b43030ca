"""Clocks for tests of services."""

import asyncio

from kai_es.runtime.clock import SystemClock


class HastyClock(SystemClock):
    """Real time in which waiting takes a hundredth."""

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds / 100)
