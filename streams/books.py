"""The books: one fold of `snapshot` that feeds every projection, exactly once.

Whoever reads the log (the local runner, a Faust worker) hands in what it reads and is told where to
read. The projections' places are in their stores, together with their rows; the state that a fold
needs comes from the nearest checkpoint, and from the log from there on.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Final

from kai_es.events.catalogue import SNAPSHOT
from kai_es.events.snapshot import Batch
from kai_es.ports.clock import Clock
from kai_es.ports.eventlog import Entry, EventLog, Position
from kai_es.ports.stores import CheckpointStore, DivergedError
from kai_es.reader import nearest_world
from kai_es.reader.records import batch_of
from kai_es.snapshot.world import Applied, Missed, World
from streams.checkpointer import Checkpointer
from streams.projection import AnyProjection
from streams.rollup import RollUps

OPENS: Final = "opens the books: finds out where they stand"
"""What whoever feeds them says until `open` has returned."""


class Books:
    """Feeds projections and takes checkpoints.

    world: state at the last batch folded.

    Args:
        log: for its beginning, and to be trimmed.
        clock: for waiting.
        projections: what to keep.
        checkpoints: where folds start from.
        checkpointer: takes checkpoints; None = somebody else does.
        rollups: of usage; None = somebody else does.
        prepare: makes the stores usable (migrates them); called until it once succeeds.
    """

    def __init__(
        self,
        log: EventLog,
        clock: Clock,
        *,
        projections: Sequence[AnyProjection],
        checkpoints: CheckpointStore,
        checkpointer: Checkpointer | None = None,
        rollups: RollUps | None = None,
        prepare: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        self.world = World()
        self.projections = tuple(projections)
        self.checkpointer = checkpointer
        self.rollups = rollups
        self._prepare = prepare
        self._log = log
        self._clock = clock
        self._checkpoints = checkpoints

    async def open(self) -> int:
        """Find out where everything stands; the offset to read from.

        Whoever had the books last, and left them committed, goes on with the world that it has.

        Raises:
            UnavailableError: a store or the log is away: try again.
            DivergedError: a store is of another log, as far as can be told.
            HistoryGoneError: the log no longer has what comes next, and no checkpoint covers it.
        """
        if self._prepare is not None:
            await self._prepare()
            self._prepare = None
        places = [await projection.open() for projection in self.projections]
        if not await self._is_here(places):
            at_most = min(places) if places else None
            self.world = await nearest_world(self._log, self._checkpoints, at_most=at_most)
            if self.checkpointer is not None:
                self.checkpointer.opened(self.world)
        self._check_reached(int((await self._log.end(SNAPSHOT))[0]))
        await self._restore()
        return self.world.offset + 1

    def read(self, start: int) -> AsyncIterator[Sequence[Entry]]:
        """What the log has of `snapshot` from an offset on, see `ReadableLog.read`."""
        return self._log.read(SNAPSHOT, 0, Position(start), follow=False)

    async def feed(self, entry: Entry) -> int | None:
        """Fold one record of `snapshot`. Returns the offset to read from if one was missed.

        Raises:
            MovedError: another writer went on: open again.
            PoisonError, BrokenHistoryError: the log cannot be read on.
        """
        batch = batch_of(entry)
        match self.world.apply(int(entry.position), batch):
            case Applied(offset=offset):
                await self._applied(offset, batch)
            case Missed(resume=resume):
                return resume
        return None

    async def idle(self) -> None:
        """Nothing to read: commit what has waited long enough.

        Raises:
            MovedError: as above.
        """
        for projection in self.projections:
            if projection.is_due():
                await projection.flush()
        if self.checkpointer is not None:
            await self.checkpointer.idle(self.world, needed=self._needed())
        if self.rollups is not None:
            await self.rollups.idle()

    async def settle(self) -> None:
        """Commit everything folded so far, and wait for it.

        Raises:
            MovedError: as above.
        """
        for projection in self.projections:
            await projection.flush()
        for projection in self.projections:
            await projection.settled()
        if self.rollups is not None:
            await self.rollups.idle()
            await self.rollups.finish()

    async def abandon(self) -> None:
        """Drop what is not committed, stop what runs beside."""
        for projection in self.projections:
            await projection.abandon()
        if self.checkpointer is not None:
            await self.checkpointer.close()
        if self.rollups is not None:
            await self.rollups.close()

    def trouble(self) -> str:
        """Why something is not committed, taken or rolled up, "" = nothing is wrong."""
        troubles = [projection.trouble for projection in self.projections]
        if self.checkpointer is not None:
            troubles.append(self.checkpointer.trouble)
        if self.rollups is not None:
            troubles.append(self.rollups.trouble)
        return next((trouble for trouble in troubles if trouble), "")

    async def _is_here(self, places: Sequence[int]) -> bool:
        """Whether the world is what would be found: nobody has gone on since it was folded."""
        if self.world.offset < 0:
            return False
        if not places:
            heads = await self._checkpoints.heads()
            return all(head.offset <= self.world.offset for head in heads)
        return all(place == self.world.offset for place in places)

    def _check_reached(self, end: int) -> None:
        places = [(projection.name, projection.place.offset) for projection in self.projections]
        for name, offset in (*places, ("the checkpoint to start from", self.world.offset)):
            if end <= offset:
                raise DivergedError(
                    f"{name} stands at offset {offset} but the log ends at {end}: this database "
                    "belongs to another log (--database, --kafka, --prefix), or the log lost its "
                    "end"
                )

    async def _applied(self, offset: int, batch: Batch) -> None:
        for projection in self.projections:
            if projection.is_live:
                projection.fold(offset, batch)
                if projection.is_due():
                    await projection.flush()
        await self._restore()
        if self.checkpointer is not None:
            await self.checkpointer.applied(self.world, batch)

    async def _restore(self) -> None:
        """Take up the folds whose place the world has reached."""
        for projection in self.projections:
            if projection.is_live or projection.place.offset > self.world.offset:
                continue
            if projection.place.offset < self.world.offset:
                raise DivergedError(
                    f"{projection.name} stands at offset {projection.place.offset}, which is no "
                    "accepted batch of this log: the database belongs to another one "
                    "(--database, --kafka, --prefix)"
                )
            await projection.restore(self.world)

    def _needed(self) -> int:
        """Lowest offset that a projection stands at."""
        places = [projection.place.offset for projection in self.projections]
        return min(places, default=self.world.offset)
