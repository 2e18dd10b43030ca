"""The snapshot stream on a real broker: large cycles, and two writers that both believe to lead."""

import asyncio

import pytest

from kai_es.audit.verify import verify
from kai_es.eventlog.kafka import KafkaLog
from kai_es.eventlog.kafka_client import KafkaSettings
from kai_es.eventlog.memory import MemoryLeadership
from kai_es.events.decisions import Cycle, Reason
from projectors.cycles import CYCLE_BYTES_MAX, encode_cycle
from streams.snapshot import SnapshotStream
from tests.histories.builders import a_cycle, a_reign
from tests.histories.logs import chunked, decided, running, seen_pod, until_covered
from tests.histories.virtual import RealClock

pytestmark = pytest.mark.broker


@pytest.fixture
async def open_log(kafka_bootstrap, kafka_prefix):
    """Makes clients of one set of topics."""
    settings = KafkaSettings(bootstrap=kafka_bootstrap, prefix=kafka_prefix)
    logs = []

    def make():
        logs.append(KafkaLog(settings))
        return logs[-1]

    yield make
    for log in logs:
        await log.close()


def a_stream(log, leadership, holder):
    return SnapshotStream(log=log, leadership=leadership, clock=RealClock(), holder=holder)


async def test_the_largest_cycle_comes_whole(open_log):
    log = open_log()
    epoch = await log.take_over("scheduler-default")
    cycle = a_cycle(1, reasons={"g": (Reason(code="x" * (CYCLE_BYTES_MAX - 1_000)),)})
    assert CYCLE_BYTES_MAX - 1_000 < len(encode_cycle(cycle)) <= CYCLE_BYTES_MAX
    await log.append(epoch, [decided(a_reign()), *chunked(cycle)])
    async with running(a_stream(open_log(), MemoryLeadership(), "s").run()):
        _, accepted, _ = await until_covered(log, limit_s=30)
    rows = [row for _, batch in accepted for row in batch.rows]
    assert [row for row in rows if isinstance(row, Cycle)] == [cycle]


async def test_two_writers_leave_one_history(open_log):
    log = open_log()
    epoch = await log.take_over("informer")
    streams = [a_stream(open_log(), MemoryLeadership(), name) for name in ("one", "two")]
    async with running(*(stream.run() for stream in streams)):
        for n in range(40):
            await log.append(epoch, [seen_pod(f"p{n}-{i}", rv=n * 8 + i + 1) for i in range(8)])
            await asyncio.sleep(0.03)
        world, _, n_rejected = await until_covered(log, limit_s=30)
    assert len(world.snapshot.pods) == 320
    assert n_rejected > 0
    assert all(stream.status.n_batches > 0 for stream in streams)
    assert (await verify(log)).violations == []
