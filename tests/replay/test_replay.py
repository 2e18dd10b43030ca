"""A recorded history decides the same again: from anywhere, on anything (invariant 17)."""

import json
import os
import random
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
import zstandard

from kai_es.audit.capture import CaptureError, capture, check_capture
from kai_es.audit.cycles import recorded_cycles
from kai_es.audit.errors import DamagedFileError, ExportError, NotReplayableError
from kai_es.audit.export import ExportedLog, export_log
from kai_es.audit.replay import replay
from kai_es.audit.verify import verify
from kai_es.eventlog.memory import MemoryLeadership, MemoryLog, MemoryStore
from kai_es.eventlog.sqlite import SqliteLog
from kai_es.events.catalogue import SNAPSHOT
from kai_es.events.decisions import Bind, CycleDecision, Evict
from kai_es.ports.eventlog import Position
from kai_es.reader.restore import HistoryGoneError, stored
from kai_es.reader.roll import roll
from kai_es.snapshot.world import World
from projectors.batching import batch_envelope
from tests.histories.circle import first_fit
from tests.histories.logs import folded
from tests.histories.story import tell_story
from tests.histories.virtual import LoopClock, run_virtual

SEED = 11


class Checkpoints:
    """A CheckpointStore in memory."""

    def __init__(self, *checkpoints):
        self.all = list(checkpoints)

    async def newest(self, at_most=None):
        fitting = [c for c in self.all if at_most is None or c.head.offset <= at_most]
        return max(fitting, key=lambda c: c.head.offset, default=None)

    async def heads(self):
        return sorted(c.head for c in self.all)


@pytest.fixture(scope="module")
def history():
    """A store with a story on it."""
    store = MemoryStore()

    async def scenario():
        leadership = MemoryLeadership()
        await tell_story(lambda: MemoryLog(store=store), leadership, LoopClock(), seed=SEED)

    run_virtual(scenario())
    return store


def on(store, scenario):
    """Run with a log on the store."""
    return run_virtual(scenario(MemoryLog(store=store)))


async def replayed(log, *, checkpoints=None, decide=first_fit, cycles=None, change=None):
    cycles = cycles if cycles is not None else await recorded_cycles(log)
    return [
        found
        async for found in replay(
            log, cycles, checkpoints=checkpoints, decide=decide, change=change
        )
    ]


async def all_checkpoints(log, every=7):
    world, found = World(), []
    n = 0
    async for _ in roll(log, world):
        n += 1
        if n % every == 0:
            found.append(stored(world))
    return Checkpoints(*found)


def test_the_story_is_worth_replaying(history):
    cycles = on(history, recorded_cycles)
    ops = [op for entry in cycles for op in entry.cycle.decision.ops]
    assert len(cycles) >= 30
    assert sum(isinstance(op, Bind) for op in ops) >= 20
    assert any(isinstance(op, Evict) for op in ops)
    assert any(entry.cycle.reasons_same for entry in cycles)
    assert {entry.cycle.epoch for entry in cycles} == {1, 2}


def test_every_cycle_is_identical_from_the_beginning(history):
    results = on(history, replayed)
    assert results
    assert [r.difference for r in results if not r.is_identical] == []
    assert all(r.found.digest == r.recorded.digest for r in results)


def test_every_cycle_is_identical_from_any_checkpoint(history):
    async def scenario(log):
        checkpoints = await all_checkpoints(log)
        assert len(checkpoints.all) > 10
        for entry in (await recorded_cycles(log))[::3]:
            (result,) = await replayed(log, checkpoints=checkpoints, cycles=[entry])
            assert result.is_identical, result.difference

    on(history, scenario)


def test_verify_finds_nothing_wrong(history):
    async def scenario(log):
        report = await verify(log, checkpoints=await all_checkpoints(log))
        assert report.violations == []
        assert report.holds
        for what in (
            "1 requests",
            "3 final results",
            "4 node loads",
            "6 requests of their cycle",
            "7 evictions",
            "8 accepted batches",
            "10 cycles",
            "13 record sizes",
            "17 checkpoints",
        ):
            assert report.checked[what] > 0, what

    on(history, scenario)


