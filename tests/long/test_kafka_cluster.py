"""Three brokers, three copies, two in sync: any one may die, and nothing acknowledged is lost."""

import asyncio

import pytest

from kai_es.eventlog.kafka_client import KafkaSettings
from kai_es.ports.errors import FencedError, UnavailableError
from tests.conformance.ports.logs import KafkaWorld, a_record, entries, name, names, out, running
from tools.kafka import Cluster

pytestmark = [pytest.mark.long, pytest.mark.broker]

RECOVER_S = 60.0


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    made = Cluster(tmp_path_factory.mktemp("kafka"))
    made.start()
    yield made
    made.close()


@pytest.fixture
async def world(cluster, kafka_prefix):
    async with running(
        KafkaWorld(KafkaSettings(bootstrap=cluster.address, prefix=kafka_prefix))
    ) as made:
        yield made


class Writers:
    """A leader and a single writer that go on through everything; what they got acknowledged."""

    def __init__(self, log):
        self.log = log
        self.many, self.single = [], []
        self.done = False

    async def lead(self):
        epoch, n = None, 0
        while not self.done:
            n += 1
            try:
                epoch = epoch or await self.log.take_over("scheduler-a")
                await self.log.append(
                    epoch, [out("decisions", str(n), partition=p) for p in (0, 1)]
                )
                self.many.append(str(n))
            except (FencedError, UnavailableError):
                epoch = None
                await asyncio.sleep(0.1)

    async def write(self):
        n = 0
        while not self.done:
            n += 1
            try:
                await self.log.append_one("snapshot", "k", a_record(n))
                self.single.append(str(n))
            except UnavailableError:
                await asyncio.sleep(0.1)


async def progress(writers):
    """Wait until both writers got something done."""
    many, single = len(writers.many), len(writers.single)
    async with asyncio.timeout(RECOVER_S):
        while len(writers.many) == many or len(writers.single) == single:
            await asyncio.sleep(0.05)


async def test_each_broker_dies_once_while_writers_go_on(cluster, world):
    writers = Writers(await world.open())
    await writers.log.open()
    tasks = [asyncio.create_task(writers.lead()), asyncio.create_task(writers.write())]
    await progress(writers)
    for broker in cluster.brokers:
        await asyncio.to_thread(broker.kill)
        await progress(writers)
        await asyncio.to_thread(broker.start)
        await progress(writers)
    writers.done = True
    await asyncio.gather(*tasks)

    log = await world.open()
    await log.take_over("scheduler-a")
    one, two = await names(log, "decisions", 0), await names(log, "decisions", 1)
    assert one == two
    assert set(writers.many) <= set(one)
    assert len(set(one)) == len(one)
    single = [name(entry) for entry in await entries(log, "snapshot", 0)]
    assert set(writers.single) <= set(single)
    assert max(single.count(n) for n in writers.single) == 1, "acknowledged means once"


async def test_with_two_of_three_away_nothing_is_acknowledged(cluster, world):
    log = await world.open()
    await log.append_one("snapshot", "k", a_record("before"))
    away = cluster.brokers[:2]
    for broker in away:
        await asyncio.to_thread(broker.kill)
    with pytest.raises(UnavailableError):
        await log.append_one("snapshot", "k", a_record("unknown"))
    for broker in away:
        await asyncio.to_thread(broker.begin)
    for broker in away:
        await asyncio.to_thread(broker.wait)
    async with asyncio.timeout(RECOVER_S):
        while True:
            try:
                await log.append_one("snapshot", "k", a_record("after"))
                break
            except UnavailableError:
                await asyncio.sleep(0.5)
    found = await names(log, "snapshot", 0)
    assert found[0] == "before"
    assert "after" in found
