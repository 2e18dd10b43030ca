import asyncio
import itertools
import random

import msgspec
import pytest

from kai_es.eventlog.memory import MemoryLog
from kai_es.events.catalogue import SNAPSHOT
from kai_es.ports.books import Place
from kai_es.ports.errors import UnavailableError
from kai_es.reader.restore import HistoryGoneError, stored
from kai_es.snapshot.world import World
from projectors.batching import batch_envelope
from projectors.checkpoint import Cadence, Mark, trim_of
from projectors.usage import Usage
from streams.books import Books
from streams.checkpointer import Checkpointer
from streams.local import LocalRunner
from streams.projection import usage_projection
from tests.books.stores import MemoryCheckpoints, MemoryUsage
from tests.books.story import MINUTE, START, Story, a_group, a_node, a_pod, a_queue
from tests.books.tables import Tables
from tests.histories.logs import folded
from tests.histories.virtual import LoopClock, run_virtual


async def inline(function, world):
    return function(world)


def a_story(n_pods=12, seed=1):
    """Pods that come, run, end and go, a few seconds apart."""
    rng, story, time = random.Random(seed), Story(), START
    story.batch(
        time,
        story.upsert(a_queue("root")),
        story.upsert(a_queue("q", parent="root", gpu=4)),
        story.upsert(a_node()),
    )
    steps = [("", "Pending"), ("n1", "Pending"), ("n1", "Running"), ("n1", "Succeeded"), None]
    todo = {f"p{n}": list(steps) for n in range(n_pods)}
    for name in todo:
        story.batch(time, story.upsert(a_group(f"g-{name}", "q")))
    while todo:
        name = rng.choice(sorted(todo))
        step = todo[name].pop(0)
        time += rng.choice((0, 20, 900, 7_000))
        if step is None:
            del todo[name]
            story.batch(time, story.remove(a_pod(name)))
        else:
            node, phase = step
            story.batch(time, story.upsert(a_pod(name, node=node, phase=phase, group=f"g-{name}")))
    return story


async def write(log, story, *, repeats=False, every_s=0):
    """Append the story's batches, each naming the position of the one before."""
    prev = -1
    for _, batch in story.batches:
        named = msgspec.structs.replace(batch, prev=prev)
        envelope = batch_envelope(named, ingest_ms=batch.time, producer="test")
        position = await log.append_one(SNAPSHOT, "", envelope)
        if repeats:
            await log.append_one(SNAPSHOT, "", envelope)
        prev = int(position)
        await asyncio.sleep(every_s)


def expected(log_batches):
    usage, tables = Usage(), Tables()
    for offset, batch in log_batches:
        usage.fold(offset, batch)
    tables.write(usage.take())
    return tables.tables


async def accepted(log):
    return (await folded(log))[1]


class SlowClock(LoopClock):
    """Of a process that gets little time."""

    async def sleep(self, seconds):
        await asyncio.sleep(seconds + 0.05)


class Site:
    """A log, stores, and a way to run the books on them."""

    def __init__(self, rows_max=40):
        self.log = MemoryLog()
        self.usage, self.checkpoints = MemoryUsage(), MemoryCheckpoints()
        self.clock = LoopClock()
        self.rows_max = rows_max

    def runner(self, clock=None):
        clock = clock or self.clock
        checkpointer = Checkpointer(
            self.checkpoints,
            self.log,
            clock,
            cadence=Cadence(rows_max=self.rows_max),
            offload=inline,
        )
        books = Books(
            self.log,
            clock,
            projections=[usage_projection(self.usage, clock)],
            checkpoints=self.checkpoints,
            checkpointer=checkpointer,
        )
        return LocalRunner(self.log, books, clock)

    async def check(self):
        assert self.usage.books.tables == expected(await accepted(self.log))
        self.usage.books.check()


@pytest.mark.parametrize("repeats", [False, True])
def test_catch_up_writes_what_a_fold_gives(repeats):
    async def main():
        site = Site()
        await write(site.log, a_story(), repeats=repeats)
        await site.runner().catch_up()
        await site.check()
        assert site.checkpoints.kept

    run_virtual(main())


