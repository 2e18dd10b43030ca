"""Any sequence of uses leaves memory and SQLite, calm or with faults, as the model says."""

import asyncio
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from kai_es.eventlog.faults import LogFaults
from kai_es.events.catalogue import partition_of
from kai_es.ports.errors import FencedError, GoneError
from kai_es.ports.eventlog import Epoch, Position
from tests.conformance.ports.logs import (
    TOPICS,
    MemoryWorld,
    SqliteWorld,
    a_record,
    entries,
    gone,
    name,
    out,
)

PRODUCERS = st.sampled_from(["one", "two"])
KEYS = st.sampled_from(["a", "b", "c", "d"])
PARTS = [(t.name, p) for t in TOPICS.values() for p in range(t.partitions)]
FAULTS = LogFaults(seed=11, hold_ms=4, lag_ms_max=3, hold_rate=0.2)


class LogMachine(RuleBasedStateMachine):
    """The model: a list of (position, key, name) per partition, and the newest epochs."""

    faults = None
    late = False  # commits may become visible late
    compacts_at_once = True

    def __init__(self):
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.world = self.a_world()
        self.log = self.run(self.world.open())
        self.stored = {part: [] for part in PARTS}
        self.begins = dict.fromkeys(PARTS, 0)
        self.epochs = {}
        self.count = 0

    def run(self, awaitable):
        return self.loop.run_until_complete(awaitable)

    def teardown(self):
        self.run(self.world.close())
        self.loop.close()

    def a_name(self):
        self.count += 1
        return str(self.count)

    @rule(producer=PRODUCERS)
    def take_over(self, producer):
        epoch = self.run(self.log.take_over(producer))
        assert epoch.number > self.epochs.get(producer, 0)
        self.epochs[producer] = epoch.number

    @rule(
        producer=PRODUCERS,
        records=st.lists(st.tuples(st.sampled_from(["decisions", "index"]), KEYS), min_size=1),
        age=st.sampled_from([0, 0, 0, 1]),
    )
    def append(self, producer, records, age):
        batch = [out(topic, key, self.a_name()) for topic, key in records]
        newest = self.epochs.get(producer, 0)
        if newest == 0 or age:
            with pytest.raises(FencedError):
                self.run(self.log.append(Epoch(producer, newest - age), batch))
            return
        positions = self.run(self.log.append(Epoch(producer, newest), batch))
        for record, position in zip(batch, positions, strict=True):
            self.store(record.topic, record.key, record.envelope.id, position)

    @rule(producer=PRODUCERS, key=KEYS)
    def delete(self, producer, key):
        if producer in self.epochs:
            epoch = Epoch(producer, self.epochs[producer])
            (position,) = self.run(self.log.append(epoch, [gone("index", key)]))
            self.store("index", key, None, position)

    @rule()
    def append_one(self):
        record = a_record(self.a_name())
        position = self.run(self.log.append_one("snapshot", "k", record))
        self.store("snapshot", "k", record.id, position)

    def store(self, topic, key, record_name, position):
        number = 0 if topic == "snapshot" else partition_of(key, TOPICS[topic].partitions)
        before = self.stored[topic, number]
        assert not before or position > before[-1][0]
        before.append((position, key, record_name))

    @precondition(lambda self: self.stored["snapshot", 0])
    @rule(data=st.data())
    def trim(self, data):
        part = ("snapshot", 0)
        position, *_ = data.draw(st.sampled_from(self.stored[part]))
        if position >= self.begins[part]:
            self.run(self.log.trim(*part, Position(position)))
            self.begins[part] = position

    @rule()
    def reopen(self):
        self.run(self.log.close())
        self.log = self.run(self.world.open())

    @rule(data=st.data(), part=st.sampled_from(PARTS))
    def read_from_anywhere(self, data, part):
        self.settle()
        starts = [position + n for position, *_ in self.stored[part] for n in (0, 1)]
        start = data.draw(st.sampled_from([0, *starts]))
        if start < self.begins[part]:
            with pytest.raises(GoneError):
                self.run(entries(self.log, *part, start))
            return
        found = self.run(entries(self.log, *part, start))
        self.compare(part, found, start)

    @invariant()
    def ends_agree(self):
        self.settle()
        for topic in TOPICS.values():
            ends, begins = self.run(self.log.end(topic.name)), self.run(self.log.begin(topic.name))
            for number in range(topic.partitions):
                part = (topic.name, number)
                assert begins[number] == self.begins[part]
                last = self.stored[part][-1][0] + 1 if self.stored[part] else 0
                assert ends[number] == max(last, self.begins[part])

    def settle(self):
        """Let everything held back become visible."""
        if self.late:
            for producer in ("one", "two"):
                self.epochs[producer] = self.run(self.log.take_over(producer)).number

    def compare(self, part, found, start):
        expected = [entry for entry in self.stored[part] if entry[0] >= start]
        if not TOPICS[part[0]].compacted:
            assert [(e.position, e.key, name(e)) for e in found] == expected
            return
        last = {key: (position, value) for position, key, value in expected}
        assert {e.key: (e.position, name(e)) for e in found} == last
        if self.compacts_at_once:
            assert len(found) == len(last)


class MemoryMachine(LogMachine):
    def a_world(self):
        return MemoryWorld(self.faults)


class SqliteMachine(LogMachine):
    def a_world(self):
        self.folder = tempfile.TemporaryDirectory()
        return SqliteWorld(Path(self.folder.name) / "log.db", self.faults)

    def teardown(self):
        super().teardown()
        self.folder.cleanup()


class FaultyMemoryMachine(MemoryMachine):
    faults = FAULTS
    late = True
    compacts_at_once = False


class FaultySqliteMachine(SqliteMachine):
    faults = FAULTS
    late = True
    compacts_at_once = False


quick = settings(max_examples=40, stateful_step_count=15)
slow = settings(
    max_examples=6,
    stateful_step_count=12,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
TestMemory = MemoryMachine.TestCase
TestMemory.settings = quick
TestFaultyMemory = FaultyMemoryMachine.TestCase
TestFaultyMemory.settings = quick
TestSqlite = SqliteMachine.TestCase
TestSqlite.settings = slow
TestFaultySqlite = FaultySqliteMachine.TestCase
TestFaultySqlite.settings = slow
