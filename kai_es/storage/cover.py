"""How a stretch of time is answered: from the largest stored buckets that fit, the rest live."""

import datetime
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from kai_es.storage.rollup import after, floor

_LEVELS: Final = ("month", "day", "hour")


class Piece(NamedTuple):
    """A part of the stretch. `level` None = compute it from intervals."""

    level: str | None
    lo: datetime.datetime
    hi: datetime.datetime


def cover(
    lo: datetime.datetime,
    hi: datetime.datetime,
    *,
    stored: Mapping[str, datetime.datetime | None],
    cut: str | None,
) -> Iterator[Piece]:
    """Pieces in order of time that together are [lo, hi).

    Args:
        lo: start.
        hi: end.
        stored: level -> every bucket that ends there or earlier is stored; None = no bucket is.
        cut: level that the answer is cut into; larger stored buckets are of no use, and a live
            piece never reaches over its bounds.
    """
    usable = _LEVELS[_LEVELS.index(cut) :] if cut else _LEVELS
    for piece in _cover(lo, hi, stored, usable):
        if piece.level is None and cut:
            yield from _cut(piece, cut)
        else:
            yield piece


def _cover(
    lo: datetime.datetime,
    hi: datetime.datetime,
    stored: Mapping[str, datetime.datetime | None],
    levels: tuple[str, ...],
) -> Iterator[Piece]:
    if lo >= hi:
        return
    if not levels:
        yield Piece(None, lo, hi)
        return
    level, finer = levels[0], levels[1:]
    start = floor(lo, level)
    first = start if start == lo else after(start, level)
    watermark = stored[level]
    last = floor(min(hi, watermark), level) if watermark is not None else first
    if first >= last:
        yield from _cover(lo, hi, stored, finer)
        return
    yield from _cover(lo, first, stored, finer)
    yield Piece(level, first, last)
    yield from _cover(last, hi, stored, finer)


def _cut(piece: Piece, level: str) -> Iterator[Piece]:
    lo = piece.lo
    while lo < piece.hi:
        hi = min(after(floor(lo, level), level), piece.hi)
        yield Piece(None, lo, hi)
        lo = hi
