"""EventLog in one SQLite file on a local disk, for several processes at once."""

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar

from kai_es.eventlog import sqlite_entries as entries
from kai_es.eventlog.batch import code_batch, code_one
from kai_es.eventlog.faults import Fate, FaultPlan, LogFaults
from kai_es.eventlog.group import GroupCommit
from kai_es.eventlog.sqlite_file import LogFile, Part
from kai_es.eventlog.tail import IDLE_S, Tail
from kai_es.events.catalogue import TOPICS, Topic
from kai_es.events.envelope import Envelope
from kai_es.ports.errors import CorruptLogError, UnavailableError
from kai_es.ports.eventlog import Entry, Epoch, Out, Position

T = TypeVar("T")
Work = Callable[[LogFile], Any]

POLL_S: Final = 0.01
"""How often the file is looked at for commits of other processes; own ones wake at once."""
QUIET_S: Final = 0.1
QUIET_POLL_S: Final = 0.025
"""How often after so long without any: to wake up a hundred times a second is a percent of a core.
"""

READERS: Final = 2
"""Threads that read; more would only wait for each other's interpreter lock."""

EXPIRE_S: Final = 600.0
"""How often old entries are looked for, at the first append after it."""


def _wall_ms() -> int:
    return time.time_ns() // 1_000_000


