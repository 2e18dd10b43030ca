"""Decayed usage, fetched in the background: a cycle never waits for Postgres."""

from collections.abc import Callable
from typing import Final

from kai_es.ports.clock import Clock
from kai_es.ports.errors import UnavailableError
from kai_es.ports.stores import DecayedUsage, UsageStore

FETCH_S: Final = 60.0
"""Usage moves slowly; its half-life is counted in days."""

RETRY_S: Final = 5.0

STALE_MS: Final = 5 * 60 * 1000
"""Older usage is still used, and flagged."""

NOTHING: Final = DecayedUsage(by_queue={}, as_of=-1)


class UsageFeed:
    """The last usage that could be fetched.

    latest: what a cycle gets.
    trouble: why the last fetch failed, "" = it did not.
    """

    def __init__(
        self,
        store: UsageStore,
        clock: Clock,
        *,
        shard: str,
        fetch_s: float = FETCH_S,
        stale_ms: int = STALE_MS,
    ) -> None:
        self.latest = NOTHING
        self.trouble = ""
        self._store = store
        self._clock = clock
        self._shard = shard
        self._fetch_s = fetch_s
        self._stale_ms = stale_ms
        self._fetched_ms = 0

    def is_stale(self, now_ms: int) -> bool:
        """Whether the latest is older than the staleness period.

        It is as old as the fetch, or, when the books lag behind the log, as what they were.
        """
        if self.latest.as_of < 0:
            return False
        known_ms = min(self._fetched_ms, self.latest.as_of_ms or self._fetched_ms)
        return now_ms - known_ms > self._stale_ms

    async def run(self, on_new: Callable[[], None]) -> None:
        """Fetch until cancelled; `on_new` is called when other figures came."""
        while True:
            now_ms = self._clock.now_ms()
            try:
                usage = await self._store.decayed(shard=self._shard, now_ms=now_ms)
            except UnavailableError as exc:
                self.trouble = str(exc)
                await self._clock.sleep(RETRY_S)
                continue
            self.trouble = ""
            self._fetched_ms = now_ms
            is_new = usage.by_queue != self.latest.by_queue
            self.latest = usage
            if is_new:
                on_new()
            await self._clock.sleep(self._fetch_s)