def test_another_decision_names_the_first_step_that_differs(history):
    def reluctant(snapshot, config, inputs):
        decision = first_fit(snapshot, config, inputs)
        return msgspec.structs.replace(decision, ops=decision.ops[:-1])

    async def scenario(log):
        results = await replayed(log, decide=reluctant)
        wrong = [r for r in results if not r.is_identical]
        assert len(wrong) == sum(bool(r.recorded.decision.ops) for r in results)
        n = len(wrong[0].recorded.decision.ops) - 1
        assert wrong[0].difference.startswith(f"op {n}: recorded bind ns/")
        assert wrong[0].difference.endswith("found nothing")

    on(history, scenario)


def test_another_configuration_is_a_what_if(history):
    def change(config):
        return msgspec.structs.replace(config, settings={"other": 1})

    async def scenario(log):
        results = await replayed(log, change=change)
        assert all(r.is_identical for r in results)  # this decide reads no configuration
        nothing = await replayed(log, change=change, decide=lambda *_: CycleDecision())
        assert any(not r.is_identical for r in nothing)
        assert all(r.decision == CycleDecision() for r in nothing)

    on(history, scenario)


def copied(batches):
    """A store that holds these batches, continuing each other in this order."""
    store = MemoryStore()

    async def scenario(log):
        for batch in batches:
            await log.append_one(
                SNAPSHOT, "", batch_envelope(batch, ingest_ms=batch.time, producer="copy")
            )

    run_virtual(scenario(MemoryLog(store=store)))
    return store


async def batches_of(log):
    return [batch for _, batch in (await folded(log))[1]]


def shuffled(batch, rng):
    """The same rows in another order that the sources allow: each source's rows keep theirs."""
    by_source = {}
    for row, origin in zip(batch.rows, batch.origins, strict=True):
        by_source.setdefault(origin.source, []).append((row, origin))
    picks = [source for source, rows in by_source.items() for _ in rows]
    rng.shuffle(picks)
    pairs = [by_source[source].pop(0) for source in picks]
    return msgspec.structs.replace(
        batch, rows=tuple(row for row, _ in pairs), origins=tuple(o for _, o in pairs)
    )


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_rows_in_another_order_within_a_batch_decide_the_same(history, seed):
    rng = random.Random(seed)
    batches = on(history, batches_of)
    mixed = [shuffled(batch, rng) for batch in batches]
    assert mixed != batches
    results = on(copied(mixed), replayed)
    assert results
    assert [r.difference for r in results if not r.is_identical] == []


def test_what_is_no_longer_there_names_the_first_replayable_cycle(history):
    async def scenario(log):
        checkpoints = await all_checkpoints(log)
        late = Checkpoints(checkpoints.all[5])
        offset = late.all[0].head.offset
        cycles = await recorded_cycles(log)
        return late, offset, cycles

    late, offset, cycles = on(history, scenario)
    store = copied(on(history, batches_of))
    first = next(entry for entry in cycles if entry.cycle.offset >= offset)
    assert first.cycle.cycle > 1

    async def trimmed(log):
        await log.trim(SNAPSHOT, 0, Position(offset))
        kept = await recorded_cycles(log)
        # cycles whose batch is there, though what they saw may be gone
        assert kept == [entry for entry in cycles if entry.at >= offset]
        with pytest.raises(
            NotReplayableError, match=f"first replayable cycle is {first.cycle.cycle} "
        ):
            await replayed(log, checkpoints=late, cycles=cycles)
        with pytest.raises(NotReplayableError, match="first replayable cycle is none"):
            await replayed(log, cycles=cycles)
        results = await replayed(
            log, checkpoints=late, cycles=[e for e in cycles if e.cycle.offset >= offset]
        )
        assert results
        assert all(r.is_identical for r in results)
        report = await verify(log, checkpoints=late)
        assert report.violations == []
        with pytest.raises(HistoryGoneError):
            await verify(log)

    on(store, trimmed)


async def test_sqlite_holds_the_same_history(history, tmp_path):
    batches = await batches_of(MemoryLog(store=history))
    log = SqliteLog(tmp_path / "log.db")
    try:
        for batch in batches:
            envelope = batch_envelope(batch, ingest_ms=batch.time, producer="copy")
            await log.append_one(SNAPSHOT, "", envelope)
        results = await replayed(log)
        assert results
        assert all(r.is_identical for r in results)
        here = (await folded(log))[0]
        there = (await folded(MemoryLog(store=history)))[0]
        assert stored(here).head == stored(there).head
    finally:
        await log.close()


