"""Chunks of `decisions` to whole cycles."""

from typing import Final

import msgspec

from kai_es.events.decisions import Cycle, CycleChunk
from kai_es.events.envelope import PoisonError

CHUNK_BYTES: Final = 512 * 1024
"""Size of one chunk, far below what brokers take by default."""

CYCLE_BYTES_MAX: Final = 8 * 1024 * 1024
"""A cycle is one row of one batch, and a batch with it must stay below 16 MiB."""

_OPEN_MAX: Final = 64
"""Cycles in pieces at one time: one per shard of the partition; more means broken writers."""

_encoder: Final = msgspec.msgpack.Encoder(order="deterministic")
_decoder: Final = msgspec.msgpack.Decoder(Cycle)

_Key = tuple[str, int, int]


def encode_cycle(cycle: Cycle) -> bytes:
    """The bytes that are cut into chunks."""
    return _encoder.encode(cycle)


def chunks_of(cycle: Cycle) -> list[CycleChunk]:
    """A cycle in numbered pieces.

    Raises:
        AssertionError: it is larger than `CYCLE_BYTES_MAX`; the decision should have been cut.
    """
    data = encode_cycle(cycle)
    assert len(data) <= CYCLE_BYTES_MAX, f"cycle {cycle.cycle} has {len(data)} bytes"
    pieces = [data[i : i + CHUNK_BYTES] for i in range(0, len(data), CHUNK_BYTES)]
    return [
        CycleChunk(
            shard=cycle.shard,
            epoch=cycle.epoch,
            cycle=cycle.cycle,
            n=n,
            n_chunks=len(pieces),
            data=piece,
        )
        for n, piece in enumerate(pieces)
    ]


class Assembler:
    """Puts the chunks of one partition together again.

    Transactions of several shards may lie between each other, so several cycles can be open.
    """

    def __init__(self) -> None:
        self._open: dict[_Key, list[CycleChunk]] = {}

    @property
    def is_whole(self) -> bool:
        """Whether no cycle is open, so that a cursor may stand here."""
        return not self._open

    def add(self, chunk: CycleChunk) -> Cycle | None:
        """Take the next chunk; returns the cycle that it completes.

        Raises:
            PoisonError: a chunk out of order, or no cycle in the bytes.
        """
        key = (chunk.shard, chunk.epoch, chunk.cycle)
        chunks = self._open.setdefault(key, [])
        if chunk.n != len(chunks) or (chunks and chunk.n_chunks != chunks[0].n_chunks):
            raise PoisonError(
                f"cycle {chunk.shard}/{chunk.cycle}: chunk {chunk.n} of {chunk.n_chunks} follows "
                f"{len(chunks)} chunks"
            )
        chunks.append(chunk)
        if len(self._open) > _OPEN_MAX:
            raise PoisonError(f"{len(self._open)} cycles in pieces, none of them whole")
        if len(chunks) < chunk.n_chunks:
            return None
        del self._open[key]
        try:
            cycle = _decoder.decode(b"".join(piece.data for piece in chunks))
        except msgspec.DecodeError as exc:
            raise PoisonError(f"cycle {chunk.shard}/{chunk.cycle}: {exc}") from exc
        if (cycle.shard, cycle.epoch, cycle.cycle) != key:
            raise PoisonError(f"chunks of {key} hold cycle {cycle.shard}/{cycle.cycle}")
        return cycle
