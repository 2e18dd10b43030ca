"""What only the SQLite adapter promises: several processes, a damaged or full file, retention."""

import asyncio
import itertools
import random
import sqlite3
import time
from concurrent.futures import ThreadPoolExecutor, wait

import pytest

from kai_es.eventlog import sqlite_file
from kai_es.eventlog.sqlite import SqliteLog
from kai_es.ports.errors import CorruptLogError, FencedError, UnavailableError
from kai_es.ports.eventlog import Position
from tests.conformance.ports.logs import (
    TOPICS,
    SqliteWorld,
    a_record,
    entries,
    gone,
    name,
    names,
    out,
    running,
)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "log.db"


@pytest.fixture
async def world(path):
    async with running(SqliteWorld(path)) as made:
        yield made


@pytest.fixture
async def log(world):
    return await world.open()


def edit(path, statement):
    with sqlite3.connect(path) as db:
        db.execute(statement)
    db.close()


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE entry SET value = x'00' || substr(value, 2)",
        "UPDATE entry SET value = NULL",
        "UPDATE entry SET key = 'other'",
        "UPDATE entry SET at = at + 1",
        "UPDATE entry SET id = id + 10",
    ],
)
async def test_a_damaged_row_stops_the_reader_and_names_the_place(log, path, damage):
    epoch = await log.take_over("w")
    positions = await log.append(epoch, [out("decisions", n, partition=1) for n in range(3)])
    edit(path, f"{damage} WHERE id & 1099511627775 = {positions[2]}")
    edit(path, "UPDATE part SET next = next + 20")
    found = []

    async def collect():
        async for chunk in log.read("decisions", 1, Position(0), follow=False):
            found.extend(chunk)

    with pytest.raises(CorruptLogError) as stop:
        await collect()
    assert [name(entry) for entry in found] == ["0", "1"], "what lies before it is still read"
    at = positions[2] + (10 if "id + 10" in damage else 0)
    for word in (str(path), "decisions/1", f"position {at}", "backup"):
        assert word in str(stop.value)


async def test_a_damaged_page_is_a_clear_stop(world, path):
    log = await world.open()
    epoch = await log.take_over("w")
    await log.append(epoch, [out("decisions", n, partition=1, size=3000) for n in range(60)])
    await log.close()
    with path.open("r+b") as file:
        for page in range(20, 40):
            file.seek(page * 4096)
            file.write(random.Random(page).randbytes(4096))
    with pytest.raises(CorruptLogError, match=str(path)):
        await entries(await world.open(), "decisions", 1)


async def test_a_file_of_something_else_is_refused_unharmed(world, path):
    path.write_text("not a database, but long enough to be looked at " * 40)
    before = path.read_bytes()
    with pytest.raises(CorruptLogError, match=str(path)):
        await (await world.open()).take_over("w")
    assert path.read_bytes() == before
    path.unlink()
    edit(path, "CREATE TABLE theirs (x)")
    with pytest.raises(CorruptLogError, match="no log that this release can read"):
        await (await world.open()).end("decisions")


async def test_a_newer_format_is_refused(world, path):
    log = await world.open()
    await log.take_over("w")
    await log.close()
    edit(path, "PRAGMA user_version = 99")
    with pytest.raises(CorruptLogError, match="format 99"):
        await (await world.open()).end("decisions")


async def test_a_full_file_is_unavailable_and_heals(path):
    log = SqliteLog(path, topics=TOPICS, max_pages=80)
    epoch = await log.take_over("w")

    async def fill():
        for n in range(400):
            await log.append(epoch, [out("decisions", n, partition=0, size=5000)])

    with pytest.raises(UnavailableError, match="full; free disk space or raise"):
        await fill()
    stored = await names(log, "decisions", 0)
    with pytest.raises(UnavailableError, match="full"):
        await log.append(
            epoch, [out("decisions", "x", partition=0, size=50_000), out("index", "i")]
        )
    assert await names(log, "decisions", 0) == stored, "nothing of a failed append is there"
    await log.trim("decisions", 0, Position(len(stored) - 2))
    await log.append(epoch, [out("decisions", "again", partition=0, size=5000)])
    assert await names(log, "decisions", 0, len(stored) - 2) == [*stored[-2:], "again"]
    await log.close()


async def test_a_missing_folder_is_unavailable_and_heals(tmp_path):
    async with running(SqliteWorld(tmp_path / "later" / "log.db")) as world:
        log = await world.open()
        with pytest.raises(UnavailableError, match="is its folder there"):
            await log.take_over("w")
        (tmp_path / "later").mkdir()
        assert (await log.take_over("w")).number == 1


async def test_a_held_write_lock_never_blocks_the_loop(log, path):
    epoch = await log.take_over("w")
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    append = asyncio.create_task(log.append(epoch, [out("decisions", "x", partition=0)]))
    longest, last = 0.0, time.monotonic()
    for _ in range(60):
        await asyncio.sleep(0.005)
        longest, last = max(longest, time.monotonic() - last), time.monotonic()
    assert not append.done()
    assert await names(log, "decisions", 0) == [], "readers go on"
    other.execute("ROLLBACK")
    other.close()
    await asyncio.wait_for(append, 5)
    assert longest < 0.1


