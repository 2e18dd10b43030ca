"""Rewinds a projection and folds it again: `kai-es rebuild`."""

from typing import NamedTuple

from kai_es.events.catalogue import SNAPSHOT
from kai_es.ports.books import Place
from kai_es.ports.clock import Clock
from kai_es.ports.eventlog import EventLog
from kai_es.ports.stores import CheckpointStore
from kai_es.reader import nearest_world, read_batches
from kai_es.reader.restore import HistoryGoneError, reaches_back
from streams.books import Books
from streams.local import LocalRunner
from streams.projection import AnyProjection
from streams.rollup import RollUps


class Rebuilt(NamedTuple):
    """What a rebuild left.

    start:  offset after which everything was folded again, −1 = all of it.
    n_rows: rows the projection has now; digest: of all of them.
    """

    start: int
    n_rows: int
    digest: str


async def rebuild(
    log: EventLog,
    checkpoints: CheckpointStore,
    projection: AnyProjection,
    clock: Clock,
    *,
    start: int = -1,
    rollups: RollUps | None = None,
) -> Rebuilt:
    """Fold everything after an offset again; the same log gives the same rows.

    A part that keeps the same projection meanwhile goes on from wherever this has come.

    Args:
        log: whose `snapshot` is folded.
        checkpoints: where the state at `start` comes from.
        projection: what is rebuilt.
        clock: for waiting.
        start: snapshot offset; the last accepted batch at or before it stays. −1 = none does.
        rollups: of usage, to be computed anew where rows changed.

    Raises:
        HistoryGoneError: the log and the checkpoints do not reach back so far. Nothing was changed.
        UnavailableError: log or store away.
    """
    to = await _place(log, checkpoints, start)
    await projection.rewind(to)
    books = Books(log, clock, projections=(projection,), checkpoints=checkpoints, rollups=rollups)
    await LocalRunner(log, books, clock).catch_up()
    found = await projection.digest()
    return Rebuilt(to.offset, found.n_rows, found.digest)


async def _place(log: EventLog, checkpoints: CheckpointStore, start: int) -> Place:
    """The last accepted batch at or before an offset."""
    if start < 0:
        if not await reaches_back(log):
            raise HistoryGoneError(
                f"{SNAPSHOT} no longer begins with its first batch, so books that begin with it "
                "cannot be rebuilt: name a checkpoint with --from OFFSET"
            )
        return Place(-1, 0)
    world = await nearest_world(log, checkpoints, at_most=start)
    async for offset, batch in read_batches(log, start=world.offset + 1):
        if offset > start:
            break
        world.apply(offset, batch)
    return Place(world.offset, world.time)
