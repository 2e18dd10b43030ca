import asyncio
import logging

import pytest

from kai_es.eventlog.memory import MemoryLog
from kai_es.ports.errors import UnavailableError
from kai_es.snapshot.errors import BrokenHistoryError
from streams.books import Books
from streams.worker import BooksWorker, WorkerSettings
from tests.books.keeper import WallClock

NO_BROKER = "127.0.0.1:1"


class App:
    """Of Faust."""

    crashed, crash_reason, should_stop = False, None, False

    async def start(self):
        pass

    async def stop(self):
        pass


class CrashedApp(App):
    """After its consumer's thread has gone: a commit on the way out is cancelled."""

    crashed, crash_reason = True, OSError("no heartbeat")

    async def stop(self):
        raise asyncio.CancelledError


class SlowApp(App):
    """It takes its time to stop."""

    def __init__(self):
        self.stopping, self.stopped = asyncio.Event(), False

    async def stop(self):
        self.stopping.set()
        await asyncio.sleep(0.05)
        self.stopped = True


@pytest.fixture
def worker(tmp_path):
    books = Books(MemoryLog(), WallClock(), projections=(), checkpoints=None)
    settings = WorkerSettings(NO_BROKER, "t", "usage", "usage-1", tmp_path)
    return BooksWorker(settings, books, WallClock())


async def test_crash_of_faust_is_told_though_it_cannot_be_stopped(worker):
    worker.app = CrashedApp()
    with pytest.raises(UnavailableError, match="no heartbeat"):
        await worker.run(asyncio.Event())


async def test_broker_that_is_away_when_faust_starts_is_told(worker):
    with pytest.raises(UnavailableError, match=NO_BROKER.partition(":")[0]):
        await worker.run(asyncio.Event())


async def test_damage_ends_the_worker_and_faust_says_nothing(worker, caplog):
    async def tick():
        raise BrokenHistoryError("batches are not in the log")

    worker.app, worker.driver.tick = App(), tick
    ticking = asyncio.create_task(worker._ticking())
    with caplog.at_level(logging.DEBUG), pytest.raises(BrokenHistoryError):
        await worker.run(asyncio.Event())
    ticking.cancel()
    assert not [record for record in caplog.records if record.name.startswith("faust")]


async def test_worker_that_is_cancelled_while_it_leaves_leaves_nothing_half_way(worker):
    worker.app = app = SlowApp()
    stop = asyncio.Event()
    stop.set()
    running = asyncio.create_task(worker.run(stop))
    await app.stopping.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert app.stopped
