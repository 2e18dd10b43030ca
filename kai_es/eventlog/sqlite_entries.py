"""Reading and writing the entries of a log file. Every function works on one connection.

Those that write are works for `LogFile.write`.
"""

import struct
import zlib
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from kai_es.eventlog.batch import Coded
from kai_es.eventlog.sqlite_file import POSITION_BITS, POSITION_MASK, LogFile, Part
from kai_es.ports.errors import CorruptLogError, FencedError, GoneError
from kai_es.ports.eventlog import Entry, Position

CHUNK_ROWS: Final = 2_000
CHUNK_BYTES: Final = 8 * 1024 * 1024
"""A chunk ends after either; one entry may reach 16 MiB."""

TOMBSTONE_MS: Final = 24 * 3600 * 1000
"""How long a deleted key leaves a trace: Kafka's `delete.retention.ms`."""

_EPOCH: Final = "SELECT epoch FROM writer WHERE producer_id = ?"
_FETCH_ROWS: Final = 250
_EXPIRE_ROWS: Final = 5_000  # per partition and pass, a few milliseconds of the write lock


class Chunk(NamedTuple):
    """Entries read, and the partition's next position at that moment."""

    entries: list[Entry]
    next: int


class Extent(NamedTuple):
    """What of a partition can be read: positions [begin, end)."""

    begin: int
    end: int


class Appended(NamedTuple):
    """Positions in the order of the records, and the next position by partition number."""

    positions: list[Position]
    nexts: Mapping[int, int]


def checksum(*, row: int, at: int, key: bytes, value: bytes | None) -> int:
    """CRC-32 over everything a row holds."""
    head = zlib.crc32(key, zlib.crc32(struct.pack(">qq?", row, at, value is None)))
    return head if value is None else zlib.crc32(value, head)


def take_over(file: LogFile, producer_id: str) -> int:
    """The producer's next epoch."""
    file.db.execute(
        "INSERT INTO writer VALUES (?, 1) ON CONFLICT DO UPDATE SET epoch = epoch + 1",
        (producer_id,),
    )
    if file.plan.active:
        file.db.execute("DELETE FROM held WHERE producer_id = ?", (producer_id,))
    (number,) = file.db.execute(_EPOCH, (producer_id,)).fetchone()
    return int(number)


def check_epoch(file: LogFile, producer_id: str, number: int) -> None:
    """Raise FencedError unless it is the newest."""
    row = file.db.execute(_EPOCH, (producer_id,)).fetchone()
    if row != (number,):
        newest = None if row is None else row[0]
        raise FencedError(f"{producer_id}: epoch {number} is over, {newest} reigns")


def append(
    file: LogFile, records: Sequence[Coded], *, at_ms: int, producer_id: str = ""
) -> Appended:
    """Store the records; those of one producer's transaction may be held back."""
    parts = {(r.topic, r.partition): file.parts[r.topic, r.partition] for r in records}
    nexts = {part.tp: _bounds(file, part)[1] for part in parts.values()}
    if file.plan.active and producer_id:
        _hold(file, nexts, at_ms=at_ms, producer_id=producer_id)
    rows: list[tuple[int, str, bytes | None, int, int]] = []
    for record in records:
        part = parts[record.topic, record.partition]
        position = nexts[part.tp] + file.plan.gap()
        nexts[part.tp] = position + 1
        row = part.base | position
        crc = checksum(row=row, at=at_ms, key=record.key.encode(), value=record.value)
        rows.append((row, record.key, record.value, at_ms, crc))
    file.db.executemany("INSERT INTO entry VALUES (?, ?, ?, ?, ?)", rows)
    compacted = {part.tp for part in parts.values() if file.topics[part.topic].compacted}
    if compacted:
        _compact(file, [(row >> POSITION_BITS, key, row) for row, key, *_ in rows], compacted)
    for tp in nexts:
        nexts[tp] += file.plan.gap()
    file.db.executemany(
        "UPDATE part SET next = ? WHERE tp = ?", [(after, tp) for tp, after in nexts.items()]
    )
    return Appended([Position(row[0] & POSITION_MASK) for row in rows], nexts)


def _compact(file: LogFile, rows: Sequence[tuple[int, str, int]], tps: set[int]) -> None:
    """Keep only the last entry per key. What is held back leaves its predecessor in place."""
    former = "DELETE FROM entry WHERE id = (SELECT id FROM latest WHERE tp = ? AND key = ?)" + (
        " AND NOT EXISTS (SELECT 1 FROM held WHERE tp = entry.id >> 40)" * file.plan.active
    )
    for tp, key, row in rows:
        if tp in tps:
            file.db.execute(former, (tp, key))
            file.db.execute("INSERT OR REPLACE INTO latest VALUES (?, ?, ?)", (tp, key, row))


def _hold(file: LogFile, nexts: Mapping[int, int], *, at_ms: int, producer_id: str) -> None:
    file.db.execute("DELETE FROM held WHERE until <= ?", (at_ms,))
    file.db.executemany(
        "INSERT INTO held VALUES (?, ?, ?, ?)",
        [
            (tp, nexts[tp], at_ms + delay, producer_id)
            for tp, delay in file.plan.delays_ms(list(nexts)).items()
        ],
    )


def trim(file: LogFile, part: Part, before: int, *, now_ms: int) -> None:
    """Delete entries below `before`, at most up to the end."""
    extent = _extent(file, part, now_ms)
    before = min(before, extent.end)
    if before > extent.begin:
        file.db.execute(
            "DELETE FROM entry WHERE id >= ? AND id < ?",
            (part.base + extent.begin, part.base + before),
        )
        file.db.execute("UPDATE part SET begin = ? WHERE tp = ?", (before, part.tp))


