"""A log as one file, and a file as a log: `log export`, for support, tests and rebuilds.

The file is a zstd stream of MessagePack: a header, then entries by topic and partition, each in its
order. With a checkpoint it also serves where the log no longer reaches back.
"""

from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Final

import msgspec
import zstandard

from kai_es.audit.errors import DamagedFileError, ExportError
from kai_es.events.catalogue import TOPICS
from kai_es.ports.errors import CorruptLogError, GoneError
from kai_es.ports.eventlog import Entry, Position, ReadableLog
from kai_es.ports.stores import CheckpointHead, DivergedError, StoredCheckpoint

FORMAT: Final = "kai-es log"
VERSION: Final = 1
CHUNK: Final = 2_000
"""Entries per chunk of a read, as in the other adapters."""

_WANT: Final = "is no exported log: want a whole file of `kai-es log export -o FILE`"
_BEGINNING: Final = 64
"""Bytes that hold the name of the format."""
_AGAIN: Final = "export it again, or take another copy"


class _Header(msgspec.Struct, frozen=True, kw_only=True, tag="header"):
    """begins: first position kept, ends: position after the last entry; by topic and partition."""

    format: str
    version: int
    begins: dict[str, dict[int, int]]
    ends: dict[str, dict[int, int]]


class _Checkpoint(msgspec.Struct, frozen=True, kw_only=True, tag="checkpoint"):
    offset: int
    version: int
    digest: str
    time_ms: int
    payload: bytes


class _Entry(msgspec.Struct, frozen=True, array_like=True, tag="e"):
    topic: str
    partition: int
    position: int
    key: str
    value: bytes | None


class _End(msgspec.Struct, frozen=True, kw_only=True, tag="end"):
    """Without it the file was cut off."""

    n_entries: int


_Item = _Header | _Checkpoint | _End
_encoder: Final = msgspec.msgpack.Encoder()
_items: Final = msgspec.msgpack.Decoder(_Item)
_entries: Final = msgspec.msgpack.Decoder(_Entry)


async def export_log(
    log: ReadableLog,
    path: Path,
    *,
    topics: Iterable[str] = TOPICS,
    checkpoints: Sequence[StoredCheckpoint] = (),
) -> int:
    """Write the present content of a log into a file.

    Args:
        log: to be read.
        path: replaced when the export is complete.
        topics: which of them.
        checkpoints: to be put into the file as well.

    Returns:
        Number of entries.
    """
    names = sorted(topics)
    begins = {name: _plain(await log.begin(name)) for name in names}
    ends = {name: _plain(await log.end(name)) for name in names}
    partial = path.with_name(path.name + ".partial")
    n_entries = 0
    with (
        partial.open("wb") as raw,
        zstandard.ZstdCompressor(level=3, write_checksum=True).stream_writer(raw) as out,
    ):
        _write(out, _Header(format=FORMAT, version=VERSION, begins=begins, ends=ends))
        for stored in checkpoints:
            _write(out, _Checkpoint(**stored.head._asdict(), payload=stored.payload))
        for name in names:
            for partition, begin in sorted(begins[name].items()):
                end = ends[name][partition]
                async for chunk in log.read(name, partition, Position(begin), follow=False):
                    for entry in chunk:
                        if entry.position < end:
                            _write(out, _Entry(name, partition, *entry))
                            n_entries += 1
        _write(out, _End(n_entries=n_entries))
    partial.replace(path)
    return n_entries


