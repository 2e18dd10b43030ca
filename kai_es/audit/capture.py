"""One cycle as a self-contained file: what it saw, what it was given, what it decided.

The file replays anywhere, without a log or a database, and makes a test case:

    def test_cycle():
        assert check_capture(Path("cycle.kai").read_bytes()).difference == ""
"""

from typing import Final

import msgspec
import zstandard

from kai_es.audit.cycles import Recorded
from kai_es.audit.errors import DamagedFileError
from kai_es.audit.replay import Change, Replayed, decided_again
from kai_es.cycle.turn import Decide
from kai_es.events.decisions import Cycle
from kai_es.ports.eventlog import ReadableLog
from kai_es.ports.stores import CheckpointStore
from kai_es.reader.restore import nearest_world
from kai_es.reader.roll import roll
from kai_es.scheduler import decide as real_decide
from kai_es.snapshot import checkpoint
from kai_es.snapshot.world import World

FORMAT: Final = "kai-es capture"
VERSION: Final = 1
_WANT: Final = (
    "want a file of `kai-es capture --cycle N -o FILE` "
    "(one of `kai-es log export` is replayed by `kai-es replay --all --log FILE`)"
)
_AGAIN: Final = "capture the cycle again, or take another copy"
_BEGINNING: Final = 64
"""Bytes that hold the name of the format, which comes first."""


class CaptureError(ValueError):
    """A file that is no capture, or of a newer release; or a cycle that cannot be captured."""


class Capture(msgspec.Struct, frozen=True, kw_only=True):
    """What is in the file.

    world: checkpoint of what the cycle saw, configuration included.
    cycle: as recorded; its inputs and the decision.
    """

    format: str
    version: int
    world: bytes
    cycle: Cycle


_encoder: Final = msgspec.msgpack.Encoder(order="deterministic")
_decoder: Final = msgspec.msgpack.Decoder(Capture)


async def capture(
    log: ReadableLog, recorded: Recorded, *, checkpoints: CheckpointStore | None = None
) -> bytes:
    """The file of one cycle.

    Args:
        log: that holds the cycle and what it saw.
        recorded: from `recorded_cycles`.
        checkpoints: where to start from, None = only from the beginning.

    Raises:
        HistoryGoneError: what the cycle saw is no longer in the log.
        CaptureError: the log ends before it.
    """
    offset = recorded.cycle.offset
    world = await nearest_world(log, checkpoints, at_most=offset)
    async for _ in roll(log, world, until=offset):
        pass
    if world.offset != offset:
        raise CaptureError(f"the log ends at offset {world.offset}, the cycle saw {offset}")
    return encode_capture(world, recorded.cycle)


def encode_capture(world: World, cycle: Cycle) -> bytes:
    """The file of a cycle and the world that it saw."""
    content = Capture(
        format=FORMAT, version=VERSION, world=checkpoint.encode(world).payload, cycle=cycle
    )
    return zstandard.ZstdCompressor(write_checksum=True).compress(_encoder.encode(content))


def decode_capture(data: bytes) -> tuple[World, Cycle]:
    """What is in the file.

    Raises:
        CaptureError: it is no capture, or a newer release wrote it.
        DamagedFileError: it is one, and was cut off or changed.
    """
    if not data.startswith(zstandard.FRAME_HEADER):
        raise CaptureError(f"not a capture: {_WANT}")
    raw = b""
    try:
        raw = zstandard.ZstdDecompressor().decompress(data)
        content = _decoder.decode(raw)
    except zstandard.ZstdError as exc:
        raise DamagedFileError(f"damaged: {exc}; {_AGAIN}") from exc
    except msgspec.DecodeError as exc:
        if FORMAT.encode() in raw[:_BEGINNING]:
            raise DamagedFileError(f"damaged: {exc}; {_AGAIN}") from exc
        raise CaptureError(f"not a capture: {_WANT}") from exc
    if content.format != FORMAT:
        raise CaptureError(f"not a capture but {content.format!r}: {_WANT}")
    if content.version > VERSION:
        raise CaptureError(
            f"capture of version {content.version}, this release reads up to {VERSION}: "
            "upgrade kai-es"
        )
    try:
        return checkpoint.decode(content.world), content.cycle
    except checkpoint.CheckpointError as exc:
        raise DamagedFileError(f"the world in the capture: {exc}") from exc


def check_capture(
    data: bytes, *, decide: Decide = real_decide, change: Change | None = None
) -> Replayed:
    """Decide the captured cycle again.

    Raises:
        CaptureError, DamagedFileError: see `decode_capture`.
    """
    world, cycle = decode_capture(data)
    return decided_again(world, cycle, decide=decide, change=change)
