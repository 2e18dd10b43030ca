"""The decayed usage of a shard: the parameters of its configuration, the figures of the books."""

from collections.abc import Awaitable, Callable

from kai_es.cycle.usage import NOTHING, Pace, UsageFeed
from kai_es.kube.objects import ShardConfig
from kai_es.ports.clock import Clock
from kai_es.ports.stores import DecayedUsage, UsageStore, Window
from kai_es.reader import View
from kai_es.usage.window import UsageParams, UsageParamsError, usage_params

WindowOf = Callable[[str, int], Window | None]
"""Shard and now in ms -> its window."""


class ShardUsage:
    """`UsageStore` of one shard, opened when its configuration first asks for history.

    Args:
        view: where the configuration is.
        shard: its name.
        opening: opens the books.
    """

    def __init__(
        self, view: View, shard: str, opening: Callable[[WindowOf], Awaitable[UsageStore]]
    ) -> None:
        self.problem = ""
        self._view = view
        self._shard = shard
        self._opening = opening
        self._read: tuple[ShardConfig | None, UsageParams | None] = (None, None)

    def feed(self, clock: Clock) -> UsageFeed:
        """What a scheduler takes usage from."""
        return UsageFeed(self, clock, shard=self._shard, pace=self._pace)

    async def decayed(self, *, shard: str, now_ms: int) -> DecayedUsage:
        """See the port."""
        if self._params() is None:
            return NOTHING
        store = await self._opening(self._window)
        return await store.decayed(shard=shard, now_ms=now_ms)

    def _pace(self) -> Pace | None:
        params = self._params()
        return None if params is None else Pace(params.fetch_ms / 1000, params.stale_ms)

    def _window(self, shard: str, now_ms: int) -> Window | None:
        assert shard == self._shard
        params = self._params()
        return None if params is None else params.window(now_ms)

    def _params(self) -> UsageParams | None:
        """As configured now; wrong ones count as none, and `problem` says so."""
        config = self._view.world.snapshot.config(self._shard)
        if config is self._read[0]:
            return self._read[1]
        params, self.problem = None, ""
        raw = config.settings.get("usage_params") if config is not None else None
        try:
            params = None if raw is None else usage_params({"usageParams": raw})
        except UsageParamsError as exc:
            self.problem = f"configuration of shard {self._shard}: {exc}"
        self._read = (config, params)
        return params
