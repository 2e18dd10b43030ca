"""One projection of `snapshot`: its fold and its store, and how far each has come."""

import asyncio
from collections.abc import Callable
from typing import Any, Final, Generic, Protocol, TypeVar

from kai_es.events.snapshot import Batch
from kai_es.ports.books import BooksStore, Digest, Place
from kai_es.ports.clock import Clock
from kai_es.ports.errors import UnavailableError
from kai_es.snapshot.world import World
from projectors.history import History, HistoryRows
from projectors.history import Runs as OpenRuns
from projectors.runs import Moment
from projectors.usage import Stored, Usage, UsageRows

ROWS_MAX: Final = 2_000
"""Rows of one commit, about: a batch is never split."""

WAIT_MS: Final = 200
"""Changes wait this long at most for others to share their commit."""

IDLE_MS: Final = 1_000
"""The place alone, with no row changed, is written this often."""

BACKOFF_FIRST_S: Final = 0.1
BACKOFF_MAX_S: Final = 10.0

Rows = TypeVar("Rows")
Rows_co = TypeVar("Rows_co", covariant=True)
StoredT = TypeVar("StoredT")


class Fold(Protocol[Rows_co]):
    """What `projectors` provides."""

    def fold(self, offset: int, batch: Batch) -> None:
        """Fold an accepted batch."""

    def take(self) -> Rows_co:
        """The changes since the last call."""

    def n_changes(self) -> int:
        """About how many rows `take` would return."""


class MovedError(Exception):
    """Another writer of this projection went on, or its rows are not what was left there."""


class Projection(Generic[Rows, StoredT]):
    """Keeps one projection's rows.

    place:   what is committed.
    trouble: why nothing is committed, "" = it is.

    Args:
        name: of the projection.
        store: where the rows are.
        restore: (world at a place, place, stored open rows) -> the fold that goes on from there.
        clock: for waiting.
    """

    def __init__(
        self,
        name: str,
        store: BooksStore[Rows, StoredT],
        restore: Callable[[World, Place, StoredT], Fold[Rows]],
        clock: Clock,
    ) -> None:
        self.name = name
        self.place = Place(-1, 0)
        self.trouble = ""
        self.n_commits = self.n_retries = self.n_moved = 0
        self._store = store
        self._restore = restore
        self._clock = clock
        self._fold: Fold[Rows] | None = None
        self._sent = self._folded = self.place
        self._waits_since_s = 0.0
        self._writing: asyncio.Task[None] | None = None

    @property
    def is_live(self) -> bool:
        """Whether the fold has been restored, so that batches go into it."""
        return self._fold is not None

    async def open(self) -> int:
        """Read the place; the fold must be restored there before it goes on."""
        self._fold = None
        self.place = self._sent = self._folded = await self._store.place()
        return self.place.offset

    async def restore(self, world: World) -> None:
        """Take up the fold. `world` is at `place`."""
        assert world.offset == self.place.offset, f"{self.name}: {world.offset} is not the place"
        stored = await self._store.stored()
        if await self._store.place() != self.place:
            raise MovedError(f"{self.name}: another writer went on; the books are opened anew")
        self._fold = self._restore(world, self.place, stored)
        self._waits_since_s = self._clock.monotonic_s()

    def fold(self, offset: int, batch: Batch) -> None:
        """Fold an accepted batch."""
        assert self._fold is not None, f"{self.name} is not restored"
        if self._folded is self._sent:
            self._waits_since_s = self._clock.monotonic_s()
        self._fold.fold(offset, batch)
        self._folded = Place(offset, batch.time)

    def is_due(self) -> bool:
        """Whether what is folded should be committed now."""
        if self._fold is None or self._folded is self._sent:
            return False
        n_changes = self._fold.n_changes()
        if n_changes >= ROWS_MAX:
            return True
        wait_ms = WAIT_MS if n_changes else IDLE_MS
        return (self._clock.monotonic_s() - self._waits_since_s) * 1000 >= wait_ms

    async def flush(self) -> None:
        """Begin to commit what is folded, after the commit before has ended.

        Raises:
            MovedError: the rows taken are of no use; open and restore again.
        """
        await self.settled()
        if self._fold is None or self._folded is self._sent:
            return
        rows, expected, to = self._fold.take(), self._sent.offset, self._folded
        self._sent = to
        self._writing = asyncio.ensure_future(self._commit(rows, expected, to))

    async def settled(self) -> None:
        """Wait for the commit under way.

        Raises:
            MovedError: as above.
        """
        if self._writing is not None:
            writing, self._writing = self._writing, None
            await writing

    async def abandon(self) -> None:
        """Stop trying; what is not committed will be folded again."""
        if self._writing is not None:
            writing, self._writing = self._writing, None
            writing.cancel()
            await asyncio.gather(writing, return_exceptions=True)
        self._fold = None
        self.trouble = ""

    async def rewind(self, to: Place) -> int:
        """Take the stored rows back to a place; open and restore before folding. Rows touched."""
        await self.abandon()
        return await self._store.rewind(to)

    async def digest(self) -> Digest:
        """A value of all stored rows."""
        return await self._store.digest()

    async def _commit(self, rows: Rows, expected: int, to: Place) -> None:
        """Commit, however long the store is away. An outcome that is not known is read back."""
        backoff_s = BACKOFF_FIRST_S
        while True:
            try:
                if not await self._store.commit(rows, expected=expected, to=to):
                    stands = await self._store.place()
                    if stands.offset != to.offset:
                        self.n_moved += 1
                        raise MovedError(
                            f"{self.name}: another writer went on (it stands at {stands.offset}, "
                            f"not at {expected}); the books are opened anew"
                        )
            except UnavailableError as exc:
                self.trouble = str(exc)
                self.n_retries += 1
                await self._clock.sleep(backoff_s)
                backoff_s = min(backoff_s * 2, BACKOFF_MAX_S)
                continue
            self.trouble, self.place = "", to
            self.n_commits += 1
            return


AnyProjection = Projection[Any, Any]


def usage_projection(
    store: BooksStore[UsageRows, Stored], clock: Clock
) -> Projection[UsageRows, Stored]:
    """The projection `usage`."""
    return Projection("usage", store, _restored_usage, clock)


def history_projection(
    store: BooksStore[HistoryRows, OpenRuns], clock: Clock
) -> Projection[HistoryRows, OpenRuns]:
    """The projection `history`."""
    return Projection("history", store, _restored_history, clock)


def _restored_usage(world: World, place: Place, stored: Stored) -> Usage:
    usage = Usage()
    if place.offset >= 0:
        usage.restore(
            world.objects,
            alive={part: row.time for part, row in world.liveness.alive.items()},
            at=Moment(place.time_ms, place.offset),
            stored=stored,
        )
    return usage


def _restored_history(world: World, place: Place, stored: OpenRuns) -> History:
    history = History()
    if place.offset >= 0:
        history.restore(world.objects, time_ms=place.time_ms, runs=stored)
    return history
