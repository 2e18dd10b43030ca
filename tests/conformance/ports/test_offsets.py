"""The contract of `ports.eventlog.Offsets`, against every adapter."""

import pytest

from kai_es.eventlog.kafka import KafkaLog
from kai_es.eventlog.kafka_client import KafkaSettings
from kai_es.eventlog.kafka_offsets import KafkaOffsets
from kai_es.eventlog.memory_offsets import MemoryOffsets
from kai_es.eventlog.sqlite import SqliteLog
from kai_es.eventlog.sqlite_offsets import SqliteOffsets
from kai_es.ports.eventlog import Mark, Position


@pytest.fixture(params=["memory", "sqlite", pytest.param("kafka", marks=pytest.mark.broker)])
async def offsets(request, tmp_path):
    if request.param == "memory":
        yield MemoryOffsets()
        return
    if request.param == "kafka":
        settings = KafkaSettings(
            bootstrap=request.getfixturevalue("kafka_bootstrap"),
            prefix=request.getfixturevalue("kafka_prefix"),
        )
        log = KafkaLog(settings)
        await log.end("bindrequests")  # makes the topics
        kafka = KafkaOffsets(settings)
        yield kafka
        await kafka.close()
        await log.close()
        return
    log = SqliteLog(tmp_path / "log.db")
    yield SqliteOffsets(log)
    await log.close()


async def test_marks_are_kept_by_consumer_topic_and_partition(offsets):
    assert await offsets.load("binder", "bindrequests") == {}
    await offsets.store("binder", "bindrequests", {0: Mark(Position(5), "7"), 3: Mark(Position(1))})
    await offsets.store("binder", "decisions", {0: Mark(Position(9))})
    await offsets.store("other", "bindrequests", {0: Mark(Position(8))})
    assert await offsets.load("binder", "decisions") == {0: Mark(Position(9))}
    assert await offsets.load("binder", "bindrequests") == {
        0: Mark(Position(5), "7"),
        3: Mark(Position(1), ""),
    }


async def test_a_mark_replaces_the_former_one_and_leaves_other_partitions(offsets):
    topic = "bindrequests"
    await offsets.store("b", topic, {0: Mark(Position(5), "a"), 1: Mark(Position(2), "b")})
    await offsets.store("b", topic, {0: Mark(Position(4), "c")})
    assert await offsets.load("b", topic) == {0: Mark(Position(4), "c"), 1: Mark(Position(2), "b")}
