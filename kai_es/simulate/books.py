"""Stores of the books in memory: the ports of the Postgres side for simulations and tests."""

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from kai_es.ports.books import Digest, Place
from kai_es.ports.errors import UnavailableError
from kai_es.ports.stores import (
    CheckpointHead,
    DecayedUsage,
    DivergedError,
    StoredCheckpoint,
)
from kai_es.simulate.tables import HistoryTables, UsageTables
from projectors.history import HistoryRows, Runs
from projectors.usage import Stored, UsageRows

NOWHERE: Final = Place(-1, 0)


class Database:
    """What all stores have in common.

    away: nothing can be read or written.
    fail: what becomes of the next commits: "before" = nothing is written, "after" = it is, but the
        answer is lost, "" = all is well.
    """

    def __init__(self) -> None:
        self.away = False
        self.fail: list[str] = []
        self.n_commits = 0

    def check(self) -> None:
        """Raises: UnavailableError: the database is away."""
        if self.away:
            raise UnavailableError("the database is away (simulated)")


class MemoryUsage:
    """`BooksStore` of the usage projection."""

    def __init__(self, database: Database | None = None) -> None:
        self.database = database or Database()
        self.books = UsageTables()
        self.at = NOWHERE

    async def place(self) -> Place:
        """See the port."""
        self.database.check()
        return self.at

    async def stored(self) -> Stored:
        """See the port."""
        self.database.check()
        return self.books.stored()

    async def commit(self, rows: UsageRows, *, expected: int, to: Place) -> bool:
        """See the port."""
        with _Commit(self.database):
            if self.at.offset != expected:
                return False
            assert to.offset >= self.at.offset, f"{to} is before {self.at}"
            self.books.write(rows)
            self.at = to
        return True

    async def rewind(self, to: Place) -> int:
        """See the port."""
        self.database.check()
        self.at = to
        return self.books.rewind(to.offset)

    async def digest(self) -> Digest:
        """See the port."""
        rows = [
            (name, *at, *interval)
            for name, table in self.books.tables.items()
            for at, interval in table.items()
        ]
        return _digest(rows)


class MemoryHistory:
    """`BooksStore` of the history projection."""

    def __init__(self, database: Database | None = None) -> None:
        self.database = database or Database()
        self.books = HistoryTables()
        self.at = NOWHERE

    async def place(self) -> Place:
        """See the port."""
        self.database.check()
        return self.at

    async def stored(self) -> Runs:
        """See the port."""
        self.database.check()
        return self.books.stored()

    async def commit(self, rows: HistoryRows, *, expected: int, to: Place) -> bool:
        """See the port."""
        with _Commit(self.database):
            if self.at.offset != expected:
                return False
            assert to.offset >= self.at.offset, f"{to} is before {self.at}"
            self.books.write(rows)
            self.at = to
        return True

    async def rewind(self, to: Place) -> int:
        """See the port."""
        self.database.check()
        self.at = to
        return self.books.rewind(to.offset)

    async def digest(self) -> Digest:
        """See the port."""
        books = self.books
        tables: Sequence[Mapping[Any, Any]] = (
            books.cycles,
            books.decisions,
            books.attempts,
            books.reasons,
        )
        return _digest([(n, *row) for n, table in enumerate(tables) for row in table.items()])


class _Commit:
    """A transaction: fails before or after, as ordered."""

    def __init__(self, database: Database) -> None:
        database.check()
        self._fail = database.fail.pop(0) if database.fail else ""
        self._database = database

    def __enter__(self) -> None:
        if self._fail == "before":
            raise UnavailableError("lost before the commit (simulated)")

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        if error is None:
            self._database.n_commits += 1
            if self._fail == "after":
                raise UnavailableError("lost after the commit (simulated)")


class MemoryCheckpoints:
    """`CheckpointStore`."""

    def __init__(self, database: Database | None = None) -> None:
        self.database = database or Database()
        self.kept: dict[int, StoredCheckpoint] = {}

    async def put(self, checkpoint: StoredCheckpoint) -> None:
        """See the port."""
        self.database.check()
        key = checkpoint.head.offset
        if self.kept.setdefault(key, checkpoint).head.digest != checkpoint.head.digest:
            raise DivergedError(f"checkpoint {key}")

    async def newest(self, at_most: int | None = None) -> StoredCheckpoint | None:
        """See the port."""
        self.database.check()
        offsets = [o for o in self.kept if at_most is None or o <= at_most]
        return self.kept[max(offsets)] if offsets else None

    async def heads(self) -> Sequence[CheckpointHead]:
        """See the port."""
        self.database.check()
        return [self.kept[offset].head for offset in sorted(self.kept)]


class MemoryDecayedUsage:
    """`UsageStore`: what each queue has held so far, as a part of what all nodes offered.

    Nothing decays; a simulation is over before it would.
    """

    def __init__(self, usage: MemoryUsage) -> None:
        self._usage = usage

    async def decayed(self, *, shard: str, now_ms: int) -> DecayedUsage:
        """See the port."""
        del shard
        self._usage.database.check()
        books, at = self._usage.books, self._usage.at
        offered: dict[str, int] = {}
        for (*_, resource), amount in books.offered(now_ms).items():
            offered[resource] = offered.get(resource, 0) + amount
        by_queue: dict[str, dict[str, float]] = {}
        for (_, _, path, resource), amount in sorted(books.held(now_ms).items()):
            for queue in path if offered.get(resource) else ():
                shares = by_queue.setdefault(queue, {})
                shares[resource] = shares.get(resource, 0.0) + amount / offered[resource]
        return DecayedUsage(by_queue, at.offset, at.time_ms)


_encoder: Final = msgspec.msgpack.Encoder(order="deterministic")


def _digest(rows: Sequence[tuple[object, ...]]) -> Digest:
    """Of rows in whatever order."""
    sha = hashlib.sha256()
    for row in sorted(_encoder.encode(row) for row in rows):
        sha.update(row)
    return Digest(len(rows), sha.hexdigest())
