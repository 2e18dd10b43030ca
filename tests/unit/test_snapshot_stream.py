import asyncio

import msgspec

from kai_es.eventlog.memory import MemoryLeadership, MemoryLog, MemoryStore
from kai_es.events.catalogue import DEAD_LETTER, DECISIONS, OBJECTS, SNAPSHOT
from kai_es.events.codec import decode, unpack
from kai_es.events.envelope import PoisonError
from kai_es.ports.errors import FencedError, GoneError, UnavailableError
from kai_es.ports.eventlog import Position
from projectors.batching import batch_envelope, batch_of
from streams.snapshot import SnapshotStream
from tests.histories.builders import a_reign
from tests.histories.logs import decided, folded, records, running, seen_pod, until_covered
from tests.histories.virtual import LoopClock, run_virtual


class Bench:
    """A memory log with one stream on it."""

    def __init__(self, log=None):
        self.store = MemoryStore()
        self.log = MemoryLog(store=self.store)
        self.leadership = MemoryLeadership()
        self.stream = self.a_stream(log=log)

    def a_stream(self, *, log=None, holder="s", leadership=None):
        return SnapshotStream(
            log=log or self.log,
            leadership=leadership or self.leadership,
            clock=LoopClock(),
            holder=holder,
        )

    async def write(self, *outs):
        await self.log.append(await self.log.take_over("test"), outs)


async def failure(stream):
    """What the stream ends with."""
    task = asyncio.ensure_future(stream.run())
    await asyncio.wait([task], timeout=30)
    return task.exception() if task.done() else None


def test_parked_versions_are_in_the_deadletter_topic_before_the_batch():
    async def scenario():
        bench = Bench()
        await bench.write(seen_pod("good"), seen_pod("bad", cpu="-1"))
        async with running(bench.stream.run()):
            world, _, _ = await until_covered(bench.log)
        assert list(world.snapshot.pods) == ["pod-good"]
        assert world.parking.counts() == {"Pod": 1}
        (entry,) = await records(bench.log, DEAD_LETTER)
        letter = unpack(decode(entry.value))
        assert (letter.uid, letter.topic) == ("pod-bad", OBJECTS)
        assert bench.stream.status.n_parked == 1

    run_virtual(scenario())


def test_junk_in_decisions_stops_the_stream():
    async def scenario():
        bench = Bench()
        out = decided(a_reign())
        junk = msgspec.structs.replace(out.envelope, data=msgspec.Raw(b"\x01"))
        await bench.write(out._replace(envelope=junk))
        return await failure(bench.stream)

    assert isinstance(run_virtual(scenario()), PoisonError)


def test_a_cursor_below_what_a_source_keeps_stops_the_stream():
    async def scenario():
        bench = Bench()
        await bench.write(decided(a_reign()))
        async with running(bench.stream.run()):
            await until_covered(bench.log)
        await bench.write(decided(a_reign(2, 1)), decided(a_reign(3, 1)))
        await bench.log.trim(DECISIONS, 0, Position(2))
        return await failure(bench.a_stream(holder="again"))

    error = run_virtual(scenario())
    assert isinstance(error, GoneError)
    assert "decisions/0" in str(error)


def test_a_history_begins_at_what_the_sources_still_have():
    async def scenario():
        bench = Bench()
        await bench.write(decided(a_reign()), decided(a_reign(2, 1)))
        await bench.log.trim(DECISIONS, 0, Position(1))
        async with running(bench.stream.run()):
            world, accepted, _ = await until_covered(bench.log)
        assert world.reigns.shards["default"].epoch == 2
        assert next(c.start for c in accepted[0][1].cursors if c.topic == DECISIONS) == 1

    run_virtual(scenario())


class Flaky(MemoryLog):
    """A log that is away now and then."""

    def __init__(self, store, away_at):
        super().__init__(store=store)
        self.away_at = set(away_at)
        self.n_appends = 0

    async def append_one(self, topic, key, envelope):
        self.n_appends += 1
        if self.n_appends in self.away_at:
            raise UnavailableError("away")
        return await super().append_one(topic, key, envelope)


def test_a_log_that_is_away_is_tried_again():
    async def scenario():
        bench = Bench()
        stream = bench.a_stream(log=Flaky(bench.store, away_at=(1, 2, 4)))
        async with running(stream.run()):
            for n in range(3):
                await bench.write(seen_pod(f"p{n}"))
                await until_covered(bench.log)
        assert stream.status.n_unknown == 3
        assert stream.status.trouble == ""
        _, accepted, n_rejected = await folded(bench.log)
        assert (len(accepted), n_rejected) == (3, 0)

    run_virtual(scenario())


