import asyncio
import random

import pytest

from kai_es.events.catalogue import SNAPSHOT
from kai_es.ports.books import Place
from kai_es.ports.errors import UnavailableError
from kai_es.reader.restore import stored
from kai_es.snapshot.errors import BrokenHistoryError
from kai_es.snapshot.world import World
from streams.books import OPENS, Books
from streams.driver import JOINS, Driver
from streams.projection import usage_projection
from tests.books.story import START
from tests.histories.logs import records
from tests.histories.virtual import run_virtual
from tests.unit.test_books_runner import Site, a_story, write


class Consumer:
    """Hands in records as a group consumer does: from anywhere, some twice, fetched ahead."""

    def __init__(self, entries, *, start, seed, skip=()):
        self.entries, self.at = entries, start
        self.rng, self.skip = random.Random(seed), set(skip)
        self.sought = None

    async def seek(self, offset):
        self.sought = offset

    async def feed(self, driver, rounds=400):
        """Deliver in small batches; a seek takes effect after the batch under way."""
        for _ in range(rounds):
            await driver.tick()
            batch = [e for e in self.entries if e.position >= self.at][: self.rng.randint(1, 9)]
            for entry in batch:
                if entry.position in self.skip:
                    self.skip.discard(entry.position)
                    continue
                await driver.take(entry)
            if batch:
                self.at = batch[-1].position + 1
            if self.sought is not None:
                self.at, self.sought = self.sought, None
            elif self.rng.random() < 0.1:
                self.at = max(0, self.at - self.rng.randint(0, 4))
            await asyncio.sleep(0.05)


def a_driver(site, consumer, usage=None):
    books = Books(
        site.log,
        site.clock,
        projections=[usage_projection(usage or site.usage, site.clock)],
        checkpoints=site.checkpoints,
    )
    return Driver(books, site.clock, consumer.seek)


async def at_work():
    """A site with a story, its records, and a driver that has opened the books on it."""
    site = Site()
    await write(site.log, a_story())
    entries = await records(site.log, SNAPSHOT)
    driver = a_driver(site, Consumer(entries, start=0, seed=3))
    await driver.assigned()
    await driver.tick()
    return site, entries, driver


@pytest.mark.parametrize("seed", range(4))
def test_any_delivery_gives_every_row_once(seed):
    async def main():
        site = Site()
        await write(site.log, a_story(seed=seed))
        entries = await records(site.log, SNAPSHOT)
        positions = [entry.position for entry in entries]
        rng = random.Random(seed)
        consumer = Consumer(
            entries, start=rng.choice(positions), seed=seed, skip=rng.sample(positions, 5)
        )
        driver = a_driver(site, consumer)
        await driver.assigned()
        await consumer.feed(driver)
        await driver.close()
        assert site.usage.at.offset == positions[-1]
        await site.check()

    run_virtual(main())


def test_nothing_is_folded_before_the_partition_is_assigned_or_after_it_is_revoked():
    async def main():
        site = Site()
        await write(site.log, a_story())
        entries = await records(site.log, SNAPSHOT)
        consumer = Consumer(entries, start=0, seed=1)
        driver = a_driver(site, consumer)
        await consumer.feed(driver, rounds=20)
        assert site.usage.at.offset == -1
        consumer.at = 0
        await driver.assigned()
        await consumer.feed(driver, rounds=10)
        await driver.revoked()
        here = site.usage.at
        await consumer.feed(driver, rounds=20)
        assert site.usage.at == here
        assert here.offset >= 0

    run_virtual(main())


def test_two_workers_that_both_believe_they_hold_the_partition_are_harmless():
    async def main():
        site = Site()
        await write(site.log, a_story())
        entries = await records(site.log, SNAPSHOT)
        consumers = [Consumer(entries, start=0, seed=n) for n in range(2)]
        drivers = [a_driver(site, consumer) for consumer in consumers]
        for driver in drivers:
            await driver.assigned()
        await asyncio.gather(
            *(c.feed(d) for c, d in zip(consumers, drivers, strict=True)),
        )
        for driver in drivers:
            await driver.close()
        assert site.usage.at.offset == entries[-1].position
        await site.check()

    run_virtual(main())