async def test_a_write_lock_held_for_long_is_unavailable(log, path, monkeypatch):
    epoch = await log.take_over("w")
    monkeypatch.setattr(sqlite_file, "BUSY_S", 0.1)
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(UnavailableError, match="another process has held the write lock"):
        await log.append(epoch, [out("decisions", "x", partition=0)])
    other.close()
    await log.append(epoch, [out("decisions", "y", partition=0)])
    assert await names(log, "decisions", 0) == ["y"]


async def test_a_waiting_follower_holds_no_read_transaction(log, path):
    chunks = log.read("decisions", 0, Position(0), follow=True)
    assert list(await anext(chunks)) == []
    epoch = await log.take_over("w")
    await log.append(epoch, [out("index", n, size=5000) for n in range(50)])
    assert list(await anext(chunks)) == []
    other = sqlite3.connect(path)
    busy, *_ = other.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    other.close()
    assert busy == 0
    assert (path.parent / "log.db-wal").stat().st_size == 0
    await chunks.aclose()


async def test_appends_that_meet_share_a_commit_and_a_fenced_one_fails_alone(log):
    old = await log.take_over("a")
    epoch, other = await log.take_over("a"), await log.take_over("b")
    outcomes = await asyncio.gather(
        log.append(epoch, [out("decisions", "1", partition=0)]),
        log.append(old, [out("decisions", "zombie", partition=0)]),
        log.append(other, [out("decisions", "2", partition=0)]),
        return_exceptions=True,
    )
    assert [type(outcome) for outcome in outcomes] == [list, FencedError, list]
    assert await names(log, "decisions", 0) == ["1", "2"]


async def test_old_entries_expire_by_topic(path):
    now_ms = 1_000_000
    log = SqliteLog(path, topics=TOPICS, now_ms=lambda: now_ms)
    epoch = await log.take_over("w")
    await log.append(epoch, [out("decisions", n, partition=0) for n in range(7000)])
    await log.append(epoch, [out("index", "kept"), out("index", "deleted")])
    await log.append(epoch, [gone("index", "deleted")])
    await log.append_one("snapshot", "k", a_record("kept"))
    now_ms += TOPICS["decisions"].retention_ms + 1
    await log.close()
    log = SqliteLog(path, topics=TOPICS, now_ms=lambda: now_ms)
    epoch = await log.take_over("w")
    for n in range(3):  # a bounded part goes with each append
        await log.append(epoch, [out("decisions", f"new-{n}", partition=0)])
    assert await log.begin("decisions") == {0: 7000, 1: 0}
    assert await names(log, "decisions", 0, 7000) == ["new-0", "new-1", "new-2"]
    assert await names(log, "snapshot", 0) == ["kept"]
    index = [await entries(log, "index", p) for p in (0, 1)]
    assert [e.key for e in index[0] + index[1]] == ["kept"]
    await log.close()


async def test_a_killed_leader_is_followed_at_once(world):
    world.lease_s = 60
    first = await world.holder("snapshot", "one")
    await first.die()
    second = await asyncio.wait_for((await world.leadership()).acquire("snapshot", "two"), 5)
    third = asyncio.create_task((await world.leadership()).acquire("snapshot", "three"))
    await asyncio.sleep(0.6)
    assert not third.done(), "the new leader lives"
    await second.release()
    await (await asyncio.wait_for(third, 5)).release()
    assert not list(world.path.parent.glob("*lease*")), "no sign of life outlives its lease"


async def test_commits_of_another_process_are_seen_within_20_ms(world, log):
    """A follower meets the other process's commits as they come, not at its next idle look."""
    process = await world.start_writer("a")
    await process.stdout.readline()
    seen = []
    async for chunk in log.read("decisions", 0, Position(0), follow=True):
        if chunk:
            seen.append(time.monotonic())
        if len(seen) == 40:
            break
    process.kill()
    await process.stdout.read()
    await process.wait()
    waits = sorted(b - a for a, b in itertools.pairwise(seen))
    assert waits[len(waits) // 2] < 0.02


def test_every_result_code_of_sqlite_has_a_meaning():
    assert set(sqlite_file.ERRORS) == set(range(1, 29)), "SQLite's primary result codes"


def test_a_log_that_another_makes_while_it_is_looked_at_is_found(path, monkeypatch):
    look, others = sqlite_file.LogFile._retrying, []

    def look_slowly(self, statement):
        if statement == "PRAGMA user_version" and not others:
            others.append(threads.submit(open_it))
            wait(others, timeout=0.3)  # it may have to wait for this one
        return look(self, statement)

    def open_it():
        asyncio.run(_ends(SqliteLog(path)))

    monkeypatch.setattr(sqlite_file.LogFile, "_retrying", look_slowly)
    with ThreadPoolExecutor(1) as threads:
        open_it()
        others[0].result()


async def _ends(log):
    await log.end("objects")
    await log.close()
