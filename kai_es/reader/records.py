"""Records of `snapshot`, decoded."""

from collections.abc import AsyncIterator
from typing import Final, NamedTuple

import msgspec

from kai_es.events.catalogue import SCHEMAS, SNAPSHOT
from kai_es.events.codec import decode, unpack
from kai_es.events.envelope import PoisonError
from kai_es.events.snapshot import Batch, BatchHead
from kai_es.ports.eventlog import Entry, Position, ReadableLog

_BATCH: Final = SCHEMAS["batch"]
_heads: Final = msgspec.msgpack.Decoder(BatchHead)


class HeadRecord(NamedTuple):
    """A batch without its rows. `id` tells its writer whether it is its own."""

    offset: int
    id: str
    head: BatchHead


async def read_batches(log: ReadableLog, *, start: int) -> AsyncIterator[tuple[int, Batch]]:
    """Batches from offset `start` to the present end, whether or not they are accepted.

    Raises:
        PoisonError: a record that this release cannot decode.
    """
    async for chunk in log.read(SNAPSHOT, 0, Position(start), follow=False):
        for entry in chunk:
            yield int(entry.position), batch_of(entry)


def batch_of(entry: Entry) -> Batch:
    """The batch in an entry.

    Raises:
        PoisonError: it cannot be decoded.
    """
    try:
        batch = unpack(decode(_value(entry)))
    except PoisonError as exc:
        raise PoisonError(f"{SNAPSHOT} {entry.position}: {exc}") from exc
    if not isinstance(batch, Batch):
        raise PoisonError(f"{SNAPSHOT} {entry.position}: not a batch")
    return batch


def head_of(entry: Entry) -> HeadRecord:
    """Head and id of an entry's batch, without decoding its rows.

    Raises:
        PoisonError: it cannot be decoded.
    """
    try:
        envelope = decode(_value(entry))
        if envelope.version < _BATCH.version:
            batch = unpack(envelope)
            head = BatchHead(prev=batch.prev, time=batch.time, cursors=batch.cursors)
        else:
            head = _heads.decode(envelope.data)
    except (PoisonError, msgspec.DecodeError) as exc:
        raise PoisonError(f"{SNAPSHOT} {entry.position}: {exc}") from exc
    return HeadRecord(int(entry.position), envelope.id, head)


def _value(entry: Entry) -> bytes:
    if entry.value is None:
        raise PoisonError(f"{SNAPSHOT} {entry.position}: a tombstone does not belong here")
    return entry.value
