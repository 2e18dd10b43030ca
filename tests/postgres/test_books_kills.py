import asyncio
import contextlib
import os
import random
import signal
import subprocess
import sys
import time

import msgspec
import pytest
import sqlalchemy

from kai_es.eventlog.sqlite import SqliteLog
from kai_es.events.catalogue import SNAPSHOT
from kai_es.storage import schema
from kai_es.storage.embedded import EmbeddedPostgres
from kai_es.storage.engine import connect_to
from kai_es.storage.history import PostgresHistory
from kai_es.storage.identity import check_identity
from kai_es.storage.usage import PostgresUsage
from projectors.batching import batch_envelope
from tests.books.keeper import books_of
from tests.books.story import START, Story, a_group, a_node, a_pod, a_queue
from tests.histories.builders import a_bind, a_cycle, a_reign

pytestmark = pytest.mark.postgres


def a_story(n_pods, seed):
    """Pods that come, are bound by a cycle, run, end and go; some time passes."""
    rng, story, time_ms = random.Random(seed), Story(), START
    node = a_node(gpus=1_000)
    queue = story.upsert(a_queue("q", gpu=4))
    story.batch(time_ms, queue, story.upsert(node), a_reign())
    todo = {f"p{n}": 0 for n in range(n_pods)}
    cycle, waiting = 0, {}
    while todo:
        time_ms += rng.choice((5, 50, 400, 2_000, 6_000))
        rows = []
        for name in rng.sample(sorted(todo), min(len(todo), 5)):
            stage, pod = todo[name], {"group": f"g-{name}"}
            todo[name] += 1
            if stage == 0:
                group = a_group(f"g-{name}", "q")
                rows += [story.upsert(group), story.upsert(a_pod(name, **pod))]
                waiting[group.uid] = name
            elif stage == 4:
                del todo[name]
                rows.append(story.remove(a_pod(name)))
            else:
                phase = ("Pending", "Running", "Succeeded")[stage - 1]
                rows.append(story.upsert(a_pod(name, node="n1", phase=phase, **pod)))
                if stage == 1:
                    cycle += 1
                    op = a_bind(a_pod(name, **pod), node)
                    rows.append(a_cycle(cycle, op, now_ms=time_ms))
        story.batch(time_ms, *rows)
    return story


async def append(log, batches, prev):
    for _, batch in batches:
        named = msgspec.structs.replace(batch, prev=prev)
        envelope = batch_envelope(named, ingest_ms=batch.time, producer="test")
        prev = int(await log.append_one(SNAPSHOT, "", envelope))
    return prev


def digests(engine):
    async def both():
        return await PostgresUsage(engine).digest(), await PostgresHistory(engine).digest()

    return asyncio.run(both())


def killed_and_restarted(path, url, story, *, kills, seed, on_kill=lambda n: None):
    """Write the story piece by piece while a process keeps the books and is killed."""
    rng = random.Random(seed)
    size = len(story.batches) // kills + 1
    pieces = [story.batches[n : n + size] for n in range(0, len(story.batches), size)]

    async def write_all():
        log, prev = SqliteLog(path), -1
        try:
            for n, piece in enumerate(pieces):
                keeper = await asyncio.to_thread(
                    subprocess.Popen, [sys.executable, "-m", "tests.books.keeper", str(path), url]
                )
                try:
                    prev = await append(log, piece, prev)
                    await asyncio.sleep(rng.uniform(0.3, 1.6))
                    on_kill(n)
                finally:
                    keeper.send_signal(signal.SIGKILL)
                    keeper.wait()
        finally:
            await log.close()

    asyncio.run(write_all())


def clean(path, engine):
    """Fold the whole log once, undisturbed."""

    async def run():
        log = SqliteLog(path)
        try:
            await books_of(log, engine).catch_up()
        finally:
            await log.close()

    asyncio.run(run())


def check(path, engine, url_of_another):
    clean(path, engine)
    other = connect_to(url_of_another)
    try:
        schema.upgrade(other)
        clean(path, other)
        assert digests(engine) == digests(other)
        assert digests(engine)[0].n_rows > 100
    finally:
        other.dispose()
    assert check_identity(engine) is None


@pytest.fixture
def server(tmp_path):
    """A server of its own that may be killed; commits are on disk."""
    server = EmbeddedPostgres(tmp_path / "postgres")
    server.start()
    yield server
    server.stop()


def _second(server, name="clean"):
    engine = connect_to(server.url)
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.execute(sqlalchemy.text(f"CREATE DATABASE {name}"))
    engine.dispose()
    return server.url.replace("/kai_es?", f"/{name}?")


@pytest.mark.parametrize(
    "kills", [5, pytest.param(25, marks=pytest.mark.long)], ids=["few", "many"]
)
def test_every_row_once_over_kills_of_the_keeper(tmp_path, server, kills):
    path = tmp_path / "log.db"
    engine = connect_to(server.url)
    schema.upgrade(engine)
    killed_and_restarted(path, server.url, a_story(20 * kills, seed=kills), kills=kills, seed=1)
    check(path, engine, _second(server))
    engine.dispose()


@pytest.mark.parametrize(
    "kills", [3, pytest.param(20, marks=pytest.mark.long)], ids=["few", "many"]
)
def test_every_row_once_over_kills_of_the_database(tmp_path, server, kills):
    path = tmp_path / "log.db"
    engine = connect_to(server.url)
    schema.upgrade(engine)

    def on_kill(n):
        with contextlib.suppress(ProcessLookupError):  # it is just being started again
            os.kill(server.pid, signal.SIGKILL)
        if n % 2:
            time.sleep(0.8)

    killed_and_restarted(
        path, server.url, a_story(20 * kills, seed=7), kills=kills, seed=2, on_kill=on_kill
    )
    until_up(server)
    engine.dispose()
    check(path, engine, _second(server))
    engine.dispose()


def until_up(server):
    end = time.monotonic() + 30
    while True:
        engine = connect_to(server.url)
        try:
            with engine.connect():
                return
        except sqlalchemy.exc.OperationalError:
            assert time.monotonic() < end, "the database does not come back"
            time.sleep(0.1)
        finally:
            engine.dispose()