def expire(file: LogFile, *, now_ms: int) -> int:
    """Delete what is older than its topic keeps, a bounded part of it.

    Returns:
        How many entries went; more may be left when it is not 0.
    """
    gone = 0
    for part in file.parts.values():
        topic = file.topics.get(part.topic)
        if topic is not None and topic.compacted:
            gone += _expire_tombstones(file, part, now_ms - TOMBSTONE_MS)
        elif topic is not None and topic.retention_ms >= 0:
            gone += _expire_entries(file, part, now_ms, now_ms - topic.retention_ms)
    return gone


def _expire_entries(file: LogFile, part: Part, now_ms: int, cutoff_ms: int) -> int:
    before = old = 0
    for row, at in file.db.execute(
        "SELECT id, at FROM entry WHERE id >= ? AND id < ? ORDER BY id LIMIT ?",
        (part.base, part.base + POSITION_MASK, _EXPIRE_ROWS),
    ):
        if at >= cutoff_ms:
            break
        before, old = (row & POSITION_MASK) + 1, old + 1
    if old:
        trim(file, part, before, now_ms=now_ms)
    return old


def _expire_tombstones(file: LogFile, part: Part, cutoff_ms: int) -> int:
    rows = file.db.execute(
        "SELECT id, key FROM entry WHERE value IS NULL AND id >= ? AND id < ? AND at < ? "
        "ORDER BY id LIMIT ?",
        (part.base, part.base + POSITION_MASK, cutoff_ms, _EXPIRE_ROWS),
    ).fetchall()
    file.db.executemany("DELETE FROM entry WHERE id = ?", [(row,) for row, _ in rows])
    file.db.executemany(
        "DELETE FROM latest WHERE tp = ? AND key = ? AND id = ?",
        [(part.tp, key.decode(), row) for row, key in rows],
    )
    return len(rows)


def read(file: LogFile, part: Part, start: int, stop: int | None, *, now_ms: int) -> Chunk:
    """Visible entries of [start, stop), as many as a chunk holds.

    Raises:
        GoneError: entries from `start` on are no longer kept.
        CorruptLogError: a row fails its checksum, or `start` was never written.
    """
    name = f"{part.topic}/{part.partition}"
    with file.view(f"read {name} from position {start} in"):
        begin, after = _bounds(file, part)
        if start < begin:
            raise GoneError(
                f"{file.path}: {name} is asked for from position {start} on, but entries below "
                f"{begin} are no longer kept"
            )
        if start > after:
            raise CorruptLogError(
                f"{file.path}: {name} ends at {after}, position {start} was never written; was "
                f"the file restored from an older copy?"
            )
        horizon = _horizon(file, part, after, now_ms)
        stop = horizon if stop is None else min(stop, horizon)
        return Chunk(_entries(file, part, start, stop), after)


def _entries(file: LogFile, part: Part, start: int, stop: int) -> list[Entry]:
    """A chunk. One that meets a bad row ends before it; the next one stops there."""
    cursor = file.db.execute(
        "SELECT id, key, value, at, crc FROM entry WHERE id >= ? AND id < ? ORDER BY id",
        (part.base + start, part.base + stop),
    )
    entries: list[Entry] = []
    size = 0
    while len(entries) < CHUNK_ROWS and size < CHUNK_BYTES:
        rows = cursor.fetchmany(_FETCH_ROWS)
        for row, key, value, at, crc in rows:
            position = row & POSITION_MASK
            if checksum(row=row, at=at, key=key, value=value) != crc:
                if entries:
                    return entries
                raise CorruptLogError(
                    f"{file.path}: {part.topic}/{part.partition} position {position} fails its "
                    f"checksum; restore the file from a backup"
                )
            entries.append(Entry(Position(position), key.decode(), value))
            size += 0 if value is None else len(value)
        if len(rows) < _FETCH_ROWS:
            break
    return entries


def extents(file: LogFile, topic: str, *, now_ms: int) -> dict[int, Extent]:
    """What of each partition can be read, all at one moment."""
    with file.view("read"):
        return {
            number: _extent(file, file.parts[topic, number], now_ms)
            for number in range(file.topics[topic].partitions)
        }


def nexts(file: LogFile) -> dict[int, int]:
    """The next position by partition number."""
    with file.view("read"):
        return dict(file.db.execute("SELECT tp, next FROM part").fetchall())


def _extent(file: LogFile, part: Part, now_ms: int) -> Extent:
    begin, after = _bounds(file, part)
    (last,) = file.db.execute(
        "SELECT max(id) FROM entry WHERE id >= ? AND id < ?",
        (part.base + begin, part.base + _horizon(file, part, after, now_ms)),
    ).fetchone()
    return Extent(begin, begin if last is None else (last & POSITION_MASK) + 1)


def _bounds(file: LogFile, part: Part) -> tuple[int, int]:
    begin, after = file.db.execute(
        "SELECT begin, next FROM part WHERE tp = ?", (part.tp,)
    ).fetchone()
    return begin, after


def _horizon(file: LogFile, part: Part, after: int, now_ms: int) -> int:
    if not file.plan.active:
        return after
    (held,) = file.db.execute(
        "SELECT min(position) FROM held WHERE tp = ? AND until > ?", (part.tp, now_ms)
    ).fetchone()
    return after if held is None else int(held)
