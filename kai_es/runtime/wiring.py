"""Ports to adapters, by settings. The one place that knows which adapter is behind a port."""

import asyncio
import os
import socket
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from kai_es.eventlog.sqlite import SqliteLog
from kai_es.eventlog.sqlite_lease import SqliteLeadership
from kai_es.ports.eventlog import EventLog, Leadership
from kai_es.runtime.instance import Instance
from kai_es.runtime.settings import Settings


class SystemClock:
    """The machine's clocks (`kai_es.ports.clock.Clock`)."""

    def now_ms(self) -> int:
        """Wall clock, ms since the epoch."""
        return time.time_ns() // 1_000_000

    def monotonic_s(self) -> float:
        """Seconds since some fixed moment."""
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        """Wait."""
        await asyncio.sleep(seconds)


@dataclass(frozen=True, slots=True)
class OpenLog:
    """A log, and who may lead on it."""

    log: EventLog
    leadership: Leadership


def holder() -> str:
    """The name of this process in leases and as producer of records."""
    return f"{socket.gethostname()}-{os.getpid()}"


@asynccontextmanager
async def open_log(settings: Settings) -> AsyncIterator[OpenLog]:
    """The log of the settings, closed at the end.

    Raises:
        SettingsError: no instance in the data folder.
    """
    log = SqliteLog(Instance(settings.data).check().log)
    try:
        yield OpenLog(log, SqliteLeadership(log))
    finally:
        await log.close()