class SqliteLog:
    """EventLog over one file.

    All database work happens in threads: one writes, `READERS` read, one watches for commits of
    other processes. The file is opened at the first use.

    Args:
        path: the file, made if missing, on a local disk (WAL needs shared memory); its folder must
            exist.
        topics: the catalogue.
        faults: what goes wrong on purpose, None = nothing.
        max_pages: size limit in pages of 4 KiB, None = the disk's.
        now_ms: the clock for retention.
    """

    def __init__(
        self,
        path: Path,
        *,
        topics: Mapping[str, Topic] = TOPICS,
        faults: LogFaults | None = None,
        max_pages: int | None = None,
        now_ms: Callable[[], int] = _wall_ms,
    ) -> None:
        self.path = path
        self.now_ms = now_ms
        self._topics = topics
        self._plan = FaultPlan(faults)
        self._max_pages = max_pages
        self._writer = ThreadPoolExecutor(1, "log-writer")
        self._readers = ThreadPoolExecutor(READERS, "log-reader")
        self._local = threading.local()
        self._files: list[LogFile] = []
        self._commits: GroupCommit[Work, Any] = GroupCommit(self._commit)
        self._expire_at = 0.0
        self._tail: Tail[int] = Tail()
        self._watcher: threading.Thread | None = None
        self._closed = threading.Event()

    async def take_over(self, producer_id: str) -> Epoch:
        """See the port."""
        number = await self.write(partial(entries.take_over, producer_id=producer_id))
        self._tail.wake_all()
        return Epoch(producer_id, number)

    async def append(self, epoch: Epoch, batch: Sequence[Out]) -> Sequence[Position]:
        """See the port."""
        records = code_batch(batch, self._topics)

        def work(file: LogFile) -> entries.Appended:
            entries.check_epoch(file, epoch.producer_id, epoch.number)
            return entries.append(file, records, at_ms=self.now_ms(), producer_id=epoch.producer_id)

        appended = await self.write(work)
        self._tail.moved(appended.nexts)
        self._plan.lose_answer(epoch.producer_id)
        return appended.positions

    async def append_one(self, topic: str, key: str, envelope: Envelope) -> Position:
        """See the port."""
        record = code_one(topic, key, envelope, self._topics)
        fate = self._plan.fate()

        def work(file: LogFile) -> entries.Appended:
            return entries.append(file, [record] * fate.copies(), at_ms=self.now_ms())

        appended = await self.write(work)
        self._tail.moved(appended.nexts)
        if fate is not Fate.ACKNOWLEDGED:
            raise UnavailableError(f"outcome of an append to {topic} unknown (injected)")
        return appended.positions[0]

    async def read(
        self, topic: str, partition: int, start: Position, *, follow: bool
    ) -> AsyncIterator[Sequence[Entry]]:
        """See the port."""
        part = await self.look(lambda file: file.parts[topic, partition])
        stop = None if follow else (await self.end(topic))[partition]
        position: int = start
        if follow:
            self._watch()
        while not (follow and self._closed.is_set()):
            chunk = await self.look(partial(self._chunk, part, position, stop))
            if chunk.entries:
                position = chunk.entries[-1].position + 1
                yield chunk.entries
            elif stop is not None:
                return
            else:
                yield ()
                idle_s = POLL_S if self._plan.active else IDLE_S
                while not await self._tail.beyond(part.tp, chunk.next, idle_s):
                    if self._plan.active or self._closed.is_set():
                        break  # with faults, what was held back may have become visible
                    yield ()

    def _chunk(self, part: Part, start: int, stop: int | None, file: LogFile) -> entries.Chunk:
        return entries.read(file, part, start, stop, now_ms=self.now_ms())

    async def begin(self, topic: str) -> Mapping[int, Position]:
        """See the port."""
        extents = await self._extents(topic)
        return {number: Position(extent.begin) for number, extent in extents.items()}

    async def end(self, topic: str) -> Mapping[int, Position]:
        """See the port."""
        extents = await self._extents(topic)
        return {number: Position(extent.end) for number, extent in extents.items()}

    async def _extents(self, topic: str) -> Mapping[int, entries.Extent]:
        return await self.look(lambda file: entries.extents(file, topic, now_ms=self.now_ms()))

    async def trim(self, topic: str, partition: int, before: Position) -> None:
        """See the port."""
        await self.write(
            lambda file: entries.trim(
                file, file.parts[topic, partition], before, now_ms=self.now_ms()
            )
        )

    async def close(self) -> None:
        """See the port."""
        if self._closed.is_set():
            return
        self._closed.set()
        await self._commits.idle()
        self._tail.wake_all()
        await asyncio.to_thread(self._shut)

    def _shut(self) -> None:
        self._writer.shutdown()
        self._readers.shutdown()
        if self._watcher is not None:
            self._watcher.join()
        for file in self._files:
            file.close()

    # Works on the file, in threads

    async def write(self, work: Callable[[LogFile], T]) -> T:
        """Do a work durably; works that wait for the disk share one commit.

        Raises:
            UnavailableError: nothing of it was written.
            FencedError: the work found its epoch over, or the commit's outcome is unknown.
        """
        if self._closed.is_set():
            raise UnavailableError(f"the log {self.path} is closed")
        result: T = await self._commits.do(work)
        return result

    async def _commit(self, works: Sequence[Work]) -> Sequence[Any]:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._writer, self._commit_now, works)

    def _commit_now(self, works: Sequence[Work]) -> Sequence[Any]:
        try:
            file = self._file()
            self._expire(file)
            return file.write(works)
        except Exception as exc:  # noqa: BLE001 - handed to the callers, who wait for it
            return [exc] * len(works)

    def _expire(self, file: LogFile) -> None:
        """Drop old entries in bounded transactions, so that other writers get their turn."""
        now = time.monotonic()
        if now >= self._expire_at:
            (gone,) = file.write([lambda file: entries.expire(file, now_ms=self.now_ms())])
            if not gone:
                self._expire_at = now + EXPIRE_S

    async def look(self, work: Callable[[LogFile], T]) -> T:
        """Do a work that only reads."""
        if self._closed.is_set():
            raise UnavailableError(f"the log {self.path} is closed")
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._readers, lambda: work(self._file()))

    def _file(self) -> LogFile:
        """This thread's connection."""
        file: LogFile | None = getattr(self._local, "file", None)
        if file is None:
            file = LogFile(
                self.path, topics=self._topics, plan=self._plan, max_pages=self._max_pages
            )
            self._local.file = file
            self._files.append(file)
        return file

    def _watch(self) -> None:
        if self._watcher is None:
            self._watcher = threading.Thread(
                target=self._watch_file,
                args=(asyncio.get_running_loop(),),
                name="log-watcher",
                daemon=True,
            )
            self._watcher.start()

    def _watch_file(self, loop: asyncio.AbstractEventLoop) -> None:
        """Wake followers after a commit of another process. Holds nothing while it waits."""
        seen = -1
        quiet_at = 0.0
        while not self._closed.is_set():
            time.sleep(POLL_S if time.monotonic() < quiet_at else QUIET_POLL_S)
            try:
                file = self._file()
                version = file.version()
                if version == seen:
                    continue
                seen, quiet_at = version, time.monotonic() + QUIET_S
                wake: Callable[[], None] = partial(self._tail.moved, entries.nexts(file))
            except (UnavailableError, CorruptLogError):
                wake = self._tail.wake_all  # the followers' own reads meet the error and report it
            try:
                loop.call_soon_threadsafe(wake)
            except RuntimeError:
                return  # the loop has ended without closing the log