def test_a_captured_cycle_decides_the_same_anywhere(history):
    async def scenario(log):
        cycles = await recorded_cycles(log)
        checkpoints = await all_checkpoints(log)
        busiest = max(cycles, key=lambda entry: len(entry.cycle.decision.ops))
        return await capture(log, busiest), await capture(log, cycles[-1], checkpoints=checkpoints)

    for data in on(history, scenario):
        result = check_capture(data, decide=first_fit)
        assert result.difference == ""
        assert result.found.digest == result.recorded.digest
    with pytest.raises(CaptureError, match="not a capture"):
        check_capture(b"junk")
    with pytest.raises(CaptureError, match="not a capture"):
        check_capture(zstandard.compress(b"junk"))
    with pytest.raises(DamagedFileError, match=r"^damaged: .* capture the cycle again"):
        check_capture(data[:-9])
    for place in range(4, len(data), len(data) // 50):
        with pytest.raises(DamagedFileError, match=r"damaged|the world in the capture"):
            check_capture(flipped(data, place))


def test_an_exported_file_is_a_log(history, tmp_path):
    path = tmp_path / "log.kai"

    async def scenario(log):
        checkpoints = await all_checkpoints(log, every=40)
        n = await export_log(log, path, checkpoints=checkpoints.all)
        file = ExportedLog(path)
        assert n > 100
        assert await file.heads() == await checkpoints.heads()
        assert await file.begin(SNAPSHOT) == await log.begin(SNAPSHOT)
        assert await file.end("objects") == await log.end("objects")
        assert (await folded(file))[1] == (await folded(log))[1]
        results = await replayed(file, checkpoints=file)
        assert results
        assert all(r.is_identical for r in results)
        assert (await verify(file, checkpoints=file)).violations == []

    on(history, scenario)
    whole = path.read_bytes()
    for n in (5, len(whole) // 2, len(whole) - 9):
        path.write_bytes(whole[:n])
        with pytest.raises(DamagedFileError, match=r"is damaged: .* export it again"):
            ExportedLog(path)
    for place in range(4, len(whole), len(whole) // 50):
        path.write_bytes(flipped(whole, place))
        with pytest.raises(DamagedFileError, match=r"is damaged: .* export it again"):
            ExportedLog(path)
    for other in (b"", b"junk", zstandard.compress(b"junk" * 9)):
        path.write_bytes(other)
        with pytest.raises(ExportError, match="no exported log"):
            ExportedLog(path)


def flipped(data, place):
    return data[:place] + bytes([data[place] ^ 0x55]) + data[place + 1 :]


SCRIPT = """
import asyncio, json, sys
from pathlib import Path
from kai_es.audit.cycles import recorded_cycles
from kai_es.audit.export import ExportedLog
from kai_es.audit.replay import replay
from kai_es.reader.roll import roll
from kai_es.snapshot import checkpoint
from kai_es.snapshot.world import World
from tests.histories.circle import first_fit

async def main():
    log = ExportedLog(Path(sys.argv[1]))
    cycles = await recorded_cycles(log)
    found = [r.found.digest async for r in replay(log, cycles, decide=first_fit)]
    world = World()
    async for _ in roll(log, world):
        pass
    print(json.dumps({"digests": found, "world": checkpoint.digest(world)}))

asyncio.run(main())
"""


def test_hash_seeds_make_no_difference(history, tmp_path):
    path = tmp_path / "log.kai"
    on(history, lambda log: export_log(log, path))
    recorded = [entry.cycle.digest for entry in on(history, recorded_cycles)]
    outputs = []
    for seed in ("0", "1", "4242"):
        done = subprocess.run(
            [sys.executable, "-c", SCRIPT, str(path)],
            env={**os.environ, "PYTHONHASHSEED": seed},
            cwd=Path(__file__).parents[2],
            capture_output=True,
            check=True,
            text=True,
        )
        outputs.append(json.loads(done.stdout))
    assert outputs[0] == outputs[1] == outputs[2]
    assert outputs[0]["digests"] == recorded
