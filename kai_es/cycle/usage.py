"""Decayed usage, fetched in the background: a cycle never waits for Postgres."""

from collections.abc import Callable
from typing import Final, NamedTuple

from kai_es.ports.clock import Clock
from kai_es.ports.errors import UnavailableError
from kai_es.ports.stores import DecayedUsage, UsageStore

RETRY_S: Final = 5.0

LOOK_S: Final = 1.0
"""How soon a changed configuration is noticed."""

NOTHING: Final = DecayedUsage(by_queue={}, as_of=-1)


class Pace(NamedTuple):
    """How often usage is fetched, and from which age on it is flagged; it is used all the same.

    The defaults are the reference's (fairness.md §9.1).
    """

    fetch_s: float = 60.0
    stale_ms: int = 5 * 60 * 1000


class UsageFeed:
    """The last usage that could be fetched.

    latest: what a cycle gets.
    trouble: why the last fetch failed, "" = it did not.

    Args:
        store: where usage is.
        clock: for waiting.
        shard: whose usage it is.
        pace: as configured now, None = no history counts.
    """

    def __init__(
        self, store: UsageStore, clock: Clock, *, shard: str, pace: Callable[[], Pace | None]
    ) -> None:
        self.latest = NOTHING
        self.trouble = ""
        self._store = store
        self._clock = clock
        self._shard = shard
        self._pace = pace
        self._fetched_ms = 0
        self._next_s = float("-inf")

    def is_stale(self, now_ms: int) -> bool:
        """Whether the latest is older than the staleness period.

        It is as old as the fetch, or, when the books lag behind the log, as what they were.
        """
        pace = self._pace()
        if self.latest.as_of < 0 or pace is None:
            return False
        known_ms = min(self._fetched_ms, self.latest.as_of_ms or self._fetched_ms)
        return now_ms - known_ms > pace.stale_ms

    def problem(self) -> str:
        """Why decisions rest on no usage or on an old one, "" = they do not."""
        if self._pace() is None:
            return ""
        if self.latest.as_of < 0:
            return f"no usage yet: {self.trouble}" if self.trouble else ""
        if not self.is_stale(self._clock.now_ms()):
            return ""
        return f"usage is old: {self.trouble or 'the books lag behind the log'}"

    async def run(self, on_new: Callable[[], None]) -> None:
        """Fetch until cancelled; `on_new` is called when other figures came."""
        while True:
            pace = self._pace()
            if pace is None:
                self.trouble, self._next_s = "", float("-inf")
                self._take(NOTHING, on_new)
            elif self._clock.monotonic_s() >= self._next_s:
                pause_s = pace.fetch_s if await self._fetch(on_new) else RETRY_S
                self._next_s = self._clock.monotonic_s() + pause_s
            rest_s = self._next_s - self._clock.monotonic_s()
            await self._clock.sleep(min(LOOK_S, rest_s) if rest_s > 0 else LOOK_S)

    async def _fetch(self, on_new: Callable[[], None]) -> bool:
        now_ms = self._clock.now_ms()
        try:
            usage = await self._store.decayed(shard=self._shard, now_ms=now_ms)
        except UnavailableError as exc:
            self.trouble = str(exc)
            return False
        self.trouble = ""
        self._fetched_ms = now_ms
        self._take(usage, on_new)
        return True

    def _take(self, usage: DecayedUsage, on_new: Callable[[], None]) -> None:
        is_new = usage.by_queue != self.latest.by_queue
        self.latest = usage
        if is_new:
            on_new()