class ExportedLog:
    """An exported file as a `ReadableLog` and `CheckpointStore`. It is read whole.

    Raises (from the constructor):
        ExportError: no exported log, or the file cannot be read.
        DamagedFileError: it is one, and was cut off or changed.
    """

    def __init__(self, path: Path) -> None:
        self._entries: dict[tuple[str, int], list[Entry]] = {}
        self._checkpoints: list[StoredCheckpoint] = []
        n_entries, is_whole = 0, False
        try:
            with path.open("rb") as raw:
                if not _is_ours(raw):
                    raise ExportError(f"{path} {_WANT}")
                frames = _frames(zstandard.ZstdDecompressor().stream_reader(raw))
                self._header = _checked(_items.decode(next(frames, b"")), path)
                for frame in frames:
                    item = _decoded(frame)
                    match item:
                        case _Entry(topic, partition, position, key, value):
                            of_part = self._entries.setdefault((topic, partition), [])
                            of_part.append(Entry(Position(position), key, value))
                            n_entries += 1
                        case _Checkpoint():
                            self._checkpoints.append(_stored(item))
                        case _End():
                            is_whole = item.n_entries == n_entries
                        case _Header():
                            raise DamagedFileError(f"{path} is damaged: a second header; {_AGAIN}")
        except OSError as exc:
            raise ExportError(f"{path}: {exc.strerror}") from exc
        except (zstandard.ZstdError, msgspec.DecodeError) as exc:
            raise DamagedFileError(f"{path} is damaged: {exc}; {_AGAIN}") from exc
        if not is_whole:
            raise DamagedFileError(
                f"{path} is damaged: it was cut off after {n_entries} entries; {_AGAIN}"
            )

    async def read(
        self, topic: str, partition: int, start: Position, *, follow: bool
    ) -> AsyncIterator[Sequence[Entry]]:
        """See `ReadableLog`. A file does not grow: `follow` ends too."""
        del follow
        begin = (await self.begin(topic)).get(partition, Position(0))
        if start < begin:
            raise GoneError(f"{topic}/{partition}: {start} is asked for, the file has {begin} on")
        end = (await self.end(topic)).get(partition, Position(0))
        if start > end:
            raise CorruptLogError(f"{topic}/{partition}: {start} is beyond the file's end {end}")
        entries = [e for e in self._entries.get((topic, partition), ()) if e.position >= start]
        for first in range(0, len(entries), CHUNK):
            yield entries[first : first + CHUNK]

    async def begin(self, topic: str) -> Mapping[int, Position]:
        """See `ReadableLog`."""
        return _positions(self._header.begins, topic)

    async def end(self, topic: str) -> Mapping[int, Position]:
        """See `ReadableLog`."""
        return _positions(self._header.ends, topic)

    async def put(self, checkpoint: StoredCheckpoint) -> None:
        """See `CheckpointStore`. Kept in memory; the file does not change."""
        for known in self._checkpoints:
            if known.head[:2] == checkpoint.head[:2]:
                if known.head.digest != checkpoint.head.digest:
                    raise DivergedError(f"checkpoint {known.head.offset}: two digests")
                return
        self._checkpoints.append(checkpoint)

    async def newest(self, at_most: int | None = None) -> StoredCheckpoint | None:
        """See `CheckpointStore`."""
        fitting = [c for c in self._checkpoints if at_most is None or c.head.offset <= at_most]
        return max(fitting, key=lambda c: c.head[:2], default=None)

    async def heads(self) -> Sequence[CheckpointHead]:
        """See `CheckpointStore`."""
        return sorted(c.head for c in self._checkpoints)


def _plain(positions: Mapping[int, Position]) -> dict[int, int]:
    return {partition: int(position) for partition, position in positions.items()}


def _positions(of: Mapping[str, Mapping[int, int]], topic: str) -> Mapping[int, Position]:
    return {partition: Position(at) for partition, at in of.get(topic, {}).items()}


def _write(out: "zstandard.ZstdCompressionWriter", item: _Item | _Entry) -> None:
    data = _encoder.encode(item)
    out.write(len(data).to_bytes(4, "big"))
    out.write(data)


def _frames(source: "IO[bytes] | zstandard.ZstdDecompressionReader") -> Iterator[bytes]:
    while True:
        head = _exactly(source, 4)
        if len(head) < 4:
            return
        size = int.from_bytes(head, "big")
        frame = _exactly(source, size)
        if len(frame) < size:
            return
        yield frame


def _exactly(source: "IO[bytes] | zstandard.ZstdDecompressionReader", size: int) -> bytes:
    data = b""
    while len(data) < size:
        piece = source.read(size - len(data))
        if not piece:
            break
        data += piece
    return data


def _decoded(frame: bytes) -> _Item | _Entry:
    if not frame:
        raise msgspec.DecodeError("an entry without content")
    # Entries are arrays, everything else is a map: MessagePack tells by the first byte.
    is_array = frame[0] & 0xF0 == 0x90
    return _entries.decode(frame) if is_array else _items.decode(frame)


def _is_ours(raw: IO[bytes]) -> bool:
    """Whether a file begins as ours do, as far as can be told; read from its start again."""
    if raw.read(len(zstandard.FRAME_HEADER)) != zstandard.FRAME_HEADER:
        return False
    raw.seek(0)
    begin = zstandard.ZstdDecompressor().stream_reader(raw, closefd=False).read(_BEGINNING)
    raw.seek(0)
    return not begin or FORMAT.encode() in begin


def _checked(header: _Item, path: Path) -> _Header:
    if not isinstance(header, _Header) or header.format != FORMAT:
        raise DamagedFileError(f"{path} is damaged: its header; {_AGAIN}")
    if header.version > VERSION:
        raise ExportError(
            f"{path} has version {header.version}, this release reads up to {VERSION}: "
            "upgrade kai-es"
        )
    return header


def _stored(item: _Checkpoint) -> StoredCheckpoint:
    head = CheckpointHead(item.offset, item.version, item.digest, item.time_ms)
    return StoredCheckpoint(head, item.payload)
