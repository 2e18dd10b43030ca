"""The wrapper around every record of the log (architecture §2, envelope)."""

from typing import Final

import msgspec

NO_CAUSES: Final[tuple[str, ...]] = ()


class PoisonError(ValueError):
    """A record that cannot be decoded, or that only a newer reader understands.

    Of `objects` its version is parked; of every other topic the reader stops.
    """


class NewerRecordError(PoisonError):
    """A record with a `min_reader` above ours: whatever its topic, the reader stops."""


class Envelope(msgspec.Struct, frozen=True, kw_only=True):
    """One record.

    schema:      name of the record type in the catalogue, a stable word, never an import path.
    version:     of that schema, as written.
    min_reader:  oldest reader (`events.codec.READER`) that may act on it; a newer number stops.
    id:          deterministic, see architecture §2.
    event_time:  when the fact happened, ms; ingest_time: when it was appended, ms.
    producer:    who wrote it, e.g. `informer/host-1`.
    causes:      ids of the records that this one follows from.
    data:        the encoded record; `events.codec.unpack` turns it into its type.
    """

    schema: str
    version: int
    min_reader: int = 1
    id: str
    event_time: int
    ingest_time: int
    producer: str
    causes: tuple[str, ...] = NO_CAUSES
    data: msgspec.Raw
