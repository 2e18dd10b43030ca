"""The log's SQLite file: opening, schema, transactions, errors. Synchronous.

An entry's row number is `partition number << 40 | position`, so that a partition is one stretch of
the table and a read is one range scan.
"""

import sqlite3
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Final, NamedTuple, TypeVar

from kai_es.eventlog.faults import FaultPlan
from kai_es.events.catalogue import Topic
from kai_es.ports.errors import CorruptLogError, FencedError, UnavailableError

T = TypeVar("T")

FORMAT: Final = 1
"""`user_version` of the file; a reader refuses any other."""

APPLICATION_ID: Final = 0x6B616965  # "kaie"

BUSY_S: Final = 10.0
"""Another process may hold the write lock that long (a large commit on a slow disk)."""

POSITION_BITS: Final = 40
POSITION_MASK: Final = (1 << POSITION_BITS) - 1

_BUSY_POLL_S: Final = 0.001  # SQLite itself would wait in steps of up to 100 ms
_CACHE_KIB: Final = 8 * 1024
_CHECKPOINT_PAGES: Final = 4_000  # 16 MiB of WAL: fewer, larger copies into the file

_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS part (
    tp INTEGER PRIMARY KEY, topic TEXT NOT NULL, partition INTEGER NOT NULL,
    begin INTEGER NOT NULL DEFAULT 0, next INTEGER NOT NULL DEFAULT 0, UNIQUE (topic, partition));
CREATE TABLE IF NOT EXISTS entry (
    id INTEGER PRIMARY KEY, key TEXT NOT NULL, value BLOB, at INTEGER NOT NULL,
    crc INTEGER NOT NULL);
