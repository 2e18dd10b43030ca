import pytest

from tests.conformance.ports.logs import FAULTS, MemoryWorld, SqliteWorld, running


@pytest.fixture(params=["memory", "memory-faults", "sqlite", "sqlite-faults"])
async def world(request, tmp_path):
    """One store of each kind; `world.open()` gives a client."""
    kind, _, faulty = request.param.partition("-")
    faults = FAULTS if faulty else None
    made = MemoryWorld(faults) if kind == "memory" else SqliteWorld(tmp_path / "log.db", faults)
    async with running(made):
        yield made


@pytest.fixture
async def log(world):
    return await world.open()
