"""Histories written by earlier releases: they are read, folded and decided as they were then."""

import json
from pathlib import Path

import pytest

from kai_es.audit.capture import check_capture
from kai_es.audit.cycles import recorded_cycles
from kai_es.audit.export import ExportedLog
from kai_es.audit.replay import replay
from kai_es.audit.verify import verify
from kai_es.snapshot import checkpoint
from tests.histories.circle import first_fit
from tests.histories.logs import folded
from tests.histories.virtual import run_virtual

VERSIONS = sorted(path for path in (Path(__file__).parent / "versions").iterdir() if path.is_dir())


@pytest.fixture(params=VERSIONS, ids=lambda path: path.name)
def kept(request):
    """A folder with a history, and the digests it had."""
    return request.param, json.loads((request.param / "digests.json").read_text())


def test_a_stored_history_folds_and_decides_as_it_did(kept):
    folder, digests = kept

    async def scenario():
        log = ExportedLog(folder / "log.kai")
        cycles = await recorded_cycles(log)
        assert [entry.cycle.digest for entry in cycles] == digests["cycles"]
        found = [r.found.digest async for r in replay(log, cycles, decide=first_fit)]
        assert found == digests["cycles"]
        world, _, _ = await folded(log)
        assert (await log.newest()).head.offset == world.offset
        restored = checkpoint.decode((await log.newest()).payload)
        assert checkpoint.encode(restored).payload == checkpoint.encode(world).payload
        assert (await verify(log)).violations == []

    run_virtual(scenario())


def test_a_stored_world_has_its_digest(kept):
    folder, digests = kept

    async def scenario():
        log = ExportedLog(folder / "log.kai")
        stored = await log.newest()
        assert stored.head.digest == digests["world"]
        if stored.head.version == checkpoint.VERSION:
            assert checkpoint.digest(checkpoint.decode(stored.payload)) == digests["world"]

    run_virtual(scenario())


def test_a_stored_cycle_decides_as_it_did(kept):
    folder, digests = kept
    result = check_capture((folder / "cycle.kai").read_bytes(), decide=first_fit)
    assert result.difference == ""
    assert result.found.digest == digests["captured"]
