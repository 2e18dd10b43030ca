"""Reads all source partitions ahead of the writer, as far as there is room."""

import asyncio
from collections.abc import Coroutine, Mapping, Sequence
from typing import Any, Final

from kai_es.ports.clock import Clock, wait_for
from kai_es.ports.eventlog import Entry, EventLog, Position
from projectors.batching import Buffer
from projectors.sources import SOURCES, Part, Source, Unit

SLICE: Final = 50
"""Records folded in one turn of the event loop: a few milliseconds."""


class Pump:
    """Folds source entries from the given cursors on into units.

    Raises (from its readers): UnavailableError, GoneError, CorruptLogError, PoisonError.
    """

    def __init__(self, log: EventLog, clock: Clock, cursors: Mapping[Part, int]) -> None:
        self._log = log
        self._clock = clock
        self._cursors = cursors
        self._buffer = Buffer()
        self._ready = asyncio.Event()
        self._enough = asyncio.Event()
        self._room = asyncio.Event()

    def readers(self) -> Sequence[Coroutine[Any, Any, None]]:
        """One reader per source partition; none ends by itself."""
        return [self._read(part) for part in SOURCES]

    async def ready(self) -> None:
        """Return once there is something to write."""
        await self._ready.wait()

    async def enough(self, seconds: float) -> None:
        """Return once there is enough for a batch, or after so many seconds."""
        await wait_for(self._enough, clock=self._clock, seconds=seconds)

    def take(self) -> list[Unit]:
        """Units for one batch."""
        units = self._buffer.take()
        self._room.set()
        if self._buffer.is_empty:
            self._ready.clear()
        if not self._buffer.fills_batch:
            self._enough.clear()
        return units

    def oldest_ms(self) -> int:
        """Ingest time of the oldest row that waits, 0 = none."""
        return self._buffer.oldest_ms()

    async def _read(self, part: Part) -> None:
        source = Source(part)
        start = Position(self._cursors[part])
        async for chunk in self._log.read(*part, start, follow=True):
            for first in range(0, len(chunk), SLICE):
                self._fold(source, chunk[first : first + SLICE])
                while self._buffer.is_full:
                    self._room.clear()
                    await self._room.wait()
                if len(chunk) > SLICE:
                    await self._clock.sleep(0)

    def _fold(self, source: Source, entries: Sequence[Entry]) -> None:
        for position, key, value in entries:
            unit = source.fold(position, key, value)
            if unit is not None:
                self._buffer.add(unit)
                self._ready.set()
        if self._buffer.fills_batch:
            self._enough.set()
