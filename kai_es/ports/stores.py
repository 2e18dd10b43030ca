"""Where checkpoints are kept and where decayed usage comes from."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol


class DivergedError(Exception):
    """Two folds of the same log disagree: an alarm, a person must look.

    Raised when a checkpoint is put whose digest differs from the stored one of the same key.
    """


class CheckpointHead(NamedTuple):
    """What a checkpoint is of.

    offset: snapshot offset of the last batch folded into it; (offset, version) is the key.
    version: schema version of its rows (`kai_es.snapshot.checkpoint.VERSION` when written).
    digest: hex SHA-256 of the state.
    time_ms: time of that batch.
    """

    offset: int
    version: int
    digest: str
    time_ms: int


class StoredCheckpoint(NamedTuple):
    """A checkpoint as bytes; `kai_es.snapshot.checkpoint.decode` opens the payload."""

    head: CheckpointHead
    payload: bytes


class CheckpointStore(Protocol):
    """Checkpoints of the snapshot stream, insert only.

    Raises (everywhere): UnavailableError while the store is away.
    """

    async def put(self, checkpoint: StoredCheckpoint) -> None:
        """Insert. The same key with the same digest again is no change.

        Raises:
            DivergedError: the key is there with another digest; nothing was changed.
        """
        ...

    async def newest(self, at_most: int | None = None) -> StoredCheckpoint | None:
        """The checkpoint with the highest offset, not above `at_most`; None = there is none."""
        ...

    async def heads(self) -> Sequence[CheckpointHead]:
        """All checkpoints without their payload, by rising offset."""
        ...


class DecayedUsage(NamedTuple):
    """Normalised decayed usage, the input `usage` of a cycle.

    by_queue: queue name -> resource (cpu | memory | gpu) -> 0..1.
    as_of:    snapshot offset up to which the books are folded, as_of_ms: time of that batch. Usage
              is as old as the older of this and of the time it was fetched.
    """

    by_queue: Mapping[str, Mapping[str, float]]
    as_of: int
    as_of_ms: int = 0


class Window(NamedTuple):
    """What a usage query sums over (reference fairness.md §9.5).

    start_ms: of the window; it ends now.
    half_life_ms: age at which use counts half, None = no decay.
    """

    start_ms: int
    half_life_ms: int | None = None


class UsageStore(Protocol):
    """Decayed usage per queue for time-based fair share (architecture §6).

    Raises: UnavailableError while the store is away; the scheduler then goes on with the last
    values and marks them stale.
    """

    async def decayed(self, *, shard: str, now_ms: int) -> DecayedUsage:
        """Usage of every queue of a shard, decayed to `now_ms`."""
        ...