def test_store_away_is_waited_for():
    async def main():
        site = Site()
        await write(site.log, a_story())
        consumer = Consumer(await records(site.log, SNAPSHOT), start=0, seed=3)
        driver = a_driver(site, consumer)
        site.usage.database.away = True
        await driver.assigned()
        await consumer.feed(driver, rounds=50)
        assert "away" in driver.trouble
        site.usage.database.away = False
        await consumer.feed(driver, rounds=400)
        await driver.close()
        assert driver.trouble == ""
        await site.check()

    run_virtual(main())


def test_a_worker_is_in_order_once_it_knows_who_works_and_has_opened_what_is_its_own():
    async def main():
        site = Site()
        await write(site.log, a_story())
        driver = a_driver(site, Consumer(await records(site.log, SNAPSHOT), start=0, seed=3))
        assert driver.trouble == JOINS
        await driver.tick()
        await driver.assigned(ours=False)
        assert driver.trouble == ""
        await driver.assigned()
        assert driver.trouble == OPENS
        await driver.tick()
        assert driver.trouble == ""

    run_virtual(main())


def test_who_gets_the_partition_back_goes_on_where_it_was():
    async def main():
        site = Site()
        await write(site.log, a_story())
        entries = await records(site.log, SNAPSHOT)
        drivers = [a_driver(site, Consumer(entries, start=0, seed=3)) for _ in range(2)]
        first, second = drivers
        half = len(entries) // 2
        await first.assigned()
        await first.tick()
        for entry in entries[:half]:
            await first.take(entry)
        await first.revoked()
        assert site.usage.at.offset == entries[half - 1].position, "what was folded is committed"
        world = first._books.world
        await first.assigned()
        await first.tick()
        assert first._books.world is world
        await first.revoked()
        await second.assigned()
        await second.tick()
        for entry in entries:
            await second.take(entry)
        await second.revoked()
        await first.assigned()  # the other one has gone on meanwhile
        await first.tick()
        assert first._books.world is not world
        await first.close()
        await site.check()

    run_virtual(main())


def test_who_takes_checkpoints_goes_on_from_the_newest_that_another_took():
    async def main():
        site = Site()
        await write(site.log, a_story())
        entries = await records(site.log, SNAPSHOT)
        books = Books(site.log, site.clock, projections=[], checkpoints=site.checkpoints)
        driver = Driver(books, site.clock, Consumer(entries, start=0, seed=3).seek)
        for n in (10, 20):
            await driver.assigned()
            await driver.tick()
            for entry in entries[:n]:
                await driver.take(entry)
            await driver.revoked()
        at = books.world.offset
        assert at == entries[19].position, "it had its first world still"
        await site.runner().catch_up()
        newest = (await site.checkpoints.heads())[-1].offset
        assert newest > at
        await driver.assigned()
        await driver.tick()
        assert books.world.offset == newest

    run_virtual(main())


def test_a_partition_is_given_up_soon_while_the_store_is_away():
    async def main():
        site, entries, driver = await at_work()
        site.usage.database.away = True
        for entry in entries:
            await driver.take(entry)
        began = site.clock.monotonic_s()
        await driver.revoked()
        assert site.clock.monotonic_s() - began < 2

    run_virtual(main())


def test_database_of_another_log_is_said_once(caplog):
    async def main():
        site = Site()
        site.usage.at = Place(10_000, START)
        await write(site.log, a_story())
        consumer = Consumer(await records(site.log, SNAPSHOT), start=0, seed=3)
        driver = a_driver(site, consumer)
        await driver.assigned()
        await consumer.feed(driver, rounds=1_000)
        assert [r.message for r in caplog.records] == ["books diverged"]
        assert "usage stands at offset 10000 but the log ends at" in driver.trouble
        assert site.usage.database.n_commits == 0

    run_virtual(main())


