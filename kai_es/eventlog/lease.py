"""A role held by renewing it in time, the same for memory and SQLite."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Final

from kai_es.ports.errors import UnavailableError

LEASE_S: Final = 6.0
"""As long as a Kafka session. A leader stops by itself at 10 s (architecture §3)."""

RENEWALS_PER_LEASE: Final = 3
"""Two renewals may fail before the lease runs out."""

RETRY_S: Final = 0.25
"""How often a standby asks."""


class RenewedLease:
    """A held role with a task that renews it.

    renew:   True while the role is still this lease's; UnavailableError = ask again.
    release: gives the role up; harmless when it is no longer held.
    ended:   called once when it is no longer renewed, for whatever reason.
    """

    def __init__(
        self,
        role: str,
        renew: Callable[[], Awaitable[bool]],
        release: Callable[[], Awaitable[None]],
        *,
        lease_s: float = LEASE_S,
        ended: Callable[[], None] | None = None,
    ) -> None:
        self.role = role
        self._renew = renew
        self._release = release
        self._lease_s = lease_s
        self._when_ended = ended
        self._clock = asyncio.get_running_loop().time
        self._renewed = self._clock()
        self._lost = asyncio.Event()
        self._task = asyncio.create_task(self._keep(), name=f"lease-{role}")
        self._task.add_done_callback(self._ended)

    def age_s(self) -> float:
        """See the port."""
        return self._clock() - self._renewed

    async def lost(self) -> None:
        """See the port."""
        await self._lost.wait()

    async def release(self) -> None:
        """See the port."""
        self.abandon()
        await asyncio.gather(self._task, return_exceptions=True)
        self._lost.set()
        # It runs out by itself; and who ends because it was cancelled must not be told otherwise.
        with contextlib.suppress(UnavailableError):
            await self._release()

    def abandon(self) -> None:
        """Neither renew nor release: what the holder's sudden death looks like to others."""
        self._task.cancel()

    async def _keep(self) -> None:
        while self.age_s() < self._lease_s:
            await asyncio.sleep(self._lease_s / RENEWALS_PER_LEASE)
            asked = self._clock()
            try:
                if not await self._renew():
                    return
            except UnavailableError:
                continue  # the lease may outlast the trouble; its age tells
            self._renewed = asked

    def _ended(self, task: asyncio.Task[None]) -> None:
        if self._when_ended is not None:
            self._when_ended()
        if not task.cancelled():
            self._lost.set()
