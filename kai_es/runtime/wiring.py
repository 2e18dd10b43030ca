"""Ports to adapters, by settings. The one place that knows which adapter is behind a port."""

import asyncio
import os
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from kai_es.audit.export import ExportedLog
from kai_es.cluster.api import ApiServer
from kai_es.cluster.endpoint import found
from kai_es.eventlog.kafka import KafkaLog, Prepare
from kai_es.eventlog.kafka_client import KafkaSettings
from kai_es.eventlog.kafka_lease import KafkaLeadership
from kai_es.eventlog.kafka_offsets import KafkaOffsets
from kai_es.eventlog.kafka_reach import Reach
from kai_es.eventlog.kafka_topics import find, provision
from kai_es.eventlog.sqlite import SqliteLog
from kai_es.eventlog.sqlite_lease import SqliteLeadership
from kai_es.eventlog.sqlite_offsets import SqliteOffsets
from kai_es.events.catalogue import SNAPSHOT
from kai_es.ports.eventlog import EventLog, Leadership, Offsets, ReadableLog
from kai_es.ports.stores import CheckpointStore
from kai_es.runtime.checkpoints import LazyCheckpoints
from kai_es.runtime.database import has_database, open_database
from kai_es.runtime.instance import Instance
from kai_es.runtime.settings import Settings
from kai_es.storage.checkpoint import PostgresCheckpoints


@dataclass(frozen=True, slots=True)
class OpenLog:
    """A log, who may lead on it, and how far consumers have come.

    unreachable: tells quickly if nothing is there to answer for the log, "" = something is.
    """

    log: EventLog
    leadership: Leadership
    offsets: Offsets
    unreachable: Callable[[], Awaitable[str]] | None = None


@dataclass(frozen=True, slots=True)
class Readable:
    """What an audit reads: a log, and where checkpoints are, None = nowhere."""

    log: ReadableLog
    checkpoints: CheckpointStore | None


def holder() -> str:
    """The name of this process in leases and as producer of records."""
    return f"{socket.gethostname()}-{os.getpid()}"


@asynccontextmanager
async def open_log(settings: Settings) -> AsyncIterator[OpenLog]:
    """The log of the settings, closed at the end; on Kafka its first use makes what is missing.

    Raises:
        ConfigError: no instance in the data folder.
    """
    if settings.kafka:
        async with _on_kafka(settings, provision) as opened:
            yield opened
        return
    log = SqliteLog(Instance(settings.data).check().log)
    try:
        yield OpenLog(log, SqliteLeadership(log), SqliteOffsets(log))
    finally:
        await log.close()


@asynccontextmanager
async def open_existing(settings: Settings) -> AsyncIterator[OpenLog]:
    """The log of the settings, which must be there, closed at the end.

    Raises:
        ConfigError: no instance in the data folder, no log with this prefix on the broker.
        UnavailableError: the broker is away.
    """
    if settings.kafka:
        async with _on_kafka(settings, find) as opened:
            await opened.log.begin(SNAPSHOT)  # tells at once what is wrong
            yield opened
        return
    async with open_log(settings) as opened:
        yield opened


@asynccontextmanager
async def open_readable(settings: Settings, exported: Path | None) -> AsyncIterator[Readable]:
    """An exported file, or the log of the settings with the checkpoints of its database.

    Raises:
        ConfigError: no instance in the data folder, no such file, no such log on the broker.
        ExportError: the file is no exported log.
        UnavailableError: the broker is away, the database does not come up.
    """
    if exported is not None:
        file = await asyncio.to_thread(ExportedLog, exported)
        yield Readable(file, file)
        return
    async with AsyncExitStack() as stack:
        opened = await stack.enter_async_context(open_existing(settings))
        if not has_database(settings):
            yield Readable(opened.log, None)
            return

        async def checkpoints() -> CheckpointStore:
            return PostgresCheckpoints(await stack.enter_async_context(open_database(settings)))

        yield Readable(opened.log, LazyCheckpoints(checkpoints))


@asynccontextmanager
async def open_cluster(settings: Settings) -> AsyncIterator[ApiServer]:
    """The API server of the settings: a named kubeconfig, the instance's own, the client's rules.

    Raises:
        ConfigError: no usable credentials.
    """
    own = Instance(settings.data).cluster / "kubeconfig"
    named = settings.kubeconfig or (str(own) if not settings.kafka and own.exists() else None)
    async with ApiServer(found(named)) as server:
        yield server


@asynccontextmanager
async def _on_kafka(settings: Settings, prepare: Prepare) -> AsyncIterator[OpenLog]:
    kafka = KafkaSettings(
        bootstrap=settings.kafka, prefix=settings.prefix, security=settings.kafka_security
    )
    log, offsets = KafkaLog(kafka, prepare=prepare), KafkaOffsets(kafka)
    reach = Reach(settings.kafka)
    try:
        yield OpenLog(log, KafkaLeadership(kafka, prepare=log.open), offsets, reach.problem)
    finally:
        reach.close()
        await offsets.close()
        await log.close()
