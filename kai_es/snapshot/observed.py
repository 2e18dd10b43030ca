"""When something was observed: the log's clock, also across gaps (architecture §6)."""

from typing import Final

import msgspec

GAP_MS: Final = 5_000
"""Two accepted batches further apart are a gap: nobody wrote, but the cluster went on."""


class Since(msgspec.Struct, frozen=True, array_like=True):
    """Since when something holds: time in ms, and the snapshot offset that showed it."""

    time_ms: int
    offset: int


def observed_ms(*, prev_time: int, time: int, ingest_ms: int) -> int:
    """The time at which a row counts: its batch's, inside a gap its own within the gap.

    Args:
        prev_time: time of the batch before, 0 = there was none (no gap then).
        time: time of the row's batch.
        ingest_ms: when the row's record was appended to its source.
    """
    if prev_time == 0 or time - prev_time <= GAP_MS:
        return time
    return min(max(ingest_ms, prev_time), time)
