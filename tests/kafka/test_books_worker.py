"""Faust workers over a real broker and a real database."""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import time

import pytest
from kafka import KafkaConsumer, TopicPartition
from kafka.structs import OffsetAndMetadata

from kai_es.cli.exits import DAMAGED
from kai_es.eventlog.kafka import KafkaLog
from kai_es.eventlog.kafka_client import KafkaSettings
from kai_es.storage import schema
from kai_es.storage.checkpoint import PostgresCheckpoints
from kai_es.storage.engine import connect_to
from kai_es.storage.history import PostgresHistory
from kai_es.storage.identity import check_identity
from kai_es.storage.usage import PostgresUsage
from projectors.history import History
from projectors.usage import Usage
from streams.worker import credentials_of
from tests.books.story import MINUTE, a_node
from tests.books.tables import Tables
from tests.histories.logs import folded
from tests.postgres.test_books_kills import a_story, append

pytestmark = [pytest.mark.broker, pytest.mark.postgres]

PATIENCE_S = 120


class Site:
    """A topic, a database and the workers on them."""

    def __init__(self, bootstrap, prefix, url, folder):
        self.bootstrap, self.prefix, self.url, self.folder = bootstrap, prefix, url, folder
        self.engine = connect_to(url)
        schema.upgrade(self.engine)
        self.usage, self.history = PostgresUsage(self.engine), PostgresHistory(self.engine)
        self.processes = []

    def log(self):
        return KafkaLog(KafkaSettings(bootstrap=self.bootstrap, prefix=self.prefix))

    def write(self, batches, prev=-1):
        async def run():
            log = self.log()
            try:
                return await append(log, batches, prev)
            finally:
                await log.close()

        return asyncio.run(run())

    def accepted(self):
        async def run():
            log = self.log()
            try:
                return (await folded(log))[1]
            finally:
                await log.close()

        return asyncio.run(run())

    def worker(self, name, instance):
        (self.folder / instance).mkdir(exist_ok=True)
        with (self.folder / f"{instance}.log").open("ab") as out:
            process = subprocess.Popen(
                [
                    *(sys.executable, "-m", "tests.books.faust_keeper", name, instance),
                    *(self.bootstrap, self.prefix, self.url, str(self.folder / instance)),
                ],
                stdout=out,
                stderr=out,
            )
        self.processes.append(process)
        return process

    def until(self, store, offset):
        end = time.monotonic() + PATIENCE_S
        while True:
            place = asyncio.run(store.place())
            if place.offset >= offset:
                return place
            alive = any(process.poll() is None for process in self.processes)
            assert alive, self.tail()
            assert time.monotonic() < end, f"stands at {place.offset}, not {offset}: {self.tail()}"
            time.sleep(0.1)

    def tail(self):
        return "\n".join(p.read_text()[-2_000:] for p in sorted(self.folder.glob("*.log")))

    def check_usage(self):
        usage, tables = Usage(), Tables()
        for offset, batch in self.accepted():
            usage.fold(offset, batch)
        tables.write(usage.take())
        with self.engine.connect() as connection:
            for table, name in (
                ("allocation_interval", "allocations"),
                ("request_interval", "requests"),
            ):
                rows = connection.exec_driver_sql(
                    f"SELECT pod_uid, start_offset, end_offset FROM {table}"
                    " WHERE resource = 'gpu' ORDER BY 1, 2"
                )
                expected = sorted(
                    (key, row.start_offset, row.end_offset)
                    for (key, *_), row in tables.tables[name].items()
                )
                assert [tuple(row) for row in rows] == expected
        assert check_identity(self.engine) is None

    def close(self):
        for process in self.processes:
            process.kill()
            process.wait()
        self.engine.dispose()


@pytest.fixture
def site(kafka_bootstrap, kafka_prefix, postgres_url, tmp_path):
    made = Site(kafka_bootstrap, kafka_prefix, postgres_url, tmp_path)
    yield made
    made.close()


def test_commit_of_the_group_that_skipped_records_skips_nothing(site):
    story = a_story(20, seed=6)
    prev = site.write(story.batches)
    partition = TopicPartition(f"{site.prefix}.snapshot", 0)
    consumer = KafkaConsumer(
        bootstrap_servers=site.bootstrap,
        group_id=f"{site.prefix}.books.usage",
        enable_auto_commit=False,
    )
    consumer.assign([partition])
    consumer.commit({partition: OffsetAndMetadata(prev + 1, "", -1)})
    consumer.close()
    site.worker("usage", "usage-1")
    site.until(site.usage, prev)
    site.check_usage()


