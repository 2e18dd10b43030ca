"""Rows of one kind by uid, and which of them a name means."""

from collections.abc import Hashable, Iterator
from typing import Generic, Protocol, TypeVar


class _Named(Protocol):
    @property
    def rv(self) -> int: ...

    @property
    def name(self) -> Hashable: ...


RowT = TypeVar("RowT", bound=_Named)


class Table(Generic[RowT]):
    """Rows by uid, and which of them a name means: the live uid with the highest rv.

    Two live uids of one name occur while the delete of the older one is still on its way. At equal
    rv (they cannot be compared then) the greater uid wins, so that arrival order does not matter.
    """

    def __init__(self) -> None:
        self.rows: dict[str, RowT] = {}
        self._uids: dict[Hashable, tuple[str, ...]] = {}

    def put(self, uid: str, row: RowT) -> RowT | None:
        """Store a row; returns the one it replaces."""
        old = self.rows.get(uid)
        if old is not None and old.name != row.name:
            self._unlink(uid, old.name)
        self.rows[uid] = row
        uids = self._uids.get(row.name, ())
        if uid not in uids:
            self._uids[row.name] = (*uids, uid)
        return old

    def pop(self, uid: str) -> RowT | None:
        """Drop a row; returns it, None if it was not there."""
        old = self.rows.pop(uid, None)
        if old is not None:
            self._unlink(uid, old.name)
        return old

    def get(self, name: Hashable) -> RowT | None:
        """The row that a name means."""
        uids = self._uids.get(name)
        if uids is None:
            return None
        if len(uids) == 1:
            return self.rows[uids[0]]
        return self.rows[max(uids, key=lambda uid: (self.rows[uid].rv, uid))]

    def uids(self, name: Hashable) -> tuple[str, ...]:
        """Live uids of a name, nearly always one."""
        return self._uids.get(name, ())

    def live(self) -> Iterator[RowT]:
        """The row that each name means, in no particular order."""
        for name in self._uids:
            row = self.get(name)
            assert row is not None
            yield row

    def _unlink(self, uid: str, name: Hashable) -> None:
        rest = tuple(other for other in self._uids[name] if other != uid)
        if rest:
            self._uids[name] = rest
        else:
            del self._uids[name]
