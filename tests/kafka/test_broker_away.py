"""The broker is away, comes back, refuses, or has a damaged disk."""

import asyncio
import struct

import pytest

from kai_es.eventlog.kafka import KafkaLog
from kai_es.eventlog.kafka_client import KafkaSettings
from kai_es.eventlog.kafka_lease import KafkaLeadership
from kai_es.ports.errors import CorruptLogError, FencedError, UnavailableError
from kai_es.ports.eventlog import Position
from tests.conformance.ports.logs import TOPICS, a_record, name, names, out

pytestmark = [pytest.mark.broker, pytest.mark.xdist_group("own-broker")]

BACK_S = 90.0


async def until_it_works(use):
    """What a service does: back off and try again."""
    async with asyncio.timeout(BACK_S):
        while True:
            try:
                return await use()
            except UnavailableError:
                await asyncio.sleep(0.2)


@pytest.mark.long
async def test_a_broker_that_restarts(own_broker, own_world):
    """A follower, a leader and a single writer live through it, as their services would."""
    log = await own_world.open()
    epoch = await until_it_works(lambda: log.take_over("scheduler-a"))
    await log.append(epoch, [out("decisions", "before", partition=0)])
    await log.append_one("snapshot", "k", a_record("s-before"))
    seen = []

    async def follow():
        while len(seen) < 2:
            position = seen[-1].position + 1 if seen else 0
            try:
                async for chunk in log.read("decisions", 0, Position(position), follow=True):
                    seen.extend(chunk)
                    if len(seen) >= 2:
                        break
            except UnavailableError:
                await asyncio.sleep(0.2)

    following = asyncio.create_task(follow())
    await asyncio.to_thread(own_broker.kill)
    await asyncio.to_thread(own_broker.start)

    async def append():
        nonlocal epoch
        try:
            return await log.append(epoch, [out("decisions", "after", partition=0)])
        except FencedError:  # its outcome was unknown; it was not committed, as the end shows
            epoch = await until_it_works(lambda: log.take_over("scheduler-a"))
            return await log.append(epoch, [out("decisions", "after", partition=0)])

    await until_it_works(append)
    await until_it_works(lambda: log.append_one("snapshot", "k", a_record("s-after")))
    await asyncio.wait_for(following, BACK_S)
    assert [name(entry) for entry in seen] == ["before", "after"]
    assert await names(log, "snapshot", 0) == ["s-before", "s-after"]


SASL = {
    "security_protocol": "SASL_PLAINTEXT",
    "sasl_mechanism": "PLAIN",
    "sasl_plain_username": "kai",
}


async def test_security_settings_reach_every_client(own_broker, kafka_prefix):
    security = {**SASL, "sasl_plain_password": "secret"}
    settings = KafkaSettings(
        bootstrap=own_broker.sasl_address, prefix=kafka_prefix, security=security
    )
    log = KafkaLog(settings, topics=TOPICS)
    epoch = await log.take_over("w")
    await log.append(epoch, [out("decisions", "x", partition=0)])
    await log.append_one("snapshot", "k", a_record("s"))
    await log.take_over("w")
    assert await names(log, "decisions", 0) == ["x"]
    lease = await KafkaLeadership(settings, prepare=log.open).acquire("snapshot", "one")
    await lease.release()
    await log.close()


async def test_wrong_credentials_are_named(own_broker, kafka_prefix):
    security = {**SASL, "sasl_plain_password": "wrong"}
    log = KafkaLog(
        KafkaSettings(
            bootstrap=own_broker.sasl_address,
            prefix=kafka_prefix,
            security=security,
            connect_s=1.5,
        )
    )
    with pytest.raises(UnavailableError, match="credentials"):
        await log.open()
    await log.close()


def test_a_setting_that_is_no_security_setting_is_our_bug():
    with pytest.raises(AssertionError, match="acks"):
        KafkaSettings(bootstrap="b:1", security={"acks": 0})


@pytest.mark.long
async def test_a_broker_that_is_down_and_comes_back_with_a_damaged_record(own_broker, own_world):
    log = await own_world.open()
    for n in range(20):
        await log.append_one("snapshot", "k", a_record(n, size=500))
    await log.close()
    await asyncio.to_thread(own_broker.stop)

    log = await own_world.open()
    with pytest.raises(UnavailableError, match=f"{own_broker.address}.*is a broker there"):
        await log.take_over("w")

    topic = own_world.settings.topic("snapshot")
    damage_batch(next((own_broker.home / "data" / f"{topic}-0").glob("*.log")), 10)
    await asyncio.to_thread(own_broker.start)
    await until_it_works(lambda: log.take_over("w"))
    found = []

    async def read():
        async for chunk in log.read("snapshot", 0, Position(0), follow=True):
            found.extend(chunk)

    with pytest.raises(CorruptLogError, match=topic):
        await asyncio.wait_for(read(), BACK_S)
    assert [name(entry) for entry in found] == [str(n) for n in range(10)]


def damage_batch(segment, n):
    """Change the last byte of the n-th batch: its offset (8 bytes), length (4), then the rest."""
    data = bytearray(segment.read_bytes())
    start = 0
    for _ in range(n):
        start += 12 + struct.unpack_from(">i", data, start + 8)[0]
    data[start + 12 + struct.unpack_from(">i", data, start + 8)[0] - 1] ^= 0xFF
    segment.write_bytes(data)
