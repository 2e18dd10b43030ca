"""The production `decide` on a made-up history: it replays, and what a log can show of it holds."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from kai_es.audit.cycles import recorded_cycles
from kai_es.audit.export import export_log
from kai_es.audit.replay import replay
from kai_es.audit.verify import verify
from kai_es.eventlog.memory import MemoryLeadership, MemoryLog, MemoryStore
from kai_es.events.decisions import Bind, Evict, Pipeline
from kai_es.reader.restore import stored
from kai_es.reader.roll import roll
from kai_es.scheduler import decide
from kai_es.snapshot.world import World
from tests.histories.story import tell_story
from tests.histories.virtual import LoopClock, run_virtual

SEED = 5
"""A story in which a pod loses the place that the same cycle gave it."""


@pytest.fixture(scope="module")
def history():
    """A store with a story on it."""
    store = MemoryStore()
    run_virtual(
        tell_story(
            lambda: MemoryLog(store=store),
            MemoryLeadership(),
            LoopClock(),
            seed=SEED,
            n_steps=30,
            decide=decide,
        )
    )
    return store


async def decided(log, cycles, checkpoints=None):
    found = [r async for r in replay(log, cycles, checkpoints=checkpoints)]
    assert len(found) == len(cycles)
    return [r.difference for r in found if not r.is_identical]


class Nearest:
    """A checkpoint before every cycle."""

    def __init__(self, checkpoints):
        self.by_offset = checkpoints

    async def newest(self, at_most=None):
        return self.by_offset[at_most]


def test_it_replays_from_the_beginning_and_from_any_checkpoint(history):
    async def scenario():
        log = MemoryLog(store=history)
        cycles = await recorded_cycles(log)
        ops = [op for entry in cycles for op in entry.cycle.decision.ops]
        for kind in (Bind, Evict, Pipeline):
            assert any(isinstance(op, kind) for op in ops), kind
        assert await decided(log, cycles) == []
        world, checkpoints = World(), {}
        wanted = {entry.cycle.offset for entry in cycles}
        async for offset, _, _ in roll(log, world):
            if offset in wanted:
                checkpoints[offset] = stored(world)
        for entry in cycles[::2]:
            assert await decided(log, [entry], Nearest(checkpoints)) == []

    run_virtual(scenario())


def test_what_a_log_can_show_holds(history):
    async def scenario():
        report = await verify(MemoryLog(store=history))
        assert report.violations == []
        assert report.checked["7 evictions"] > 0

    run_virtual(scenario())


SCRIPT = """
import asyncio, json, sys
from pathlib import Path
from kai_es.audit.cycles import recorded_cycles
from kai_es.audit.export import ExportedLog
from kai_es.audit.replay import replay

async def main():
    log = ExportedLog(Path(sys.argv[1]))
    cycles = await recorded_cycles(log)
    print(json.dumps([r.found.digest async for r in replay(log, cycles)]))

asyncio.run(main())
"""


def test_hash_seeds_make_no_difference(history, tmp_path):
    path = tmp_path / "log.kai"

    async def scenario():
        log = MemoryLog(store=history)
        await export_log(log, path)
        return [entry.cycle.digest for entry in await recorded_cycles(log)]

    recorded = run_virtual(scenario())
    for seed in ("0", "1", "4242"):
        done = subprocess.run(
            [sys.executable, "-c", SCRIPT, str(path)],
            env={**os.environ, "PYTHONHASHSEED": seed},
            cwd=Path(__file__).parents[2],
            capture_output=True,
            check=True,
            text=True,
        )
        assert json.loads(done.stdout) == recorded
