"""The logs under test: one store, any number of clients."""

import asyncio
import contextlib
import os
import signal
import sys

import msgspec

from kai_es.eventlog.faults import LogFaults
from kai_es.eventlog.kafka import KafkaLog
from kai_es.eventlog.kafka_lease import KafkaLeadership
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
    lease_s = 0.6

    def __init__(self):
        self.clients = []
        self.processes = []

    async def open(self):
        log = self.client()
        self.clients.append(log)
        return log

    async def holder(self, role, holder):
        """A leader in a process of its own."""
        await (await self.open()).end("snapshot")  # makes the store
        process = HolderProcess()
        self.processes.append(process)
        return await process.start(*self.where(), self.lease_s, role, holder)

    async def start_writer(self, producer):
        """A process that appends until it is killed: `log_writer.py`; for stores on disk."""
        return await start_module("tests.conformance.ports.log_writer", *self.where(), producer)

    async def close(self):
        for process in self.processes:
            await process.end()
        for log in self.clients:
            await log.close()


class Holder:
    """What looks like a process of its own from outside, where one store is in one process."""

    def __init__(self, lease):
        self.lease = lease

    async def die(self):
        self.lease.abandon()

    async def pause(self):
        self.lease._task.cancel()

    async def resume(self):
        self.lease._task = asyncio.create_task(self.lease._keep())
        self.lease._task.add_done_callback(self.lease._ended)

    async def lost(self):
        await self.lease.lost()


class HolderProcess:
    """A holder in a process of its own: `lease_holder.py`."""

    async def start(self, *args):
        self.process = await start_module("tests.conformance.ports.lease_holder", *args)
        await self.says("leads")
        return self

    async def says(self, word):
        line = await asyncio.wait_for(self.process.stdout.readline(), 20)
        assert line.decode().strip() == word

    async def die(self):
        self.process.kill()

    async def pause(self):
        self.process.send_signal(signal.SIGSTOP)

    async def resume(self):
        self.process.send_signal(signal.SIGCONT)

    async def lost(self):
        await self.says("lost")

    async def end(self):
        with contextlib.suppress(ProcessLookupError):
            self.process.kill()
        await self.process.communicate()


async def start_module(module, *args):
    """A child process that runs a module of the tests; what it prints is read by the caller."""
    return await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        module,
        *map(str, args),
        stdout=asyncio.subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )


class MemoryWorld(World):
    def __init__(self, faults=None):
        super().__init__()
        self.compacts_at_once = faults is None
        self.store = MemoryStore(topics=TOPICS, faults=faults)
        self.roles = MemoryLeadership(lease_s=self.lease_s)

    def client(self):
        return MemoryLog(store=self.store)

    async def leadership(self):
        return self.roles

    async def holder(self, role, holder):
        return Holder(await self.roles.acquire(role, holder))


class SqliteWorld(World):
    def __init__(self, path, faults=None):
        super().__init__()
        self.compacts_at_once = faults is None
        self.path = path
        self.faults = faults

    def where(self):
        return "sqlite", self.path

    def client(self):
        return SqliteLog(self.path, topics=TOPICS, faults=self.faults)

    async def leadership(self):
        return SqliteLeadership(await self.open(), lease_s=self.lease_s)


class KafkaWorld(World):
    compacts_at_once = False
    lease_s = 1.6  # the tests' broker allows sessions from 1 s

    def __init__(self, settings):
        super().__init__()
        self.settings = settings

    def where(self):
        return "kafka", self.settings.bootstrap, self.settings.prefix

    def client(self):
        return KafkaLog(self.settings, topics=TOPICS)

    async def leadership(self):
        log = await self.open()
        return KafkaLeadership(self.settings, prepare=log.open, session_s=self.lease_s)


@contextlib.asynccontextmanager
async def running(world):
    try:
        yield world
    finally:
        await world.close()
