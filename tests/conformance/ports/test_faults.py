"""The test modes really do what they say, and the same from the same seed."""

import asyncio
import time

import pytest

from kai_es.eventlog.faults import LogFaults
from kai_es.ports.errors import FencedError, UnavailableError
from tests.conformance.ports.logs import MemoryWorld, SqliteWorld, a_record, names, out, running

CALM = LogFaults(seed=1, gap_rate=0, lag_rate=0, hold_rate=0)


def with_rates(**rates):
    return LogFaults(**{**{f: getattr(CALM, f) for f in CALM.__slots__}, **rates})


@pytest.fixture(params=["memory", "sqlite"])
def make(request, tmp_path):
    def made(**rates):
        faults = with_rates(**rates)
        if request.param == "memory":
            return running(MemoryWorld(faults))
        return running(SqliteWorld(tmp_path / f"{rates.get('seed', 1)}.db", faults))

    return made


async def positions_of(make, seed):
    async with make(seed=seed, gap_rate=0.5) as world:
        log = await world.open()
        epoch = await log.take_over("w")
        return [
            position
            for n in range(10)
            for position in await log.append(
                epoch, [out("decisions", n, partition=0), out("decisions", n, partition=0)]
            )
        ]


async def test_gaps_come_from_the_seed(make):
    one, other = await positions_of(make, 1), await positions_of(make, 2)
    assert one != list(range(20))
    assert one == sorted(set(one))
    assert one != other


async def test_gaps_repeat_with_the_seed():
    seeded = [
        await positions_of(lambda **r: running(MemoryWorld(with_rates(**r))), 5) for _ in "ab"
    ]
    assert seeded[0] == seeded[1]


async def test_partitions_of_one_transaction_are_seen_at_different_times(make):
    async with make(lag_rate=0.5, lag_ms_max=20) as world:
        log = await world.open()
        epoch = await log.take_over("w")
        torn = 0
        for n in range(20):
            await log.append(
                epoch, [out("decisions", n, partition=0), out("decisions", n, partition=1)]
            )
            ends = await log.end("decisions")
            torn += ends[0] != ends[1]
            while await log.end("decisions") != {0: n + 1, 1: n + 1}:
                await asyncio.sleep(0.005)
        assert 0 < torn < 20


async def test_an_open_transaction_holds_back_what_others_appended_behind_it(make):
    async with make(hold_rate=0.5, hold_ms=100) as world:
        log = await world.open()
        one, other = await log.take_over("one"), await log.take_over("other")
        hidden, started = 0, time.monotonic()
        for n in range(10):
            await log.append(one, [out("decisions", f"a{n}", partition=0)])
            await log.append(other, [out("decisions", f"b{n}", partition=0)])
            hidden += (await log.end("decisions"))[0] < 2 * n + 2
        assert hidden > 3
        assert time.monotonic() - started < 0.1 * 10
        await asyncio.sleep(0.15)
        assert len(await names(log, "decisions", 0)) == 20


async def test_an_unknown_outcome_stores_nothing_once_or_twice(make):
    async with make(unknown_rate=0.7) as world:
        log = await world.open()
        unknown = set()
        for n in range(40):
            try:
                await log.append_one("snapshot", "k", a_record(n))
            except UnavailableError:
                unknown.add(str(n))
        found = await names(log, "snapshot", 0)
    copies = {str(n): found.count(str(n)) for n in range(40)}
    assert {copies[n] for n in unknown} == {0, 1, 2}
    assert {copies[n] for n in copies.keys() - unknown} == {1}


async def test_an_append_of_unknown_outcome_is_stored_and_fences(make):
    async with make(fenced_rate=1.0) as world:
        log = await world.open()
        epoch = await log.take_over("w")
        with pytest.raises(FencedError, match="unknown"):
            await log.append(epoch, [out("decisions", "x", partition=0)])
        assert await names(log, "decisions", 0) == ["x"]
