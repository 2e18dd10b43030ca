"""Entries of the source topics to rows: one `Source` per partition that `snapshot` folds."""

from typing import Final, NamedTuple

from kai_es.events.catalogue import BIND_RESULTS, DECISIONS, OBJECTS, TOPICS
from kai_es.events.codec import decode, unpack
from kai_es.events.deadletter import DeadLetter
from kai_es.events.decisions import CycleChunk
from kai_es.events.envelope import NewerRecordError, PoisonError
from kai_es.events.snapshot import Parked, Row
from projectors.cycles import Assembler
from projectors.objects import rows_of, undecodable_row

Part = tuple[str, int]

SOURCES: Final[tuple[Part, ...]] = tuple(
    (topic, partition)
    for topic in sorted((BIND_RESULTS, DECISIONS, OBJECTS))
    for partition in range(TOPICS[topic].partitions)
)
"""Every source partition, in the order of a batch's cursors."""


class Unit(NamedTuple):
    """What of one partition must go into one batch together.

    part, stop: with it the batch covers the partition up to `stop`.
    rows:  (row, position of its record, ingest time in ms).
    n_bytes: of the source records; no row is larger than its record.
    dead:  letters that must be durable before the batch.
    """

    part: Part
    stop: int
    rows: tuple[tuple[Row, int, int], ...]
    n_bytes: int
    dead: tuple[DeadLetter, ...] = ()


class Source:
    """Folds the entries of one source partition, in their order.

    Raises (from `fold`):
        PoisonError: a record that must not be parked cannot be decoded: the stream stops.
    """

    def __init__(self, part: Part) -> None:
        self.part = part
        self._assembler = Assembler()
        self._rows: list[tuple[Row, int, int]] = []
        self._n_bytes = 0

    def fold(self, position: int, key: str, value: bytes | None) -> Unit | None:
        """The unit that an entry completes; None = the unit goes on in the next entries."""
        topic, partition = self.part
        source = f"{topic}/{partition}/{position}"
        if value is None:
            raise PoisonError(f"{source}: a tombstone does not belong here")
        if topic == OBJECTS:
            return self._fold_object(position, key, value, source)
        try:
            envelope = decode(value)
            record = unpack(envelope)
            row = self._assembler.add(record) if isinstance(record, CycleChunk) else record
        except PoisonError as exc:
            raise PoisonError(f"{source} (key {key!r}): {exc}") from exc
        if row is not None:
            self._rows.append((row, position, envelope.ingest_time))
        self._n_bytes += len(value)
        if not self._assembler.is_whole:
            return None
        unit = Unit(self.part, position + 1, tuple(self._rows), self._n_bytes)
        self._rows, self._n_bytes = [], 0
        return unit

    def _fold_object(self, position: int, key: str, value: bytes, source: str) -> Unit:
        try:
            envelope = decode(value)
            rows = rows_of(
                unpack(envelope),
                partition=self.part[1],
                event_ms=envelope.event_time,
                source=source,
            )
            ingest_ms = envelope.ingest_time
        except NewerRecordError as exc:
            raise NewerRecordError(f"{source} (key {key!r}): {exc}") from exc
        except PoisonError as exc:
            rows, ingest_ms = (undecodable_row(key, value, error=str(exc), source=source),), 0
        return Unit(
            self.part,
            position + 1,
            tuple((row, position, ingest_ms) for row in rows),
            len(value),
            tuple(
                self._letter(row, position, key, value) for row in rows if isinstance(row, Parked)
            ),
        )

    def _letter(self, row: Parked, position: int, key: str, value: bytes) -> DeadLetter:
        topic, partition = self.part
        return DeadLetter(
            topic=topic,
            partition=partition,
            position=position,
            key=key,
            kind=row.kind,
            uid=row.uid,
            namespace=row.namespace,
            name=row.name,
            rv=row.rv,
            incarnation=row.incarnation,
            error=row.error,
            value=value,
        )
