"""The file behind the simulated API server: every change of every object, and the access ledger.

One row per change, keyed by resourceVersion; rows that compaction makes unreachable are deleted.
So a restarted server has its objects, and its watchers their history. `synchronous = OFF`: a
commit is in the page cache of the operating system when it returns, which a `kill -9` of the
process cannot take back (a power failure could; this is a simulator).
"""

import secrets
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

LEDGER_ROWS_MAX: Final = 4_000_000
"""Rows of the access ledger that are kept: about 100 bytes each, so 400 MB of disk."""

_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS change (
    rv       INTEGER PRIMARY KEY,
    time_ms  INTEGER NOT NULL,
    resource TEXT NOT NULL,
    key      TEXT NOT NULL,
    type     TEXT NOT NULL,
    body     BLOB NOT NULL
);
CREATE TABLE IF NOT EXISTS fact (name TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS access (
    number      INTEGER PRIMARY KEY,
    time_ms     INTEGER NOT NULL,
    verb        TEXT NOT NULL,
    resource    TEXT NOT NULL,
    subresource TEXT NOT NULL,
    namespace   TEXT NOT NULL,
    name        TEXT NOT NULL,
    uid         TEXT NOT NULL,
    client      TEXT NOT NULL,
    user        TEXT NOT NULL,
    rv          INTEGER NOT NULL,
    status      INTEGER NOT NULL
);
"""


class ChangeRow(NamedTuple):
    """A row of `change`. type: ADDED, MODIFIED or DELETED."""

    rv: int
    time_ms: int
    resource: str
    key: str
    type: str
    body: bytes


class AccessRow(NamedTuple):
    """A row of `access`: one write that a client asked for, refused ones included.

    client: the User-Agent; user: the name behind the token.
    rv:     resourceVersion of the object after the write, 0 = nothing written.
    """

    time_ms: int
    verb: str
    resource: str
    subresource: str
    namespace: str
    name: str
    uid: str
    client: str
    user: str
    rv: int
    status: int


class Database:
    """The file; `path` None keeps everything in memory.

    cluster_id: 32 hexadecimal digits for a new file, "" = by chance.
    """

    def __init__(self, path: Path | None, *, cluster_id: str = "") -> None:
        self._sql = sqlite3.connect(str(path or ":memory:"), isolation_level=None)
        self._sql.execute("PRAGMA page_size = 8192")  # an object and its row in one page
        self._sql.execute("PRAGMA journal_mode = WAL")
        self._sql.execute("PRAGMA synchronous = OFF")
        self._sql.executescript(_SCHEMA)
        self.load_facts(cluster_id)

    def load_facts(self, cluster_id: str = "") -> None:
        """Read what is known of the whole, entering what a new file does not know."""
        self.cluster_id = self._fact("cluster_id", cluster_id or secrets.token_hex(16))
        self.compacted = int(self._fact("compacted", "0"))
        """Changes up to this resourceVersion cannot be watched any more."""
        self.rv = max(int(self._fact("rv", "1")), self._max_rv())
        """Highest resourceVersion ever given; 1 at first, as in etcd."""

    def _fact(self, name: str, default: str) -> str:
        self._sql.execute("INSERT OR IGNORE INTO fact VALUES (?, ?)", (name, default))
        row = self._sql.execute("SELECT value FROM fact WHERE name = ?", (name,)).fetchone()
        return str(row[0])

    def _max_rv(self) -> int:
        return int(self._sql.execute("SELECT coalesce(max(rv), 0) FROM change").fetchone()[0])

    def changes(self) -> Iterator[ChangeRow]:
        """All rows kept, by resourceVersion."""
        for row in self._sql.execute("SELECT * FROM change ORDER BY rv"):
            yield ChangeRow(*row)

    def live(self, resource: str) -> list[dict[str, Any]]:
        """The objects of one resource as they are now."""
        latest: dict[str, ChangeRow] = {}
        query = "SELECT * FROM change WHERE resource = ? ORDER BY rv"
        for values in self._sql.execute(query, (resource,)):
            row = ChangeRow(*values)
            latest[row.key] = row
        rows = [row for row in latest.values() if row.type != "DELETED"]
        return [msgspec.json.decode(row.body) for row in rows]

    def write(self, changes: Sequence[ChangeRow], accesses: Sequence[AccessRow]) -> None:
        """Store both in one transaction."""
        self._sql.execute("BEGIN")
        try:
            self._sql.executemany("INSERT INTO change VALUES (?, ?, ?, ?, ?, ?)", changes)
            self._sql.executemany(
                "INSERT INTO access VALUES (NULL, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", accesses
            )
        except BaseException:
            self._sql.execute("ROLLBACK")
            raise
        self._sql.execute("COMMIT")

    def compact(self, compacted: int, unreachable: Iterable[int], rv: int) -> None:
        """Forget the rows of these resourceVersions; history starts after `compacted`."""
        self._sql.execute("BEGIN")
        self._sql.executemany("DELETE FROM change WHERE rv = ?", ((n,) for n in unreachable))
        facts = (("compacted", str(compacted)), ("rv", str(rv)))
        self._sql.executemany("INSERT OR REPLACE INTO fact VALUES (?, ?)", facts)
        self._sql.execute(
            "DELETE FROM access WHERE number <= (SELECT max(number) FROM access) - ?",
            (LEDGER_ROWS_MAX,),
        )
        self._sql.execute("COMMIT")
        self.compacted = compacted

    def backup(self) -> "Database":
        """A copy in memory, as it is now."""
        copy = Database(None)
        self._sql.backup(copy._sql)
        copy.load_facts()
        return copy

    def close(self) -> None:
        """Close the file; everything written stays."""
        self._sql.close()


def read_ledger(path: Path) -> list[AccessRow]:
    """The access ledger of `DIR/apiserver.db`, in order; works while the server runs."""
    sql = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
    try:
        columns = ", ".join(AccessRow._fields)
        rows = sql.execute(f"SELECT {columns} FROM access ORDER BY number").fetchall()
    finally:
        sql.close()
    return [AccessRow(*row) for row in rows]
