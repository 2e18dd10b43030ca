"""Where a reader starts: the nearest checkpoint, or the beginning of `snapshot`."""

from kai_es.events.catalogue import SNAPSHOT
from kai_es.ports.errors import UnavailableError
from kai_es.ports.eventlog import Position, ReadableLog
from kai_es.ports.stores import CheckpointHead, CheckpointStore, StoredCheckpoint
from kai_es.reader.records import head_of
from kai_es.snapshot import checkpoint
from kai_es.snapshot.world import World


class HistoryGoneError(Exception):
    """The log no longer reaches back to its beginning and no checkpoint covers what is missing."""


async def nearest_world(
    log: ReadableLog, checkpoints: CheckpointStore | None, *, at_most: int | None = None
) -> World:
    """The newest state to start from that lies at or before an offset.

    While the store is away, the beginning of the log does as well, only slower.

    Args:
        log: whose `snapshot` will be followed from there.
        checkpoints: None = there are none.
        at_most: highest offset of interest, None = any.

    Raises:
        HistoryGoneError: there is no such state.
        UnavailableError: the store is away and the log does not reach back: try again.
        checkpoint.CheckpointError: the checkpoint cannot be read and the log does not reach back.
    """
    trouble: Exception | None = None
    if checkpoints is not None:
        try:
            stored = await checkpoints.newest(at_most)
            if stored is not None:
                return checkpoint.decode(stored.payload)
        except (UnavailableError, checkpoint.CheckpointError) as exc:
            trouble = exc
    if await reaches_back(log):
        return World()
    if trouble is not None:
        raise trouble
    where = "" if at_most is None else f" at or before offset {at_most}"
    raise HistoryGoneError(
        f"{SNAPSHOT} no longer begins with its first batch, and there is no checkpoint{where}"
    )


async def reaches_back(log: ReadableLog) -> bool:
    """Whether `snapshot` still has its first batch (or none at all)."""
    begin = (await log.begin(SNAPSHOT))[0]
    async for chunk in log.read(SNAPSHOT, 0, Position(begin), follow=False):
        return head_of(chunk[0]).head.prev == -1
    return int(begin) == 0


def stored(world: World) -> StoredCheckpoint:
    """A world as a checkpoint to be put into a store."""
    encoded = checkpoint.encode(world)
    head = CheckpointHead(world.offset, checkpoint.VERSION, encoded.digest, world.time)
    return StoredCheckpoint(head, encoded.payload)
