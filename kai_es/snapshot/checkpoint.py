"""The whole state of a `World` as rows, bytes and a digest, and back.

A checkpoint holds typed rows, upcast on read, so every release reads the old ones. Equal states
give equal rows, bytes and digests, whatever the order in which the log said it.
"""

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, Final, NamedTuple

import msgspec
import zstandard

from kai_es.events.digest import as_given, plain
from kai_es.events.snapshot import AliveSeen, KindListed, Parked, ParkingEnded
from kai_es.kube.objects import kind_of
from kai_es.snapshot.lifecycle import Request
from kai_es.snapshot.pools import Move
from kai_es.snapshot.ranking import Live, Tombstone
from kai_es.snapshot.reigns import Introduced, Shard
from kai_es.snapshot.rows import (
    BackoffRow,
    EarlyRow,
    LogRow,
    ReasonsRow,
    StateRow,
    TombstoneRow,
    encoder,
)
from kai_es.snapshot.standing import Backoff, Mark
from kai_es.snapshot.world import World

VERSION: Final = 2
"""Of the rows. A change of meaning raises it and adds an upcaster. 2: rows as plain maps, so that
new fields do not change the bytes, and so the digests, of rows that leave them out."""

Upcaster = Callable[[list[dict[str, Any]]], list[dict[str, Any]]]

UPCASTERS: Final[Mapping[int, Upcaster]] = MappingProxyType({1: lambda rows: rows})
"""Version v -> function from the rows (builtins) of v to those of v + 1."""

_LEVEL: Final = 3
"""Of zstd: 50,000 pods take a tenth of a second; higher levels save little."""


class CheckpointError(ValueError):
    """A checkpoint that cannot be read: damaged, or written by a newer release."""


class _Document(msgspec.Struct, frozen=True, kw_only=True):
    version: int
    digest: str
    rows: msgspec.Raw


class Encoded(NamedTuple):
    """A checkpoint as bytes, and the digest of its state."""

    digest: str
    payload: bytes


def rows_of(world: World) -> Iterator[StateRow]:
    """The state as rows, in one fixed order. They are the world's own: encode, do not keep."""
    chain = world.chain
    yield LogRow(
        offset=chain.offset,
        time=chain.time,
        incarnation=world.liveness.incarnation,
        risen=world.liveness.risen,
        cursors=tuple((*part, position) for part, position in sorted(chain.cursors.items())),
    )
    for _, entries in sorted(world.objects.live.items()):
        yield from _by_key(entries)
    for kind, tombstones in sorted(world.objects.tombstones.items()):
        for uid, stone in sorted(tombstones.items()):
            yield TombstoneRow(
                kind=kind,
                uid=uid,
                rv=stone.rv,
                incarnation=stone.incarnation,
                time_ms=stone.time_ms,
            )
    yield from _by_key(world.parking.entries)
    yield from world.requests.all()
    for request_id, outcome in sorted(world.requests.early.items()):
        yield EarlyRow(request_id=request_id, outcome=outcome)
    yield from _by_key(world.standings.marks)
    for uid, backoffs in sorted(world.standings.backoff.items()):
        for code, entry in sorted(backoffs.items()):
            yield BackoffRow(
                group_uid=uid, code=code, cycles=entry.cycles, not_before_ms=entry.not_before_ms
            )
    yield from _by_key(world.reigns.shards)
    for shard, reasons in sorted(world.reigns.reasons.items()):
        for uid, introduced in sorted(reasons.items()):
            yield ReasonsRow(
                shard=shard, group_uid=uid, cycle=introduced.cycle, reasons=introduced.reasons
            )
    yield from _by_key(world.pools.moves)
    yield from _by_key(world.liveness.listed)
    yield from _by_key(world.liveness.alive)


def world_of(rows: Iterable[StateRow]) -> World:
    """The world whose rows these are. Takes them over."""
    world = World()
    for row in rows:
        _restore(world, row)
    world.show_all()
    return world


def digest(world: World) -> str:
    """Hex SHA-256 of the state."""
    return _digest(as_given.encode(plain(row)) for row in rows_of(world))