def test_failed_and_unknown_commits_lose_and_repeat_nothing():
    async def main():
        site = Site()
        await write(site.log, a_story())
        site.usage.database.fail = ["before", "after", "", "after", "after", "before", ""]
        runner = site.runner()
        await runner.catch_up()
        await site.check()
        assert runner.status.n_reopened == 0

    run_virtual(main())


def test_kills_at_any_moment_lose_and_repeat_nothing():
    async def main(seed):
        rng, site = random.Random(seed), Site()
        await write(site.log, a_story(seed=seed))
        for _ in range(20):
            running = asyncio.ensure_future(site.runner().run())
            for _ in range(rng.randrange(1, 60)):
                await asyncio.sleep(rng.choice((0, 0.001)))
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
        await site.runner().catch_up()
        await site.check()

    for seed in range(2):
        run_virtual(main(seed))


def test_two_runners_at_once_write_every_row_once():
    async def main():
        site = Site()
        runners = [site.runner(), site.runner(SlowClock())]
        tasks = [asyncio.ensure_future(runner.run()) for runner in runners]
        await write(site.log, a_story(n_pods=20), every_s=0.03)
        await asyncio.sleep(60)
        for runner in runners:
            runner.stop()
        await asyncio.gather(*tasks)
        await site.check()
        assert sum(runner.status.n_reopened for runner in runners) > 0

    run_virtual(main())


def test_stop_commits_what_is_folded():
    async def main():
        site = Site()
        runner = site.runner()
        task = asyncio.ensure_future(runner.run())
        await write(site.log, a_story())
        await asyncio.sleep(0.15)
        runner.stop()
        await task
        assert runner.status.offset == site.usage.at.offset
        assert runner.status.committed["usage"] == (site.usage.at.offset, site.usage.at.time_ms)

    run_virtual(main())


def test_store_away_stops_nothing_but_the_books():
    async def main():
        site = Site()
        site.usage.database.away = site.checkpoints.database.away = True
        runner = site.runner()
        task = asyncio.ensure_future(runner.run())
        await write(site.log, a_story())
        await asyncio.sleep(30)
        assert "away" in runner.status.trouble
        site.usage.database.away = site.checkpoints.database.away = False
        await asyncio.sleep(30)
        assert runner.status.trouble == ""
        assert runner.status.is_caught_up
        runner.stop()
        await task
        await site.check()

    run_virtual(main())


def test_stop_does_not_wait_for_a_store_that_is_away():
    async def main():
        site = Site()
        await write(site.log, a_story())
        runner = site.runner()
        task = asyncio.ensure_future(runner.run())
        await asyncio.sleep(0.005)
        site.usage.database.away = True
        await asyncio.sleep(10)
        began = site.clock.monotonic_s()
        runner.stop()
        await task
        assert site.clock.monotonic_s() - began <= 6

    run_virtual(main())


def test_database_of_another_log_is_said():
    async def main():
        site = Site()
        site.usage.at = Place(10_000, START)
        await write(site.log, a_story())
        runner = site.runner()
        task = asyncio.ensure_future(runner.run())
        await asyncio.sleep(1)
        assert "belongs to another log" in runner.status.trouble
        runner.stop()
        await task
        assert site.usage.database.n_commits == 0

    run_virtual(main())


def test_empty_database_and_a_trimmed_log_is_an_error():
    async def main():
        site = Site()
        await write(site.log, a_story())
        await site.log.trim(SNAPSHOT, 0, 20)
        with pytest.raises(HistoryGoneError):
            await site.runner().catch_up()

    run_virtual(main())