def test_checkpoints_of_another_log_are_said():
    async def main():
        site = Site()
        await write(site.log, a_story())
        entries = await records(site.log, SNAPSHOT)
        other = World()
        other.chain.offset = 10_000
        await site.checkpoints.put(stored(other))
        books = Books(site.log, site.clock, projections=[], checkpoints=site.checkpoints)
        consumer = Consumer(entries, start=0, seed=3)
        driver = Driver(books, site.clock, consumer.seek)
        await driver.assigned()
        await consumer.feed(driver, rounds=50)
        assert "the checkpoint to start from stands at offset 10000" in driver.trouble

    run_virtual(main())


def test_a_worker_that_loses_its_partition_leaves_its_trouble_behind():
    async def main():
        site = Site()
        await write(site.log, a_story())
        consumer = Consumer(await records(site.log, SNAPSHOT), start=0, seed=3)
        driver = a_driver(site, consumer)
        site.usage.database.away = True
        await driver.assigned()
        await consumer.feed(driver, rounds=50)
        assert "away" in driver.trouble
        await driver.revoked()
        assert driver.trouble == ""

    run_virtual(main())


def test_a_gap_that_cannot_be_filled_is_no_trouble_of_a_standby():
    async def main():
        _, entries, driver = await at_work()

        async def read(start):
            await asyncio.sleep(0.1)
            raise UnavailableError("the log is away")
            yield

        driver._books.read = read
        await driver.take(entries[-1])
        await driver.revoked()
        await asyncio.sleep(1)
        await driver.tick()
        assert driver.trouble == ""

    run_virtual(main())


def test_what_a_projection_could_not_commit_is_no_trouble_once_it_is_dropped():
    async def main():
        site, entries, driver = await at_work()
        for entry in entries:
            await driver.take(entry)
        site.usage.database.away = True
        for _ in range(100):
            await driver.tick()
            await asyncio.sleep(0.1)
        assert "away" in driver._books.trouble()
        await driver.revoked()
        assert driver._books.trouble() == ""

    run_virtual(main())


def test_what_the_consumer_never_hands_in_is_read_from_the_log():
    async def main():
        site = Site()
        await write(site.log, a_story())
        entries = await records(site.log, SNAPSHOT)
        consumer = Consumer(entries[-1:], start=0, seed=3)  # as one whose seeks are lost
        driver = a_driver(site, consumer)
        await driver.assigned()
        await consumer.feed(driver)
        await driver.close()
        assert driver.n_gaps == 1
        assert site.usage.at.offset == entries[-1].position
        await site.check()

    run_virtual(main())


def test_partition_revoked_while_a_gap_is_filled():
    async def main():
        site = Site()
        await write(site.log, a_story())
        entries = await records(site.log, SNAPSHOT)
        drivers = [a_driver(site, Consumer(entries, start=0, seed=n)) for n in range(2)]
        await drivers[0].assigned()
        await drivers[0].tick()
        await drivers[0].take(entries[-1])
        await asyncio.sleep(0)
        await drivers[0].revoked()
        await asyncio.sleep(1)
        assert site.usage.at.offset < entries[-1].position
        await drivers[1].assigned()
        await drivers[1].tick()
        await drivers[1].take(entries[-1])
        await asyncio.sleep(1)
        await drivers[1].close()
        await site.check()

    run_virtual(main())


def test_batch_that_is_nowhere_ends_the_worker():
    async def main():
        site = Site()
        story = a_story()
        await write(site.log, story)
        entries = await records(site.log, SNAPSHOT)
        partition = site.log.store.partitions[SNAPSHOT, 0].entries
        del partition[20]
        consumer = Consumer(entries[:20] + entries[21:], start=0, seed=3)
        driver = a_driver(site, consumer)
        await driver.assigned()
        with pytest.raises(BrokenHistoryError, match="are not in the log"):
            await consumer.feed(driver, rounds=4_000)

    run_virtual(main())


def test_failing_seek_is_tried_again():
    async def main():
        site = Site()
        await write(site.log, a_story())
        consumer = Consumer(await records(site.log, SNAPSHOT), start=0, seed=3)
        driver = a_driver(site, consumer)
        failures = [UnavailableError("no consumer yet")] * 2

        async def seek(offset):
            if failures:
                raise failures.pop()
            await consumer.seek(offset)

        driver._seek_to = seek
        await driver.assigned()
        await consumer.feed(driver)
        await driver.close()
        await site.check()

    run_virtual(main())