def encode(world: World) -> Encoded:
    """The state as a compressed checkpoint."""
    encoded = [as_given.encode(plain(row)) for row in rows_of(world)]
    found = _digest(encoded)
    document = _Document(version=VERSION, digest=found, rows=msgspec.Raw(_array(encoded)))
    raw = encoder.encode(document)
    return Encoded(found, zstandard.ZstdCompressor(level=_LEVEL).compress(raw))


def decode(payload: bytes) -> World:
    """The world of a checkpoint.

    Raises:
        CheckpointError: the bytes are damaged, or a newer release wrote them.
    """
    return world_of(decode_rows(payload))


def decode_rows(payload: bytes) -> list[StateRow]:
    """The rows of a checkpoint, of whatever version, as this release knows them.

    Raises:
        CheckpointError: the bytes are damaged, or a newer release wrote them.
    """
    try:
        document = _documents.decode(zstandard.ZstdDecompressor().decompress(payload))
        if document.version > VERSION:
            raise CheckpointError(
                f"checkpoint of version {document.version}, this release reads up to {VERSION}: "
                "upgrade kai-es"
            )
        rows = bytes(document.rows)
        found = hashlib.sha256(rows[_ARRAY_HEADER:]).hexdigest()
        if found != document.digest:
            raise CheckpointError(f"digest is {found}, written was {document.digest}")
        if document.version == VERSION:
            return _row_lists.decode(rows)
        builtins = msgspec.msgpack.decode(rows)
        for version in range(document.version, VERSION):
            builtins = UPCASTERS[version](builtins)
        return msgspec.convert(builtins, list[StateRow])
    except (zstandard.ZstdError, msgspec.DecodeError) as exc:
        raise CheckpointError(f"not a checkpoint: {exc}") from exc


def _by_key(rows: Mapping[Any, Any]) -> Iterator[Any]:
    return (rows[key] for key in sorted(rows))


def _digest(encoded: Iterable[bytes]) -> str:
    sha = hashlib.sha256()
    for row in encoded:
        sha.update(row)
    return sha.hexdigest()


_ARRAY_HEADER: Final = 5
"""Bytes of MessagePack's `array 32` header; what follows is what the digest is over."""


def _array(encoded: list[bytes]) -> bytes:
    """One MessagePack array of encoded elements."""
    return b"\xdd" + len(encoded).to_bytes(_ARRAY_HEADER - 1, "big") + b"".join(encoded)


_documents: Final = msgspec.msgpack.Decoder(_Document)
_row_lists: Final = msgspec.msgpack.Decoder(list[StateRow])


def _restore(world: World, row: StateRow) -> None:  # noqa: C901, PLR0912 – one line per type
    match row:
        case LogRow():
            world.chain.offset, world.chain.time = row.offset, row.time
            world.chain.cursors = {(topic, part): at for topic, part, at in row.cursors}
            world.liveness.incarnation, world.liveness.risen = row.incarnation, row.risen
        case Live():
            world.objects.live.setdefault(kind_of(row.obj), {})[row.obj.uid] = row
        case TombstoneRow():
            stone = Tombstone(rv=row.rv, incarnation=row.incarnation, time_ms=row.time_ms)
            world.objects.tombstones.setdefault(row.kind, {})[row.uid] = stone
        case Parked() | ParkingEnded():
            world.parking.entries[row.kind, row.uid] = row
        case Request():
            world.requests.add(row)
        case EarlyRow():
            world.requests.early[row.request_id] = row.outcome
        case Mark():
            world.standings.marks[row.mark.group_uid] = row
        case BackoffRow():
            entry = Backoff(cycles=row.cycles, not_before_ms=row.not_before_ms)
            world.standings.backoff.setdefault(row.group_uid, {})[row.code] = entry
        case Shard():
            world.reigns.shards[row.name] = row
            world.reigns.reasons[row.name] = {}
        case ReasonsRow():
            world.reigns.reasons[row.shard][row.group_uid] = Introduced(row.cycle, row.reasons)
        case Move():
            world.pools.moves[row.kind, row.uid] = row
        case KindListed():
            world.liveness.fold_listed(row)
        case AliveSeen():
            world.liveness.fold_alive(row)
