"""Units of all sources to batches of `snapshot`: what goes into one, and how it joins the last."""

import hashlib
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from kai_es.events.catalogue import SNAPSHOT
from kai_es.events.codec import pack
from kai_es.events.decisions import Cycle
from kai_es.events.digest import as_given, plain
from kai_es.events.envelope import Envelope
from kai_es.events.snapshot import Batch, Cursor, Origin
from projectors.sources import SOURCES, Part, Unit

BATCH_ROWS_MAX: Final = 2_000
BATCH_BYTES_MAX: Final = 4 * 1024 * 1024
"""A batch is cut at either (architecture §2). One unit alone may be larger: a cycle is whole."""

BUFFER_ROWS_MAX: Final = 4 * BATCH_ROWS_MAX
BUFFER_BYTES_MAX: Final = 4 * BATCH_BYTES_MAX
"""Read ahead while a batch is on its way; more would only cost memory."""

_encoder: Final = msgspec.msgpack.Encoder(order="deterministic")
_SOURCE_INDEX: Final = {part: index for index, part in enumerate(SOURCES)}


class Buffer:
    """Units in the order in which they were read."""

    def __init__(self) -> None:
        self._units: deque[Unit] = deque()
        self.n_rows = 0
        self.n_bytes = 0

    def add(self, unit: Unit) -> None:
        """Put a unit at the end."""
        self._units.append(unit)
        self.n_rows += len(unit.rows)
        self.n_bytes += unit.n_bytes

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to write."""
        return not self._units

    @property
    def fills_batch(self) -> bool:
        """Whether waiting for more would change nothing."""
        return self.n_rows >= BATCH_ROWS_MAX or self.n_bytes >= BATCH_BYTES_MAX

    @property
    def is_full(self) -> bool:
        """Whether readers must wait."""
        return self.n_rows >= BUFFER_ROWS_MAX or self.n_bytes >= BUFFER_BYTES_MAX

    def oldest_ms(self) -> int:
        """Ingest time of the first row, 0 = there is none."""
        return next((ms for unit in self._units for _, _, ms in unit.rows), 0)

    def take(self) -> list[Unit]:
        """The units of the next batch: at least one, otherwise within the limits."""
        taken: list[Unit] = []
        n_rows = n_bytes = 0
        while self._units:
            unit = self._units[0]
            n_rows += len(unit.rows)
            n_bytes += unit.n_bytes
            if taken and (n_rows > BATCH_ROWS_MAX or n_bytes > BATCH_BYTES_MAX):
                break
            taken.append(self._units.popleft())
            self.n_rows -= len(unit.rows)
            self.n_bytes -= unit.n_bytes
        return taken


def batch_of(units: Sequence[Unit], *, prev: int, time: int, cursors: Mapping[Part, int]) -> Batch:
    """One batch of these units.

    Args:
        units: of each partition in its order.
        prev: offset of the accepted batch that it continues.
        time: its time, ms, not below that of `prev`.
        cursors: next position of every source partition, as of `prev`.
    """
    stop = dict(cursors)
    for unit in units:
        assert unit.stop > stop[unit.part], f"{unit.part} goes back to {unit.stop}"
        stop[unit.part] = unit.stop
    rows = []
    origins = []
    for unit in units:
        source = _SOURCE_INDEX[unit.part]
        for row, position, ingest_ms in unit.rows:
            rows.append(row)
            origins.append(Origin(source, position, ingest_ms))
    return Batch(
        prev=prev,
        time=time,
        cursors=tuple(Cursor(*part, cursors[part], stop[part]) for part in SOURCES),
        rows=tuple(rows),
        origins=tuple(origins),
    )


def batch_id(batch: Batch) -> str:
    """Deterministic id: what it continues, and a digest of its rows."""
    return _id(batch, [_encoder.encode(row) for row in batch.rows])


def recorded_id(batch: Batch, data: bytes) -> str:
    """The id that a batch had when it was written, maybe by an earlier release.

    Args:
        batch: as this release reads it.
        data: its record. Later fields change the bytes of a row even where they are not set, so
            they are taken as they were written.
    """
    rows = _recorded.decode(data).rows
    return _id(batch, [bytes(row) for row in rows])


class _Recorded(msgspec.Struct, frozen=True):
    """What of a batch its id is about."""

    rows: list[msgspec.Raw] = []


_recorded: Final = msgspec.msgpack.Decoder(_Recorded)


def _id(batch: Batch, encoded: Sequence[bytes]) -> str:
    """Of the rows as a list, cycles in the form that later fields do not change."""
    sha = hashlib.sha256(_encoder.encode([None] * len(encoded))[: -len(encoded) or None])
    for row, written in zip(batch.rows, encoded, strict=True):  # None is one byte
        sha.update(as_given.encode(plain(row)) if isinstance(row, Cycle) else written)
    return f"{batch.prev}/{sha.hexdigest()[:32]}"


def batch_envelope(batch: Batch, *, ingest_ms: int, producer: str) -> Envelope:
    """The record of `snapshot` that holds a batch."""
    return pack(
        batch,
        topic=SNAPSHOT,
        record_id=batch_id(batch),
        event_time=batch.time,
        ingest_time=ingest_ms,
        producer=producer,
    )
