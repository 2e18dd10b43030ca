"""When a checkpoint is due, and up to where checkpoints allow the log to be trimmed."""

from collections.abc import Sequence
from typing import Final, NamedTuple

ROWS_MAX: Final = 50_000
"""A restart folds that many rows in a few seconds."""

EVERY_MS: Final = 5 * 60 * 1000

REPLAY_HORIZON_MS: Final = 7 * 24 * 3600 * 1000
"""How far back cycles can be replayed; the log is kept that long at least."""


class Cadence:
    """Counts what was folded since the last checkpoint."""

    def __init__(self, *, rows_max: int = ROWS_MAX, every_ms: int = EVERY_MS) -> None:
        self._rows_max = rows_max
        self._every_ms = every_ms
        self._n_rows = 0
        self._since_ms = 0

    def folded(self, *, time_ms: int, n_rows: int) -> None:
        """A batch was folded."""
        self._since_ms = self._since_ms or time_ms
        self._n_rows += n_rows

    def is_due(self, time_ms: int) -> bool:
        """Whether enough was folded, or enough time went by with anything folded."""
        if not self._n_rows:
            return False
        return self._n_rows >= self._rows_max or time_ms - self._since_ms >= self._every_ms

    def taken(self, time_ms: int) -> None:
        """A checkpoint was taken."""
        self._n_rows, self._since_ms = 0, time_ms


class Mark(NamedTuple):
    """Offset and time of a checkpoint."""

    offset: int
    time_ms: int


class Trim(NamedTuple):
    """A trim that may be done once it is proven.

    base:  the log is needed only behind this checkpoint.
    proof: folding from `base` must give the digest of this one.
    """

    base: Mark
    proof: Mark


def trim_of(
    checkpoints: Sequence[Mark], *, begin: int, now_ms: int, needed: int, horizon_ms: int
) -> Trim | None:
    """The furthest trim that the replay horizon allows; None = nothing to trim.

    Args:
        checkpoints: by rising offset.
        begin: first offset that the log still has.
        now_ms: the log's time.
        needed: lowest offset that a projection still stands at.
        horizon_ms: what is younger stays.
    """
    bases = [
        n
        for n, mark in enumerate(checkpoints[:-1])
        if mark.time_ms <= now_ms - horizon_ms and begin <= mark.offset <= needed
    ]
    return Trim(checkpoints[bases[-1]], checkpoints[bases[-1] + 1]) if bases else None
