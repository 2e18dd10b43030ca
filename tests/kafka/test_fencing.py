"""Two leaders of one role: nothing of the older one shows, and the newer one gets on with it."""

import asyncio
import contextlib
import threading
import time

import pytest
from kafka import KafkaAdminClient
from kafka.admin import ConfigResource, ConfigResourceType

from kai_es.eventlog import kafka_writer
from kai_es.ports.errors import FencedError
from tests.conformance.ports.logs import names, out

pytestmark = pytest.mark.broker

LEADER = "scheduler-default"
PROGRESS_S = 15.0


async def append_until_acknowledged(log, epoch, name):
    """What a supervised leader does: it takes over again when it is fenced."""
    while True:
        try:
            await log.append(epoch, [out("decisions", name, partition=0)])
        except FencedError:
            epoch = await log.take_over(LEADER)
        else:
            return epoch


async def test_leaders_that_take_turns_without_knowing_of_each_other(world):
    """Each is overtaken while it appends as fast as it can, and sends on until it is told."""
    logs = [await world.open(), await world.open()]
    acknowledged, zombies = [], []
    epoch = await logs[0].take_over(LEADER)
    for turn in range(6):
        old, new = logs[turn % 2], logs[(turn + 1) % 2]
        overtaken = asyncio.Event()

        async def send_on(log=old, epoch=epoch, turn=turn, overtaken=overtaken):
            for n in range(10_000):
                name = f"{turn}/{n}"
                late = overtaken.is_set()
                try:
                    await log.append(epoch, [out("decisions", name, partition=0)])
                except FencedError:
                    return
                (zombies if late else acknowledged).append(name)
            raise AssertionError("never fenced")

        sending = asyncio.create_task(send_on())
        await asyncio.sleep(0.1)
        epoch = await new.take_over(LEADER)
        overtaken.set()
        started = time.monotonic()
        epoch = await append_until_acknowledged(new, epoch, f"{turn}/new")
        acknowledged.append(f"{turn}/new")
        assert time.monotonic() - started < PROGRESS_S
        await asyncio.wait_for(sending, PROGRESS_S)
    await logs[0].take_over(LEADER)
    found = await names(logs[0], "decisions", 0)
    assert zombies == []
    assert len(set(found)) == len(found)
    assert set(acknowledged) <= set(found)
    for turn in range(6):
        mine = [name for name in found if name.startswith(f"{turn}/")]
        assert mine[-1] == f"{turn}/new", "nothing of the older leader after the newer one's first"


@pytest.mark.parametrize("moment", ["send", "commit"])
async def test_a_leader_paused_in_the_middle_of_a_transaction(world, moment):
    old, new = await world.open(), await world.open()
    epoch = await old.take_over(LEADER)
    await old.append(epoch, [out("decisions", "before", partition=0)])
    go_on, paused = pause(old._writers[LEADER][1]._producer, moment)
    batch = [out("decisions", n, partition=p) for n in ("zombie-1", "zombie-2") for p in (0, 1)]
    appending = asyncio.create_task(old.append(epoch, batch))
    await asyncio.to_thread(paused.wait, 10)

    epoch = await new.take_over(LEADER)
    await new.append(epoch, [out("decisions", "after", partition=0)])
    go_on.set()
    with pytest.raises(FencedError):
        await appending
    with pytest.raises(FencedError, match="may no longer append"):
        await old.append(old._writers[LEADER][0], batch)

    started = time.monotonic()
    await append_until_acknowledged(new, epoch, "later")
    assert time.monotonic() - started < PROGRESS_S
    await new.take_over(LEADER)
    assert await names(new, "decisions", 0) == ["before", "after", "later"]
    assert await names(new, "decisions", 1) == []


async def test_a_commit_that_the_broker_does_not_carry_out(own_world, monkeypatch, caplog):
    """As KAFKA-20734 leaves it: acknowledged, and open for ever in its partitions."""
    monkeypatch.setattr(kafka_writer, "MARKERS_S", 0.3)
    old, new = await own_world.open(), await own_world.open()
    await old.append(await old.take_over(LEADER), [out("decisions", "before", partition=0)])
    batch = [out("decisions", "first", partition=0), out("decisions", "second", partition=1)]
    with unverified(old.settings):
        told = "not added to the transaction"  # the broker needs a moment to learn the setting
        while "not added to the transaction" in told:
            epoch = await old.take_over(LEADER)
            in_secret(old._writers[LEADER][1]._producer)
            with pytest.raises(FencedError) as raised:
                await old.append(epoch, batch)
            told = str(raised.value)
        assert "committed, but still open after 0.3 s" in told
        assert [f"{old.settings.topic('decisions')}/{n}" in told for n in (0, 1)] == [True, True]
        assert await names(new, "decisions", 0) == ["before"]
        await new.take_over(LEADER)
    assert await names(new, "decisions", 0) == ["before", "first"]
    assert await names(new, "decisions", 1) == ["second"]
    assert {record.partition for record in caplog.records if "20734" in record.msg} == {0, 1}


@contextlib.contextmanager
def unverified(settings):
    """The broker takes records of transactions that their coordinator does not know."""
    broker = ConfigResource(ConfigResourceType.BROKER, "1")

    def verify(value):
        broker.configs = {"transaction.partition.verification.enable": value}
        admin.alter_configs([broker])

    with contextlib.closing(KafkaAdminClient(**settings.client())) as admin:
        verify("false")
        try:
            yield
        finally:
            verify("true")


def in_secret(producer):
    """From now on the coordinator is told neither of partitions nor of commits."""
    manager = producer._transaction_manager
    manager.maybe_add_partition_to_transaction = manager._partitions_in_transaction.add


def pause(producer, moment):
    """Make the producer wait before its last send, or before its commit."""
    go_on, paused = threading.Event(), threading.Event()
    original = producer.send if moment == "send" else producer.commit_transaction
    calls = 0

    def waits(*args, **kwargs):
        nonlocal calls
        calls += 1
        if moment == "commit" or calls == 4:
            producer.flush()
            paused.set()
            go_on.wait(10)
        return original(*args, **kwargs)

    setattr(producer, "send" if moment == "send" else "commit_transaction", waits)
    return go_on, paused


async def test_a_failed_append_leaves_nothing_that_sends(world):
    log = await world.open()
    epoch = await log.take_over(LEADER)
    other = await world.open()
    await other.take_over(LEADER)
    writer = log._writers[LEADER][1]
    with pytest.raises(FencedError):
        await log.append(epoch, [out("decisions", "zombie", partition=0)])
    sender = writer._producer._sender
    await asyncio.to_thread(sender.join, 5)
    assert not sender.is_alive()
