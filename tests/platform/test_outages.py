"""What a server can do to a process: it says what is wrong, goes on running, and mends itself."""

import asyncio
import random
import resource

import msgspec
import psycopg
import pytest
from kafka import KafkaAdminClient

from kai_es.eventlog.kafka import KafkaLog
from kai_es.eventlog.kafka_client import KafkaSettings
from kai_es.ports.errors import UnavailableError
from kai_es.ports.eventlog import Position
from kai_es.runtime.instance import Instance
from tests.conformance.ports.logs import a_record, name
from tests.platform.process import SAYS_S, Parts
from tools.kafka import Broker

pytestmark = [pytest.mark.broker, pytest.mark.xdist_group("outages")]

NO_DATABASE = "postgresql://kai@127.0.0.1:1/kai"
SASL = {
    "KAI_ES_KAFKA_SECURITY_PROTOCOL": "SASL_PLAINTEXT",
    "KAI_ES_KAFKA_SECURITY_USERNAME": "kai",
    "KAI_ES_KAFKA_SECURITY_PASSWORD": "changed",
}


@pytest.fixture
def started():
    """Starts processes and ends them after the test."""
    made = []

    def start(*args, **kwargs):
        made.append(Parts(*args, **kwargs))
        return made[-1]

    yield start
    for parts in made:
        parts.stop()


@pytest.fixture
def broker(tmp_path):
    """A broker of this test alone, not started."""
    made = Broker(tmp_path / "kafka")
    yield made
    if made.log.exists():
        print(made.log.read_text()[-3000:])  # shown when the test fails
    made.close()


async def test_broker_away_credentials_wrong_database_away(broker, started, tmp_path):
    """Both processes start with nothing there, and nobody starts them again."""
    plain = started(
        tmp_path / "plain",
        ["snapshot", "scheduler"],
        kafka=broker.address,
        database=NO_DATABASE,
    )
    refused = started(
        tmp_path / "refused", ["snapshot"], kafka=broker.sasl_address, prefix="other", env=SASL
    )
    await plain.says("log: cannot reach the broker at", broker.address, "Connection refused")
    await refused.says("log: cannot reach the broker at", broker.sasl_address, "Connection refused")
    broker.start()
    # The scheduler leads, from the beginning of the log: no checkpoint can be had.
    await plain.says("scheduler: gate closed: kind-not-listed:Node", beside=["log:", "snapshot:"])
    await refused.says("log: cannot", "credentials")
    plain.stop()
    broker.stop()
    properties = broker.home / "server.properties"
    properties.write_text(properties.read_text().replace('user_kai="secret"', 'user_kai="changed"'))
    broker.start()
    await refused.ready()
    assert plain.told("Traceback") == refused.told("Traceback") == 0


@pytest.mark.postgres
async def test_books_with_nothing_to_write_know_how_their_database_is(
    postgres_url, started, tmp_path
):
    """From the first answer on: a rollout waits for "ok"."""
    Instance(tmp_path / "away").create()
    Instance(tmp_path / "there").create()
    books = ["usage", "history", "checkpoint"]
    away = started(tmp_path / "away", books, database=NO_DATABASE)
    there = started(tmp_path / "there", books, database=postgres_url)
    said = await away.says("database: ", beside=["not looked at yet"])
    assert "the database is away" in said
    await there.ready()
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute("ALTER SCHEMA public RENAME TO elsewhere")
        await there.says("database: ", "not migrated")
        async with asyncio.timeout(SAYS_S):
            while not there.told("not migrated"):
                await asyncio.sleep(0.1)
        connection.execute("ALTER SCHEMA elsewhere RENAME TO public")
    await there.ready()
    assert there.answers[0] != "ok\n"
    assert "ok\n" not in away.answers


async def test_topic_with_other_partitions_is_named_until_it_is_mended(
    kafka_bootstrap, kafka_prefix, started, tmp_path
):
    admin = KafkaAdminClient(bootstrap_servers=kafka_bootstrap)
    topic = f"{kafka_prefix}.bindrequests"
    admin.create_topics(
        {topic: {"num_partitions": 5, "configs": {"max.message.bytes": str(16 * 2**20)}}}
    )
    parts = started(tmp_path / "p", ["snapshot"], kafka=kafka_bootstrap, prefix=kafka_prefix)
    await parts.says(f"{topic} has 5 partitions, needed are 8")
    admin.delete_topics([topic])
    admin.close()
    await parts.ready()
    assert parts.told("Traceback") == 0


@pytest.mark.postgres
async def test_database_that_is_missing_and_then_read_only(
    kafka_bootstrap, kafka_prefix, postgres_url, started, tmp_path
):
    missing = postgres_url.rpartition("/")[2].partition("?")[0]
    admin = postgres_url.replace(missing, "postgres").replace("postgresql+psycopg", "postgresql")
    with psycopg.connect(admin, autocommit=True) as connection:
        connection.execute(f'DROP DATABASE "{missing}"')
        parts = started(
            tmp_path / "p",
            ["usage", "history", "checkpoint"],
            kafka=kafka_bootstrap,
            prefix=kafka_prefix,
            database=postgres_url,
        )
        for part in ("usage", "history", "checkpoint"):
            await parts.says(f"{part}: ", f'database "{missing}" does not exist')
        connection.execute(f'CREATE DATABASE "{missing}"')
        connection.execute(f'ALTER DATABASE "{missing}" SET default_transaction_read_only = on')
        await parts.says("usage: ", "the database is read-only")
        connection.execute(f'ALTER DATABASE "{missing}" SET default_transaction_read_only = off')
        await parts.ready()
        parts.stop()
    assert parts.told("Traceback") == 0


async def test_broker_whose_disk_is_full(broker, started, tmp_path):
    """It answers with a storage error and goes down; with room again everything goes on."""
    broker.start()
    parts = started(tmp_path / "p", ["snapshot"], kafka=broker.address)
    await parts.ready()
    log = KafkaLog(KafkaSettings(bootstrap=broker.address, connect_s=1.5))
    stored, chance = [], random.Random(1)
    limit = 200_000 + max(f.stat().st_size for f in (broker.home / "data").rglob("*.log"))
    resource.prlimit(broker._process.pid, resource.RLIMIT_FSIZE, (limit, limit))

    async def fill():
        for n in range(100):
            noise = msgspec.Raw(msgspec.msgpack.encode(chance.randbytes(20_000)))
            record = msgspec.structs.replace(a_record(n), data=noise)  # cannot be compressed
            await log.append_one("deadletter", "k", record)
            stored.append(str(n))

    with pytest.raises(UnavailableError) as told:
        await fill()
    assert broker.address in str(told.value) or "kai.deadletter" in str(told.value)
    await parts.says("log: cannot", broker.address)
    broker.kill()
    broker.start()
    await parts.ready()
    found = []
    async for chunk in log.read("deadletter", 0, Position(0), follow=False):
        found += [name(entry) for entry in chunk]
    assert found[: len(stored)] == stored
    await log.close()
    assert parts.told("Traceback") == 0
