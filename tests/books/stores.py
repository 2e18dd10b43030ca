"""Stores of the books in memory, with the failures that a database has."""

import hashlib

from kai_es.ports.books import Digest, Place
from kai_es.ports.errors import UnavailableError
from kai_es.ports.stores import CheckpointHead, DivergedError
from tests.books.tables import Tables


class MemoryUsage:
    """`BooksStore` of the usage projection.

    fail: list of moments at which the next commit fails: "before" = nothing is written, "after" =
    it is written but the answer is lost.
    """

    def __init__(self):
        self.books = Tables()
        self.at = Place(-1, 0)
        self.fail = []
        self.away = False
        self.n_commits = 0

    def _here(self):
        if self.away:
            raise UnavailableError("the database is away: test")

    async def place(self):
        self._here()
        return self.at

    async def stored(self):
        self._here()
        return self.books.stored()

    async def commit(self, rows, *, expected, to):
        self._here()
        fail = self.fail.pop(0) if self.fail else ""
        if fail == "before":
            raise UnavailableError("lost before the commit")
        if self.at.offset != expected:
            return False
        self.books.write(rows)
        self.at = to
        self.n_commits += 1
        if fail == "after":
            raise UnavailableError("lost after the commit")
        return True

    async def rewind(self, to):
        self.books.rewind(to.offset)
        self.at = to
        return 0

    async def digest(self):
        text = repr(sorted((n, sorted(t.items())) for n, t in self.books.tables.items()))
        return Digest(0, hashlib.sha256(text.encode()).hexdigest())


class MemoryCheckpoints:
    """`CheckpointStore`."""

    def __init__(self):
        self.kept = {}
        self.away = False

    def _here(self):
        if self.away:
            raise UnavailableError("the database is away: test")

    async def put(self, checkpoint):
        self._here()
        key = checkpoint.head.offset
        if self.kept.setdefault(key, checkpoint).head.digest != checkpoint.head.digest:
            raise DivergedError(f"checkpoint {key}")

    async def newest(self, at_most=None):
        self._here()
        offsets = [o for o in self.kept if at_most is None or o <= at_most]
        return self.kept[max(offsets)] if offsets else None

    async def heads(self):
        self._here()
        return [CheckpointHead(*self.kept[o].head) for o in sorted(self.kept)]