def test_log_is_trimmed_behind_a_proven_checkpoint_and_books_go_on():
    async def main():
        site = Site(rows_max=15)
        story = a_story()
        later = story.batches[-1][1].time + 8 * 24 * 60 * MINUTE
        for n in range(40):
            story.batch(later + n, story.upsert(a_pod("late", phase="Pending")))
        await write(site.log, story)
        runner = site.runner()
        await runner.catch_up()
        heads = await site.checkpoints.heads()
        old = [head.offset for head in heads if head.time_ms < later]
        assert (await site.log.begin(SNAPSHOT))[0] == 0
        checkpointer = runner._books.checkpointer
        await checkpointer.trim(now_ms=later, needed=site.usage.at.offset)
        assert (await site.log.begin(SNAPSHOT))[0] == old[-1] + 1
        again = site.runner()
        await again.catch_up()
        assert again.status.trouble == ""

    run_virtual(main())


def test_trimming_that_fails_is_tried_again_soon_and_then_no_trouble():
    async def main():
        site = Site()
        await write(site.log, a_story())
        world, _, _ = await folded(site.log)
        checkpointer = site.runner()._books.checkpointer
        asked, begin = [], site.log.begin

        async def away(topic):
            asked.append(site.clock.monotonic_s())
            if len(asked) < 3:
                raise UnavailableError("the log is away")
            return await begin(topic)

        site.log.begin = away
        troubles = set()
        for _ in range(300):
            await checkpointer.idle(world, needed=0)
            await asyncio.sleep(0.1)
            troubles.add(checkpointer.trouble)
        assert troubles == {"the log is away", ""}
        assert checkpointer.trouble == ""
        assert len(asked) == 3

    run_virtual(main())


def test_checkpoint_that_does_not_fold_on_to_the_next_one_trims_nothing():
    async def main():
        site = Site(rows_max=15)
        story = a_story()
        later = story.batches[-1][1].time + 8 * 24 * 60 * MINUTE
        story.batch(later, story.upsert(a_pod("late", phase="Pending")))
        await write(site.log, story)
        runner = site.runner()
        await runner.catch_up()
        last = max(site.checkpoints.kept)
        wrong = stored(World())
        kept = site.checkpoints.kept[last]
        site.checkpoints.kept[last] = kept._replace(
            head=kept.head._replace(digest=wrong.head.digest)
        )
        checkpointer = runner._books.checkpointer
        await checkpointer.trim(now_ms=later, needed=site.usage.at.offset)
        assert (await site.log.begin(SNAPSHOT))[0] == 0
        assert checkpointer.n_diverged == 1
        assert "the log is kept" in checkpointer.trouble

    run_virtual(main())


def test_checkpoint_is_due_by_rows_or_by_time_but_never_without_rows():
    cadence = Cadence(rows_max=100, every_ms=1_000)
    assert not cadence.is_due(10**9)
    cadence.folded(time_ms=1_000, n_rows=99)
    assert not cadence.is_due(1_999)
    assert cadence.is_due(2_000)
    cadence.folded(time_ms=1_001, n_rows=1)
    assert cadence.is_due(1_001)
    cadence.taken(1_001)
    assert not cadence.is_due(10**9)


@pytest.mark.parametrize(
    ("begin", "now", "needed", "expected"),
    [
        (0, 1_000, 99, (20, 30)),
        (0, 1_000, 19, (10, 20)),
        (0, 210, 99, (10, 20)),
        (21, 1_000, 99, None),
        (0, 150, 99, None),
    ],
)
def test_trim_keeps_what_is_young_or_needed(begin, now, needed, expected):
    marks = [Mark(10, 100), Mark(20, 200), Mark(30, 300)]
    found = trim_of(marks, begin=begin, now_ms=now, needed=needed, horizon_ms=100)
    assert (None if found is None else (found.base.offset, found.proof.offset)) == expected


def test_places_only_rise():
    async def main():
        site = Site()
        await write(site.log, a_story())
        seen = []
        commit = site.usage.commit

        async def watched(rows, *, expected, to):
            done = await commit(rows, expected=expected, to=to)
            seen.append(site.usage.at)
            return done

        site.usage.commit = watched
        await site.runner().catch_up()
        assert all(a.offset <= b.offset for a, b in itertools.pairwise(seen))

    run_virtual(main())