def test_the_lag_grows_while_nothing_is_accepted():
    async def scenario():
        bench = Bench()
        stream = bench.a_stream(log=Flaky(bench.store, away_at=range(1, 1_000)))
        async with running(stream.run()):
            await asyncio.sleep(1)
            assert stream.lag_s() == 0
            await bench.write(seen_pod(at_ms=LoopClock().now_ms()))
            await asyncio.sleep(3)
            assert 2.5 < stream.lag_s() < 3.5
            assert stream.status.trouble == "away"
        assert stream.status.n_batches == 0

    run_virtual(scenario())


class BriefLeases:
    """The role for two seconds, and then for somebody else."""

    def __init__(self):
        self.n_given = 0

    async def acquire(self, role, holder, waits):
        self.n_given += 1
        if self.n_given > 1:
            await asyncio.Event().wait()
        return self

    def age_s(self):
        return 0.0

    async def lost(self):
        await asyncio.sleep(2)

    async def release(self):
        pass


def test_a_standby_that_lost_its_role_in_mid_append_has_no_lag():
    async def scenario():
        bench = Bench()
        log = Flaky(bench.store, away_at=range(1, 1_000))
        stream = bench.a_stream(log=log, leadership=BriefLeases())
        await bench.write(seen_pod(at_ms=LoopClock().now_ms()))
        async with running(stream.run()):
            await asyncio.sleep(1.5)
            assert stream.lag_s() > 1
            await asyncio.sleep(10)
            assert (stream.status.state, stream.lag_s()) == ("standby", 0.0)

    run_virtual(scenario())


class OldLease:
    def age_s(self):
        return 10.5

    async def lost(self):
        await asyncio.Event().wait()

    async def release(self):
        pass


class Overtaken:
    """A log on which another writer, that has read less, is always a moment quicker once."""

    def __init__(self):
        self.log = MemoryLog(store=MemoryStore())
        self.is_overtaken = False

    def __getattr__(self, name):
        return getattr(self.log, name)

    async def append_one(self, topic, key, envelope):
        if topic == SNAPSHOT and not self.is_overtaken:
            self.is_overtaken = True
            batch = unpack(envelope)
            cursors = {(c.topic, c.partition): c.start for c in batch.cursors}
            other = batch_of((), prev=batch.prev, time=batch.time, cursors=cursors)
            record = batch_envelope(other, ingest_ms=batch.time, producer="another")
            await self.log.append_one(topic, key, record)
        return await self.log.append_one(topic, key, envelope)


def test_what_another_writers_batch_leaves_out_is_written_after_it():
    """Of two batches that continue one the first counts, whoever wrote it."""

    async def scenario():
        log = Overtaken()
        bench = Bench(log=log)
        await log.append(await log.take_over("test"), [seen_pod("p")])
        async with running(bench.stream.run()):
            await asyncio.sleep(2)
            await log.append(await log.take_over("test"), [seen_pod("q")])
            await asyncio.sleep(2)
        world, _, n_rejected = await folded(log.log)
        assert (sorted(world.snapshot.pods), n_rejected) == (["pod-p", "pod-q"], 1)
        assert bench.stream.status.n_foreign == 1

    run_virtual(scenario())


class OldLeases:
    async def acquire(self, role, holder, waits):
        return OldLease()


def test_a_leader_whose_lease_is_too_old_stops_before_it_writes():
    async def scenario():
        bench = Bench()
        await bench.write(seen_pod())
        error = await failure(bench.a_stream(leadership=OldLeases()))
        assert isinstance(error, FencedError)
        _, accepted, n_rejected = await folded(bench.log)
        assert (accepted, n_rejected) == ([], 0)

    run_virtual(scenario())


def test_an_idle_record_is_accepted_at_once():
    async def scenario():
        bench = Bench()
        async with running(bench.stream.run()):
            await asyncio.sleep(1)
            loop = asyncio.get_running_loop()
            before = loop.time()
            await bench.write(seen_pod())
            await until_covered(bench.log, step_s=0.001)
            assert loop.time() - before <= 0.015

    run_virtual(scenario())


def test_batches_are_ten_milliseconds_apart_under_load():
    async def scenario():
        bench = Bench()
        async with running(bench.stream.run()):
            epoch = await bench.log.take_over("informer")
            for n in range(100):
                await bench.log.append(epoch, [seen_pod(f"p{n}", rv=n + 1)])
                await asyncio.sleep(0.001)
            world, accepted, _ = await until_covered(bench.log)
        assert len(world.snapshot.pods) == 100
        assert len(accepted) <= 14

    run_virtual(scenario())
