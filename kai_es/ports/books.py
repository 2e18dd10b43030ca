"""The books: where projections of `snapshot` put their rows (architecture §3 last row, §6)."""

from typing import NamedTuple, Protocol, TypeVar

Rows_contra = TypeVar("Rows_contra", contravariant=True)
Stored_co = TypeVar("Stored_co", covariant=True)


class Place(NamedTuple):
    """How far a projection has come.

    offset: snapshot offset of the last batch folded, −1 before the first; time_ms: its time.
    state:  what a restart needs besides the rows and the log, opaque to the store.
    """

    offset: int
    time_ms: int
    state: bytes = b""


class Digest(NamedTuple):
    """All rows of a projection in one value, in whatever order they are stored."""

    n_rows: int
    digest: str


class BooksStore(Protocol[Rows_contra, Stored_co]):
    """The rows of one projection, exactly once.

    * `commit` writes rows and place in one transaction that begins with a compare-and-set of the
      offset. False = the projection is not at `expected` and nothing was written: another writer
      goes on, so read `place` and fold from there.
    * After an unknown outcome (UnavailableError) the same holds.

    Raises (everywhere): UnavailableError while the store is away, read-only or not migrated;
    DivergedError when stored rows are not those that the fold left there.
    """

    async def place(self) -> Place:
        """Where the projection stands."""
        ...

    async def stored(self) -> Stored_co:
        """The open rows that a fold takes up."""
        ...

    async def commit(self, rows: Rows_contra, *, expected: int, to: Place) -> bool:
        """Write rows, if the projection is at `expected`, and take it to `to`."""
        ...

    async def rewind(self, to: Place) -> int:
        """Take the projection back: as if nothing after `to` had been folded. Rows touched."""
        ...

    async def digest(self) -> Digest:
        """A value of all rows; equal folds give equal digests."""
        ...


class Rollup(Protocol):
    """Sums of usage by hour, day and month.

    Raises: UnavailableError while the store is away, or another roll-up came in between.
    """

    async def roll_up(self) -> bool:
        """Store the next buckets that the usage projection has passed; True = there are more."""
        ...
