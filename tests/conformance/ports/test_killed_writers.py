"""Processes that are killed in the middle of an append lose and tear nothing."""

import asyncio
import random
import sqlite3

import pytest

from tests.conformance.ports.logs import entries, name, names

START_S = 20
PRODUCERS = ("a", "b")


async def kill_writers(world, rounds, chance):
    """Two processes write at once and are killed with -9. What they got acknowledged."""
    acknowledged = []
    for _ in range(rounds):
        writers = [await world.start_writer(producer) for producer in PRODUCERS]
        for process in writers:
            first = await asyncio.wait_for(process.stdout.readline(), START_S)
            acknowledged.append(first.decode().strip())
        await asyncio.sleep(0.05 + 0.1 * chance.random())
        for process in writers:
            process.kill()
        for process in writers:
            rest, _ = await process.communicate()
            acknowledged += rest.decode().split("\n")[:-1]
    return acknowledged


def order(written):
    """(epoch, number) of `producer/epoch/number`."""
    return tuple(int(part) for part in written.split("/")[1:])


@pytest.mark.parametrize(
    "world", ["sqlite", pytest.param("kafka", marks=pytest.mark.broker)], indirect=True
)
async def test_what_was_acknowledged_is_there_and_nothing_is_torn(world):
    acknowledged = await kill_writers(world, 3, random.Random(3))
    log = await world.open()
    for producer in PRODUCERS:
        await log.take_over(producer)  # ends what a killed one left open
    one, two = await names(log, "decisions", 0), await names(log, "decisions", 1)
    index = [entry for p in (0, 1) for entry in await entries(log, "index", p)]
    assert len(acknowledged) > 20
    assert set(acknowledged) <= set(one)
    assert sorted(one) == sorted(two), "both partitions of every append, or none"
    assert len(set(one)) == len(one)
    for producer in PRODUCERS:
        mine = [written for written in one if written.startswith(f"{producer}/")]
        assert mine == sorted(mine, key=order) == [w for w in two if w.startswith(f"{producer}/")]
        assert name([entry for entry in index if entry.key == producer][-1]) == mine[-1]


@pytest.mark.parametrize("world", ["sqlite"], indirect=True)
async def test_a_file_whose_writers_were_killed_is_sound(world):
    await kill_writers(world, 2, random.Random(5))
    db = sqlite3.connect(world.path)
    assert db.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    db.close()
