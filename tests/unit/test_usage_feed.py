import asyncio

from kai_es.cycle.usage import NOTHING, Pace, UsageFeed
from kai_es.ports.errors import UnavailableError
from kai_es.ports.stores import DecayedUsage
from tests.histories.builders import T0
from tests.histories.virtual import LoopClock, run_virtual


class Source:
    def __init__(self, clock):
        self.clock = clock
        self.away = False
        self.lag_ms = 0

    async def decayed(self, *, shard, now_ms):
        if self.away:
            raise UnavailableError("no database")
        return DecayedUsage({"q": {"gpu": 0.5}}, as_of=7, as_of_ms=now_ms - self.lag_ms)


def feed_of(source):
    return UsageFeed(source, source.clock, shard="default", pace=lambda: Pace(10, 300_000))


async def at(clock, seconds):
    await clock.sleep(seconds - clock.monotonic_s())


def test_field_case_10_source_away_keeps_the_values_and_flags_them():
    """The source fails at t = 100, staleness 300: unchanged until 400, then flagged, never zero."""

    async def main():
        clock = LoopClock()
        source = Source(clock)
        feed = feed_of(source)
        running = asyncio.ensure_future(feed.run(lambda: None))
        seen = {}
        await at(clock, 100.5)  # fetched at 100
        source.away = True
        for second in (101, 399, 400, 401, 5_000):
            await at(clock, second)
            usage = feed.latest.by_queue["q"]["gpu"]
            seen[second] = (usage, feed.is_stale(T0 + second * 1000))
        assert seen == {
            101: (0.5, False),
            399: (0.5, False),
            400: (0.5, False),
            401: (0.5, True),
            5_000: (0.5, True),
        }
        source.away = False
        await at(clock, 5_020)
        assert not feed.is_stale(clock.now_ms())
        running.cancel()

    run_virtual(main())


def test_books_that_lag_make_fresh_answers_stale():
    async def main():
        clock = LoopClock()
        source = Source(clock)
        source.lag_ms = 301_000
        feed = feed_of(source)
        running = asyncio.ensure_future(feed.run(lambda: None))
        await at(clock, 1)
        assert feed.is_stale(clock.now_ms())
        running.cancel()

    run_virtual(main())


def test_nothing_fetched_is_not_stale():
    async def main():
        source = Source(LoopClock())
        assert not feed_of(source).is_stale(T0 + 10**9)

    run_virtual(main())


def test_problem_is_told_when_decisions_rest_on_nothing_or_on_old_figures():
    async def main():
        clock = LoopClock()
        source = Source(clock)
        source.away = True
        feed = feed_of(source)
        running = asyncio.ensure_future(feed.run(lambda: None))
        await at(clock, 1)
        assert feed.problem() == "no usage yet: no database"
        source.away = False
        await at(clock, 10)
        assert feed.problem() == ""
        source.away = True
        await at(clock, 100)
        assert feed.problem() == ""
        await at(clock, 400)
        assert feed.problem() == "usage is old: no database"
        running.cancel()

    run_virtual(main())


def test_history_that_no_longer_counts_is_forgotten():
    async def main():
        clock = LoopClock()
        pace, news = [Pace(10)], []
        feed = UsageFeed(Source(clock), clock, shard="default", pace=lambda: pace[0])
        running = asyncio.ensure_future(feed.run(lambda: news.append(clock.monotonic_s())))
        await at(clock, 15)
        assert feed.latest.by_queue
        pace[0] = None
        await at(clock, 18)
        assert feed.latest == NOTHING
        assert len(news) == 2
        running.cancel()

    run_virtual(main())
