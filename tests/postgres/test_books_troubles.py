"""What a database can do to the books, and that they mend themselves."""

import asyncio
import contextlib
import time

import psycopg
import pytest
import sqlalchemy

from kai_es.eventlog.memory import MemoryLog
from kai_es.ports.books import Place
from kai_es.ports.errors import UnavailableError
from kai_es.runtime.books import BOOKS, books_of
from kai_es.runtime.clock import SystemClock
from kai_es.storage import engine as engine_module
from kai_es.storage import offsets, schema
from kai_es.storage.copy import driver
from kai_es.storage.engine import connect_to
from kai_es.storage.identity import check_identity
from kai_es.storage.look import look
from kai_es.storage.usage import PostgresUsage
from projectors.usage import Usage
from streams.local import LocalRunner
from tests.books.story import MINUTE
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


def trouble_of(engine):
    """What a look at it says, "" = the books could be written."""
    try:
        look(engine)
    except UnavailableError as exc:
        return str(exc)
    return ""


def test_a_look_tells_what_is_wrong_with_a_database_nobody_writes_to(empty_database):
    name = empty_database.url.database
    assert "is not migrated" in trouble_of(empty_database)
    schema.upgrade(empty_database)
    assert trouble_of(empty_database) == ""
    administer(empty_database, f"ALTER DATABASE {name} SET default_transaction_read_only = on")
    assert "is read-only" in trouble_of(empty_database)
    administer(empty_database, f"ALTER DATABASE {name} RESET default_transaction_read_only")
    assert trouble_of(empty_database) == ""
    with empty_database.begin() as connection:
        connection.execute(sqlalchemy.text("LOCK TABLE projection_offset"))
        assert "another session holds a lock" in trouble_of(empty_database)
    nowhere = connect_to("postgresql://kai@127.0.0.1:1/kai")
    assert "the database is away" in trouble_of(nowhere)


@pytest.mark.parametrize("in_copy", [False, True], ids=["between statements", "in a COPY"])
def test_a_writer_that_stands_still_does_not_keep_its_successor(database, monkeypatch, in_copy):
    monkeypatch.setattr(engine_module, "LOCK_TIMEOUT_S", 1)
    monkeypatch.setattr(engine_module, "IDLE_TIMEOUT_S", 2)
    monkeypatch.setattr(offsets, "SILENT_S", 0.5 if in_copy else 1_000)  # the server ends the other
    url = database.url.render_as_string(hide_password=False)
    stopped, successor = connect_to(url), connect_to(url)

    async def commit():
        store = PostgresUsage(successor)
        with pytest.raises(UnavailableError, match="another session holds a lock"):
            await store.commit(Usage().take(), expected=-1, to=Place(8, MINUTE))
        await asyncio.sleep(0 if in_copy else 1.5)
        assert await store.commit(Usage().take(), expected=-1, to=Place(8, MINUTE))

    def stand():
        with stopped.begin() as standing:
            offsets.advance(standing, offsets.USAGE, expected=-1, to=Place(7, MINUTE))
            copying = driver(standing).cursor().copy("COPY node_version FROM STDIN")
            with copying if in_copy else contextlib.nullcontext():
                asyncio.run(commit())

    with pytest.raises((sqlalchemy.exc.DBAPIError, psycopg.OperationalError)):
        stand()
    assert asyncio.run(PostgresUsage(database).place()).offset == 8
    stopped.dispose()
    successor.dispose()


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
