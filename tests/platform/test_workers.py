"""Faust workers that come, wait for each other, stand still and are killed."""

import asyncio
import signal

import pytest

from tests.books.story import MINUTE, a_node
from tests.kafka.test_books_worker import PATIENCE_S, Site, a_story
from tests.platform.process import SAYS_S, Parts

pytestmark = [pytest.mark.broker, pytest.mark.postgres]


@pytest.fixture
def site(kafka_bootstrap, kafka_prefix, postgres_url, tmp_path):
    made = Site(kafka_bootstrap, kafka_prefix, postgres_url, tmp_path)
    yield made
    made.close()


@pytest.fixture
def workers(site, tmp_path):
    """Workers without a name given; each call starts one."""
    made = []

    def start():
        made.append(
            Parts(
                tmp_path / f"process-{len(made)}",
                ["usage"],
                kafka=site.bootstrap,
                prefix=site.prefix,
                database=site.url,
                env={"TMPDIR": str(tmp_path)},
            )
        )
        site.processes.append(made[-1].process)
        return made[-1]

    return start


async def holder(*workers):
    """The one that has the partition, and the other one; waits until it is one."""
    async with asyncio.timeout(SAYS_S):
        while True:
            leads = [await worker.gauge("kai_es_usage_leading") for worker in workers]
            if sum(leads) == 1:
                return workers if leads[0] else workers[::-1]
            await asyncio.sleep(0.1)


def test_books_move_from_a_worker_that_ends_to_one_that_waits_and_stay_right(site, workers):
    story = a_story(60, seed=11)
    step = len(story.batches) // 4
    parts = [story.batches[n * step : (n + 1) * step] for n in range(3)]
    parts.append(story.batches[3 * step :])
    one, two = workers(), workers()
    first, second = asyncio.run(holder(one, two))

    prev = site.write(parts[0])
    site.until(site.usage, prev)
    first.signal(signal.SIGTERM)  # leaves in good order
    prev = site.write(parts[1], prev)
    site.until(site.usage, prev)
    asyncio.run(holder(second))

    third = workers()  # rebalanced, while there is something to fold
    prev = site.write(parts[2], prev)
    site.until(site.usage, prev)
    working, waiting = asyncio.run(holder(second, third))
    working.signal(signal.SIGSTOP)  # becomes a zombie
    prev = site.write(parts[3], prev)
    site.until(site.usage, prev)
    working.signal(signal.SIGCONT)
    later = story.batches[-1][1].time + MINUTE
    story.batch(later, story.upsert(a_node()))
    prev = site.write(story.batches[-1:], prev)
    site.until(site.usage, prev)
    asyncio.run(holder(working, waiting))
    site.check_usage()


def test_killed_worker_comes_back_and_every_row_is_there_once(site):
    story = a_story(30, seed=5)
    third = len(story.batches) // 3
    first = site.worker("usage", "usage-1")
    prev = site.write(story.batches[:third])
    site.until(site.usage, prev)
    prev = site.write(story.batches[third : 2 * third], prev)
    first.send_signal(signal.SIGKILL)
    first.wait()
    again = site.worker("usage", "usage-1")
    prev = site.write(story.batches[2 * third :], prev)
    site.until(site.usage, prev)
    site.check_usage()
    again.send_signal(signal.SIGTERM)
    assert again.wait(PATIENCE_S) == 0