@pytest.mark.long
def test_history_and_checkpoints_have_workers_of_their_own(site):
    story = a_story(20, seed=7)
    later = story.batches[-1][1].time + 6 * MINUTE  # a checkpoint is due
    story.batch(later, story.upsert(a_node()))
    prev = site.write(story.batches)
    site.worker("history", "history-1")
    site.worker("checkpoint", "checkpoint-1")
    site.until(site.history, prev)
    expected = History()
    for offset, batch in site.accepted():
        expected.fold(offset, batch)
    with site.engine.connect() as connection:
        found = connection.exec_driver_sql("SELECT cycle FROM cycle ORDER BY cycle")
        assert [row[0] for row in found] == [row.cycle.cycle for row in expected.take().cycles]
    end = time.monotonic() + PATIENCE_S
    while not asyncio.run(PostgresCheckpoints(site.engine).heads()):
        assert time.monotonic() < end, site.tail()
        time.sleep(0.1)


@pytest.mark.long
def test_parts_of_the_command_line_are_workers(site):
    story = a_story(20, seed=9)
    prev = site.write(story.batches)
    with (site.folder / "run.log").open("ab") as out:
        process = subprocess.Popen(
            [
                *(sys.executable, "-m", "kai_es.cli", "run", "usage", "history"),
                *("--kafka", site.bootstrap, "--prefix", site.prefix, "--database", site.url),
                *("--listen", "127.0.0.1:0", "--data", str(site.folder)),
            ],
            env={**os.environ, "TMPDIR": str(site.folder)},  # for the places of its workers
            stdout=out,
            stderr=out,
        )
    site.processes.append(process)
    site.until(site.usage, prev)
    site.until(site.history, prev)
    site.check_usage()
    process.send_signal(signal.SIGTERM)
    assert process.wait(PATIENCE_S) == 0, site.tail()


@pytest.mark.long
def test_worker_that_cannot_go_on_ends_with_its_process(site):
    story = a_story(20, seed=10)
    half = len(story.batches) // 2
    prev = site.write(story.batches[:half])
    site.write(story.batches[half:], prev + 1_000)
    with (site.folder / "run.log").open("ab") as out:
        process = subprocess.Popen(
            [
                *(sys.executable, "-m", "kai_es.cli", "run", "usage", "history"),
                *("--kafka", site.bootstrap, "--prefix", site.prefix, "--database", site.url),
                *("--listen", "127.0.0.1:0", "--data", str(site.folder)),
            ],
            env={**os.environ, "TMPDIR": str(site.folder)},  # for the places of its workers
            stdout=out,
            stderr=out,
        )
    site.processes.append(process)
    assert process.wait(PATIENCE_S) == DAMAGED, site.tail()
    *before, last = (site.folder / "run.log").read_text().splitlines()
    assert "the log cannot be read on" in last
    assert "are not in the log" in last
    assert all(" info kai_es" in line or " warning kai_es" in line for line in before), site.tail()


@pytest.mark.long
def test_second_worker_takes_over_and_a_resumed_zombie_harms_nobody(site):
    story = a_story(60, seed=8)
    third = len(story.batches) // 3
    first = site.worker("usage", "usage-1")
    prev = site.write(story.batches[:third])
    site.until(site.usage, prev)
    first.send_signal(signal.SIGSTOP)
    site.worker("usage", "usage-2")
    prev = site.write(story.batches[third : 2 * third], prev)
    site.until(site.usage, prev)
    first.send_signal(signal.SIGCONT)
    prev = site.write(story.batches[2 * third :], prev)
    site.until(site.usage, prev)
    with contextlib.suppress(subprocess.TimeoutExpired):
        first.wait(3)
    site.check_usage()


def test_security_settings_in_fausts_form():
    assert credentials_of({}) is None
    sasl = credentials_of(
        {
            "security_protocol": "SASL_SSL",
            "sasl_mechanism": "SCRAM-SHA-512",
            "sasl_plain_username": "kai",
            "sasl_plain_password": "secret",
        }
    )
    assert (sasl.username, sasl.password) == ("kai", "secret")
    assert sasl.ssl_context is not None
    assert credentials_of({"security_protocol": "SSL"}).context is not None
    with pytest.raises(ValueError, match="GSSAPI: want SSL"):
        credentials_of({"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "GSSAPI"})
