"""Rolling a world forward over the log as it is now."""

from collections.abc import AsyncIterator

from kai_es.events.catalogue import SNAPSHOT
from kai_es.events.snapshot import Batch
from kai_es.ports.eventlog import ReadableLog
from kai_es.reader.records import read_batches
from kai_es.snapshot.errors import BrokenHistoryError
from kai_es.snapshot.world import Applied, Missed, World


async def roll(
    log: ReadableLog, world: World, *, until: int | None = None
) -> AsyncIterator[tuple[int, Batch, Applied]]:
    """Fold accepted batches into `world`, yielding each after it is folded.

    Args:
        log: read to its present end.
        world: where to start.
        until: last offset to fold, None = the end.

    Raises:
        BrokenHistoryError: the log contradicts itself, or lacks what comes after `world`.
        PoisonError: a batch cannot be decoded.
        GoneError: the log no longer has what comes after `world`.
    """
    async for offset, batch in read_batches(log, start=world.offset + 1):
        if until is not None and offset > until:
            return
        outcome = world.apply(offset, batch)
        if isinstance(outcome, Missed):
            raise BrokenHistoryError(
                f"{SNAPSHOT} {offset} continues {batch.prev}, but the last accepted batch is "
                f"{world.offset}"
            )
        if isinstance(outcome, Applied):
            yield offset, batch, outcome
