"""Time, as every service sees it: real in production, virtual in the simulation."""

import asyncio
from typing import Protocol


class Clock(Protocol):
    """What a service may know of time. Services never call `time` or `asyncio.sleep` themselves.

    * `now_ms` may jump (it is the machine's wall clock); `monotonic_s` never falls.
    * `sleep` is the only way to wait for time to pass.
    """

    def now_ms(self) -> int:
        """Wall clock, whole milliseconds since the epoch."""
        ...

    def monotonic_s(self) -> float:
        """Seconds since some fixed moment; for leases and durations."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Return after `seconds`; 0 lets others run."""
        ...


async def wait_for(event: asyncio.Event, *, clock: Clock, seconds: float) -> bool:
    """Wait until `event` is set, at most `seconds` of `clock`; tells whether it is set."""
    if event.is_set() or seconds <= 0:
        return event.is_set()
    waiting = asyncio.ensure_future(event.wait())
    sleeping = asyncio.ensure_future(clock.sleep(seconds))
    try:
        await asyncio.wait((waiting, sleeping), return_when=asyncio.FIRST_COMPLETED)
    finally:
        waiting.cancel()
        sleeping.cancel()
    return event.is_set()
