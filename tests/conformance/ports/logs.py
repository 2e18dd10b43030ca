"""The logs under test: one store, any number of clients."""

import contextlib

import msgspec

from kai_es.eventlog.faults import LogFaults
from kai_es.eventlog.memory import MemoryLeadership, MemoryLog, MemoryStore
from kai_es.eventlog.sqlite import SqliteLog
from kai_es.eventlog.sqlite_lease import SqliteLeadership
from kai_es.events.catalogue import Topic
from kai_es.events.codec import decode
from kai_es.events.envelope import Envelope
from kai_es.ports.eventlog import Out, Position

TOPICS = {
    topic.name: topic
    for topic in (
        Topic("decisions", 2),
        Topic("bindrequests", 3),
        Topic("index", 2, compacted=True),
        Topic("snapshot", 1, retention_ms=-1),
    )
}
FAULTS = LogFaults(seed=7)


def a_record(name, *, size=0):
    """An envelope whose id is `name`."""
    return Envelope(
        schema="test",
        version=1,
        id=str(name),
        event_time=1,
        ingest_time=2,
        producer="test",
        data=msgspec.Raw(msgspec.msgpack.encode(b"x" * size)),
    )


def out(topic, key, name=None, *, partition=None, size=0):
    return Out(topic, str(key), partition, a_record(key if name is None else name, size=size))


def gone(topic, key):
    return Out(topic, str(key), None, None)


def name(entry):
    return None if entry.value is None else decode(entry.value).id


async def entries(log, topic, partition, start=0):
    """Everything from `start` to the end."""
    found = []
    async for chunk in log.read(topic, partition, Position(start), follow=False):
        assert len(chunk) > 0, "an empty chunk without follow"
        found.extend(chunk)
    return found


async def names(log, topic, partition, start=0):
    return [name(entry) for entry in await entries(log, topic, partition, start)]


class World:
    """Opens clients of one store and closes them all."""

    compacts_at_once = True

    def __init__(self):
        self.clients = []

    async def open(self):
        log = self.client()
        self.clients.append(log)
        return log

    async def close(self):
        for log in self.clients:
            await log.close()


class MemoryWorld(World):
    def __init__(self, faults=None):
        super().__init__()
        self.compacts_at_once = faults is None
        self.store = MemoryStore(topics=TOPICS, faults=faults)
        self.roles = MemoryLeadership(lease_s=0.6)

    def client(self):
        return MemoryLog(store=self.store)

    async def leadership(self):
        return self.roles


class SqliteWorld(World):
    def __init__(self, path, faults=None):
        super().__init__()
        self.compacts_at_once = faults is None
        self.path = path
        self.faults = faults

    def client(self):
        return SqliteLog(self.path, topics=TOPICS, faults=self.faults)

    async def leadership(self):
        return SqliteLeadership(await self.open(), lease_s=0.6)


@contextlib.asynccontextmanager
async def running(world):
    try:
        yield world
    finally:
        await world.close()
