import pytest

from kai_es.eventlog.kafka_client import KafkaSettings
from tests.conformance.ports.logs import FAULTS, KafkaWorld, MemoryWorld, SqliteWorld, running

KINDS = [
    "memory",
    "memory-faults",
    "sqlite",
    "sqlite-faults",
    pytest.param("kafka", marks=pytest.mark.broker),
]


@pytest.fixture(params=KINDS)
async def world(request, tmp_path):
    """One store of each kind; `world.open()` gives a client."""
    async with running(_made(request, tmp_path)) as made:
        yield made


def _made(request, tmp_path):
    kind, _, faulty = request.param.partition("-")
    faults = FAULTS if faulty else None
    if kind == "memory":
        return MemoryWorld(faults)
    if kind == "sqlite":
        return SqliteWorld(tmp_path / "log.db", faults)
    return KafkaWorld(
        KafkaSettings(
            bootstrap=request.getfixturevalue("kafka_bootstrap"),
            prefix=request.getfixturevalue("kafka_prefix"),
        )
    )


@pytest.fixture
async def log(world):
    return await world.open()
