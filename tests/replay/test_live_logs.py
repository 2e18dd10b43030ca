"""The same parts on real logs, in real time: what was decided is decided again (invariant 17)."""

import contextlib
from concurrent.futures import ThreadPoolExecutor

import pytest

from kai_es.audit.cycles import recorded_cycles
from kai_es.audit.replay import replay
from kai_es.audit.verify import verify
from kai_es.eventlog.kafka import KafkaLog
from kai_es.eventlog.kafka_client import KafkaSettings
from kai_es.eventlog.kafka_lease import KafkaLeadership
from kai_es.eventlog.memory import MemoryLeadership, MemoryLog, MemoryStore
from kai_es.eventlog.sqlite import SqliteLog
from kai_es.eventlog.sqlite_lease import SqliteLeadership
from kai_es.events.catalogue import SNAPSHOT
from kai_es.reader.restore import stored
from projectors.batching import batch_envelope
from tests.histories.circle import first_fit
from tests.histories.logs import folded
from tests.histories.story import tell_story
from tests.histories.virtual import LoopClock, RealClock, run_virtual


class Opener:
    """Makes clients of one log, and closes them."""

    def __init__(self, make):
        self.make = make
        self.logs = []

    def __call__(self):
        log = self.make()
        self.logs.append(log)
        return log

    async def close(self):
        for log in self.logs:
            await log.close()


@pytest.fixture(params=["sqlite", pytest.param("kafka", marks=pytest.mark.broker)])
async def real(request, tmp_path):
    """Clients and leadership of a real log."""
    if request.param == "sqlite":
        path = tmp_path / "log.db"
        opener = Opener(lambda: SqliteLog(path))
        leadership = SqliteLeadership(opener())
    else:
        settings = KafkaSettings(
            bootstrap=request.getfixturevalue("kafka_bootstrap"),
            prefix=request.getfixturevalue("kafka_prefix"),
        )
        opener = Opener(lambda: KafkaLog(settings))
        leadership = KafkaLeadership(settings, prepare=opener().open, session_s=1.5)
    async with contextlib.AsyncExitStack() as stack:
        stack.push_async_callback(opener.close)
        yield opener, leadership


async def test_a_live_history_replays_and_holds(real):
    opener, leadership = real
    log = await tell_story(opener, leadership, RealClock(), seed=5, n_steps=24)
    cycles = await recorded_cycles(log)
    assert sum(bool(entry.cycle.decision.ops) for entry in cycles) >= 3
    results = [found async for found in replay(log, cycles, decide=first_fit)]
    assert len(results) == len(cycles)
    assert [r.difference for r in results if not r.is_identical] == []
    report = await verify(log)
    assert report.violations == []


async def digests_of(log):
    cycles = await recorded_cycles(log)
    return [found.found.digest async for found in replay(log, cycles, decide=first_fit)]


async def test_a_copied_history_is_the_same_on_every_log(real):
    store = MemoryStore()

    async def scenario():
        log = await tell_story(
            lambda: MemoryLog(store=store), MemoryLeadership(), LoopClock(), seed=8
        )
        found = await digests_of(log)
        world, accepted, _ = await folded(log)
        return found, stored(world).head, [batch for _, batch in accepted]

    digests, head, batches = _in_a_thread(scenario)
    opener, _ = real
    log = opener()
    for batch in batches:
        envelope = batch_envelope(batch, ingest_ms=batch.time, producer="copy")
        await log.append_one(SNAPSHOT, "", envelope)
    assert await digests_of(log) == digests
    assert stored((await folded(log))[0]).head == head


def _in_a_thread(scenario):
    """Run in virtual time, away from the running loop."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(lambda: run_virtual(scenario())).result()