CREATE INDEX IF NOT EXISTS tombstone ON entry (id) WHERE value IS NULL;
CREATE TABLE IF NOT EXISTS latest (
    tp INTEGER NOT NULL, key TEXT NOT NULL, id INTEGER NOT NULL, PRIMARY KEY (tp, key)
    ) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS writer (producer_id TEXT PRIMARY KEY, epoch INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS lease (
    role TEXT PRIMARY KEY, number INTEGER NOT NULL, holder TEXT NOT NULL, until INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS held (
    tp INTEGER NOT NULL, position INTEGER NOT NULL, until INTEGER NOT NULL,
    producer_id TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS mark (
    consumer TEXT NOT NULL, topic TEXT NOT NULL, partition INTEGER NOT NULL,
    position INTEGER NOT NULL, note TEXT NOT NULL, PRIMARY KEY (consumer, topic, partition)
    ) WITHOUT ROWID;
CREATE VIEW IF NOT EXISTS entries AS
    SELECT p.topic, p.partition, e.id & 1099511627775 AS position, e.key, length(e.value) AS bytes,
           e.at FROM entry e JOIN part p ON p.tp = e.id >> 40;
"""


_AWAY: Final = (UnavailableError, "")
_CORRUPT: Final = (CorruptLogError, "; restore it from a backup")
_OURS: Final = (AssertionError, "")

ERRORS: Final[Mapping[int, tuple[type[Exception], str]]] = MappingProxyType(
    {
        sqlite3.SQLITE_FULL: (UnavailableError, "; free disk space or raise the log's size limit"),
        sqlite3.SQLITE_BUSY: (
            UnavailableError,
            f"; another process has held the write lock for {BUSY_S:.0f} s",
        ),
        sqlite3.SQLITE_LOCKED: _AWAY,
        sqlite3.SQLITE_IOERR: (UnavailableError, "; look at the disk"),
        sqlite3.SQLITE_CANTOPEN: (UnavailableError, "; is its folder there and writable?"),
        sqlite3.SQLITE_READONLY: (UnavailableError, "; the file or its folder is read-only"),
        sqlite3.SQLITE_PERM: (UnavailableError, "; look at the file's permissions"),
        sqlite3.SQLITE_AUTH: (UnavailableError, "; look at the file's permissions"),
        sqlite3.SQLITE_NOMEM: _AWAY,
        sqlite3.SQLITE_PROTOCOL: _AWAY,
        sqlite3.SQLITE_NOLFS: _AWAY,
        sqlite3.SQLITE_INTERRUPT: _AWAY,
        sqlite3.SQLITE_ABORT: _AWAY,
        sqlite3.SQLITE_SCHEMA: _AWAY,
        sqlite3.SQLITE_MISUSE: _AWAY,  # used after close
        sqlite3.SQLITE_CORRUPT: _CORRUPT,
        sqlite3.SQLITE_NOTADB: _CORRUPT,
        sqlite3.SQLITE_FORMAT: _CORRUPT,
        sqlite3.SQLITE_CONSTRAINT: _CORRUPT,  # a position given twice: a table lost rows
        sqlite3.SQLITE_ERROR: _OURS,
        sqlite3.SQLITE_INTERNAL: _OURS,
        sqlite3.SQLITE_NOTFOUND: _OURS,
        sqlite3.SQLITE_EMPTY: _OURS,
        sqlite3.SQLITE_TOOBIG: _OURS,
        sqlite3.SQLITE_MISMATCH: _OURS,
        sqlite3.SQLITE_RANGE: _OURS,
        sqlite3.SQLITE_NOTICE: _OURS,
        sqlite3.SQLITE_WARNING: _OURS,
    }
)
"""What each primary result code of SQLite means to a caller, and what to do about it."""


class Part(NamedTuple):
    """A partition and its number in the file."""

    topic: str
    partition: int
    tp: int

    @property
    def base(self) -> int:
        """Row number of position 0."""
        return self.tp << POSITION_BITS


class LogFile:
    """One connection to the log's file, for one thread at a time.

    Args:
        path: the file; made if missing.
        topics: the catalogue.
        plan: what goes wrong on purpose.
        max_pages: size limit in pages of 4 KiB, None = the disk's.

    Raises:
        UnavailableError: the file cannot be opened or written now.
        CorruptLogError: it is no log of ours, or of another format.
    """

    def __init__(
        self,
        path: Path,
        *,
        topics: Mapping[str, Topic],
        plan: FaultPlan,
        max_pages: int | None = None,
    ) -> None:
        self.path = path
        self.topics = topics
        self.plan = plan
        with self.errors("open"):
            self.db = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
            try:
                self._prepare(max_pages)
            except BaseException:
                self.db.close()
                raise
        rows = self.db.execute("SELECT topic, partition, tp FROM part").fetchall()
        self.parts = {
            (topic.decode(), number): Part(topic.decode(), number, tp) for topic, number, tp in rows
        }

    def _prepare(self, max_pages: int | None) -> None:
        db = self.db
        db.text_factory = bytes  # keys are checked as stored, then decoded
        db.execute("PRAGMA busy_timeout = 0")
        self._check_format()
        self._retrying("PRAGMA journal_mode = WAL")
        db.execute("PRAGMA synchronous = FULL")
        db.execute(f"PRAGMA cache_size = -{_CACHE_KIB}")
        db.execute(f"PRAGMA wal_autocheckpoint = {_CHECKPOINT_PAGES}")
        if max_pages is not None:
            db.execute(f"PRAGMA max_page_count = {max_pages}")
        if not self._is_complete():
            with self._transaction():
                self._create()

    def _check_format(self) -> None:
        with self.view("open"):  # one look: another process may be making the file right now
            (application,) = self._retrying("PRAGMA application_id").fetchone()
            (version,) = self._retrying("PRAGMA user_version").fetchone()
            (tables,) = self._retrying("SELECT count(*) FROM sqlite_schema").fetchone()
        if tables and (application, version) != (APPLICATION_ID, FORMAT):
            raise CorruptLogError(
                f"{self.path} is no log that this release can read (application id "
                f"{application:#x}, format {version}; needed {APPLICATION_ID:#x}, {FORMAT})"
            )

    def _is_complete(self) -> bool:
        if not self._retrying("SELECT count(*) FROM sqlite_schema").fetchone()[0]:
            return False
        (partitions,) = self._retrying("SELECT count(*) FROM part").fetchone()
        return bool(partitions >= sum(topic.partitions for topic in self.topics.values()))

    def _create(self) -> None:
        for statement in _SCHEMA.split(";\n"):
            self.db.execute(statement)
        self.db.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        self.db.execute(f"PRAGMA user_version = {FORMAT}")
        self.db.executemany(
            "INSERT OR IGNORE INTO part (topic, partition) VALUES (?, ?)",
            [(t.name, number) for t in self.topics.values() for number in range(t.partitions)],
        )

    def close(self) -> None:
        """Close the connection; an open transaction is rolled back."""
        self.db.close()

    def version(self) -> int:
        """Changes whenever another connection has committed."""
        with self.errors("read"):
            return int(self._retrying("PRAGMA data_version").fetchone()[0])

    @contextmanager
    def view(self, doing: str) -> Iterator[None]:
        """One consistent look; nothing is held after it."""
        with self.errors(doing):
            self._retrying("BEGIN")
            try:
                yield
            finally:
                if self.db.in_transaction:
                    self.db.execute("ROLLBACK")

    def write(self, works: Sequence[Callable[["LogFile"], T]]) -> list[T | FencedError]:
        """Do all works in one durable transaction.

        A work that finds itself fenced has written nothing, since it looks first; the others go on.

        Raises:
            UnavailableError: nothing was written.
            FencedError: the commit's outcome is unknown.
        """
        with self.errors("append to"), self._transaction():
            return [self._guarded(work) for work in works]

    def _guarded(self, work: Callable[["LogFile"], T]) -> T | FencedError:
        try:
            return work(self)
        except FencedError as exc:
            return exc

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._retrying("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            if self.db.in_transaction:
                self.db.execute("ROLLBACK")
            raise
        self._commit()

    def _commit(self) -> None:
        try:
            self.db.execute("COMMIT")
        except sqlite3.Error as exc:
            if self.db.in_transaction:
                self.db.execute("ROLLBACK")
            if _code(exc) == sqlite3.SQLITE_IOERR:
                raise FencedError(
                    f"{self.path}: the disk failed during a commit, its outcome is unknown: {exc}"
                ) from exc
            raise

    def _retrying(self, statement: str) -> sqlite3.Cursor:
        deadline = time.monotonic() + BUSY_S
        while True:
            try:
                return self.db.execute(statement)
            except sqlite3.OperationalError as exc:
                if _code(exc) != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                    raise
            time.sleep(_BUSY_POLL_S)

    @contextmanager
    def errors(self, doing: str) -> Iterator[None]:
        """Map SQLite's errors to the port's."""
        try:
            yield
        except sqlite3.Error as exc:
            kind, hint = ERRORS.get(_code(exc), ERRORS[sqlite3.SQLITE_ERROR])
            raise kind(f"cannot {doing} the log file {self.path}: {exc}{hint}") from exc


def _code(exc: sqlite3.Error) -> int:
    """The primary result code; MISUSE for errors of the Python module, e.g. a closed connection."""
    return int(getattr(exc, "sqlite_errorcode", sqlite3.SQLITE_MISUSE)) & 0xFF
