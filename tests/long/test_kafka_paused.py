"""A broker that hangs without closing a connection, and leaders that fight for long."""

import asyncio
import itertools
import random
import time

import pytest

from kai_es.eventlog.kafka_client import KafkaSettings
from kai_es.eventlog.kafka_lease import KafkaLeadership
from kai_es.ports.errors import FencedError, UnavailableError
from kai_es.ports.eventlog import Position
from tests.conformance.ports.logs import KafkaWorld, a_record, names, out, running
from tools.kafka import Broker

pytestmark = [pytest.mark.long, pytest.mark.broker]

TOLD_S = 25.0
"""Silence is noticed after 5 s and probed for 5 s; an append gives up after 15 s."""


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    made = Broker(tmp_path_factory.mktemp("kafka"))
    made.start()
    yield made
    made.close()


@pytest.fixture
async def world(broker, kafka_prefix):
    settings = KafkaSettings(bootstrap=broker.address, prefix=kafka_prefix, connect_s=2.0)
    async with running(KafkaWorld(settings)) as made:
        yield made


async def until_it_works(use):
    async with asyncio.timeout(60):
        while True:
            try:
                return await use()
            except UnavailableError:
                await asyncio.sleep(0.5)


async def read_until_unavailable(log):
    async for _ in log.read("snapshot", 0, Position(0), follow=True):
        pass


async def test_a_hanging_broker_is_told_by_every_use_and_recovers(broker, world):
    log = await world.open()
    epoch = await log.take_over("w")
    await log.append(epoch, [out("decisions", "before", partition=0)])
    await log.append_one("snapshot", "k", a_record("s-before"))
    lease = await KafkaLeadership(world.settings, prepare=log.open).acquire("snapshot", "one")
    reading = asyncio.create_task(read_until_unavailable(log))
    await asyncio.sleep(0.5)
    broker.pause()
    started = time.monotonic()
    try:
        single = log.append_one("snapshot", "k", a_record("s-unknown"))
        many = log.append(epoch, [out("decisions", "unknown", partition=0)])
        outcomes = await asyncio.wait_for(
            asyncio.gather(single, many, reading, return_exceptions=True), TOLD_S
        )
        assert [type(outcome) for outcome in outcomes] == [
            UnavailableError,
            FencedError,
            UnavailableError,
        ]
        await asyncio.wait_for(lease.lost(), 10)
        assert lease.age_s() > 6
        assert time.monotonic() - started < TOLD_S
    finally:
        broker.resume()
    await lease.release()
    epoch = await until_it_works(lambda: log.take_over("w"))
    await log.append(epoch, [out("decisions", "after", partition=0)])
    await until_it_works(lambda: log.append_one("snapshot", "k", a_record("s-after")))
    await log.take_over("w")
    decisions = await names(log, "decisions", 0)
    assert [n for n in decisions if n != "unknown"] == ["before", "after"]
    assert decisions.count("unknown") <= 1
    singles = await names(log, "snapshot", 0)
    assert [n for n in singles if n != "s-unknown"] == ["s-before", "s-after"]
    assert singles.count("s-unknown") <= 2


async def test_two_supervised_leaders_that_know_nothing_of_each_other(world):
    """Both take over again whenever they are fenced: every 15 s somebody got something done."""
    acknowledged = []
    chance = random.Random(9)
    until = time.monotonic() + 45

    async def lead(name):
        log = await world.open()
        while time.monotonic() < until:
            epoch = await until_it_works(lambda: log.take_over("scheduler-a"))
            for n in range(chance.randint(20, 400)):
                try:
                    written = f"{name}/{epoch.number}/{n}"
                    await log.append(
                        epoch, [out("decisions", written, partition=p) for p in (0, 1)]
                    )
                except FencedError:
                    break
                acknowledged.append((time.monotonic(), written))
            await asyncio.sleep(chance.random())

    await asyncio.gather(lead("one"), lead("two"))
    log = await world.open()
    await log.take_over("scheduler-a")
    found = await names(log, "decisions", 0)
    assert found == await names(log, "decisions", 1)
    assert len(set(found)) == len(found)
    assert {written for _, written in acknowledged} <= set(found)
    epochs = [int(written.split("/")[1]) for written in found]
    assert epochs == sorted(epochs), "nothing of an older leader after a newer one's first"
    times = [at for at, _ in acknowledged]
    assert max(b - a for a, b in itertools.pairwise(times)) < 15
    assert len(set(epochs)) > 10
