"""Which history a shard's configuration asks for, and when."""

import asyncio

from kai_es.cycle.usage import NOTHING
from kai_es.ports.stores import DecayedUsage
from kai_es.runtime.usage import ShardUsage
from kai_es.scheduler.config import Config
from tests.histories.builders import T0
from tests.histories.virtual import LoopClock, run_virtual

DAY_MS = 24 * 3_600_000


class Books:
    """Notes the windows it is asked for."""

    def __init__(self, window):
        self.window = window
        self.asked = []

    async def decayed(self, *, shard, now_ms):
        self.asked.append(self.window(shard, now_ms))
        return DecayedUsage({"q": {"gpu": 0.5}}, as_of=7)


class Site:
    """A view with one shard."""

    def __init__(self):
        self.config_now = None
        self.world = self.snapshot = self
        self.books = []
        self.usage = ShardUsage(self, "default", self.opening)

    def config(self, shard):
        assert shard == "default"
        return self.config_now

    def configure(self, params):
        self.config_now = Config(usage_params=params).shard("default")

    async def opening(self, window):
        self.books.append(Books(window))
        return self.books[-1]


def test_books_are_opened_once_the_configuration_asks_for_them():
    async def main():
        site, clock = Site(), LoopClock()
        feed = site.usage.feed(clock)
        running = asyncio.ensure_future(feed.run(lambda: None))
        await asyncio.sleep(5)
        site.configure(None)
        await asyncio.sleep(5)
        assert (site.books, feed.latest, feed.problem()) == ([], NOTHING, "")
        site.configure({"windowSize": "2d", "halfLifePeriod": "1h"})
        await asyncio.sleep(5)
        (window,) = site.books[0].asked
        assert window.start_ms - (clock.now_ms() - 2 * DAY_MS) in range(-5_000, 0)
        assert window.half_life_ms == 3_600_000
        assert feed.latest.by_queue == {"q": {"gpu": 0.5}}
        running.cancel()

    run_virtual(main())


def test_wrong_parameters_count_as_none_and_are_said():
    async def main():
        site, clock = Site(), LoopClock()
        site.configure({"windowSize": "a while"})
        assert await site.usage.decayed(shard="default", now_ms=T0) == NOTHING
        assert "windowSize is 'a while', want a duration such as 1w" in site.usage.problem
        site.configure({})
        assert (await site.usage.decayed(shard="default", now_ms=clock.now_ms())).by_queue
        assert site.usage.problem == ""

    run_virtual(main())
