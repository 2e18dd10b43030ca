"""What a database can do to the books, and that they mend themselves."""

import asyncio
import time

import pytest
import sqlalchemy

from kai_es.eventlog.memory import MemoryLog
from kai_es.runtime.books import BOOKS, books_of
from kai_es.runtime.clock import SystemClock
from kai_es.storage import schema
from kai_es.storage.engine import connect_to
from kai_es.storage.identity import check_identity
from kai_es.storage.usage import PostgresUsage
from streams.local import LocalRunner
from tests.postgres.test_books_kills import a_story, append

pytestmark = pytest.mark.postgres

PATIENCE_S = 20


def runner_of(log, engine):
    clock = SystemClock()
    return LocalRunner(log, books_of(log, engine, clock, BOOKS), clock)


async def until(condition):
    end = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < end, "did not happen in time"
        await asyncio.sleep(0.05)


def administer(engine, statement):
    admin = connect_to(engine.url.set(database="postgres").render_as_string(hide_password=False))
    with admin.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.execute(sqlalchemy.text(statement))
    admin.dispose()


def test_empty_database_is_migrated_by_the_first_that_keeps_books(empty_database):
    async def main():
        log = MemoryLog()
        last = await append(log, a_story(10, seed=1).batches, -1)
        runners = [runner_of(log, empty_database) for _ in range(2)]
        await asyncio.gather(*(runner.catch_up() for runner in runners))
        assert (await PostgresUsage(empty_database).place()).offset == last

    asyncio.run(main())
    assert schema.current(empty_database) == "0001"
    assert check_identity(empty_database) is None


def test_read_only_database_is_said_and_mends_itself(database):
    name = database.url.database

    async def main():
        log = MemoryLog()
        story = a_story(10, seed=2)
        half = len(story.batches) // 2
        runner = runner_of(log, database)
        running = asyncio.ensure_future(runner.run())
        last = await append(log, story.batches[:half], -1)
        await until(lambda: runner.status.committed.get("usage", (-1,))[0] == last)
        administer(database, f"ALTER DATABASE {name} SET default_transaction_read_only = on")
        database.dispose()  # sessions that are open go on writing
        last = await append(log, story.batches[half:], last)
        await until(lambda: "the database is read-only" in runner.status.trouble)
        administer(database, f"ALTER DATABASE {name} RESET default_transaction_read_only")
        await until(lambda: runner.status.committed["usage"][0] == last)
        await until(lambda: not runner.status.trouble)
        assert runner.status.n_reopened == 0
        runner.stop()
        await running

    asyncio.run(main())
    assert check_identity(database) is None


def test_sessions_that_are_ended_come_back(database):
    async def main():
        log = MemoryLog()
        story = a_story(20, seed=3)
        runner = runner_of(log, database)
        running = asyncio.ensure_future(runner.run())
        last = -1
        for n in range(0, len(story.batches), 5):
            last = await append(log, story.batches[n : n + 5], last)
            await asyncio.sleep(0.15)
            administer(
                database,
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                f" WHERE datname = '{database.url.database}'",
            )
        await until(lambda: runner.status.committed["usage"][0] == last)
        runner.stop()
        await running
        assert (await PostgresUsage(database).place()).offset == last

    asyncio.run(main())
    assert check_identity(database) is None
