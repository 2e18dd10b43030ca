"""Records to bytes and back.

JSON for `objects` and `objects.index`, readable with a console consumer; MessagePack elsewhere. The
reader tells the two apart by the first byte: a JSON object opens with `{`, a MessagePack map never.
Encoding is deterministic: equal records give equal bytes.
"""

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from kai_es.events.catalogue import OBJECTS, OBJECTS_INDEX, SCHEMAS, Schema
from kai_es.events.envelope import NO_CAUSES, Envelope, NewerRecordError, PoisonError

READER: Final = 1
"""Generation of this reader: a record with a higher `min_reader` stops it."""

_JSON_TOPICS: Final = frozenset({OBJECTS, OBJECTS_INDEX})

_json_encoder: Final = msgspec.json.Encoder(order="deterministic")
_pack_encoder: Final = msgspec.msgpack.Encoder(order="deterministic")
_json_envelope: Final = msgspec.json.Decoder(Envelope)
_pack_envelope: Final = msgspec.msgpack.Decoder(Envelope)
_json_data: Final = {name: msgspec.json.Decoder(s.type) for name, s in SCHEMAS.items()}
_pack_data: Final = {name: msgspec.msgpack.Decoder(s.type) for name, s in SCHEMAS.items()}


def pack(
    record: msgspec.Struct,
    *,
    topic: str,
    record_id: str,
    event_time: int,
    ingest_time: int,
    producer: str,
    causes: Sequence[str] = NO_CAUSES,
) -> Envelope:
    """Wrap a record of the catalogue for a topic. Times in ms since the epoch."""
    schema = SCHEMAS[str(record.__struct_config__.tag)]
    assert topic in schema.topics, f"{schema.name} does not belong into {topic}"
    encoder = _json_encoder if topic in _JSON_TOPICS else _pack_encoder
    return Envelope(
        schema=schema.name,
        version=schema.version,
        min_reader=schema.min_reader,
        id=record_id,
        event_time=event_time,
        ingest_time=ingest_time,
        producer=producer,
        causes=tuple(causes),
        data=msgspec.Raw(encoder.encode(record)),
    )


def encode(envelope: Envelope, topic: str) -> bytes:
    """The bytes of a packed record. `topic` is the one it was packed for."""
    return (_json_encoder if topic in _JSON_TOPICS else _pack_encoder).encode(envelope)


def decode(value: bytes) -> Envelope:
    """The envelope of stored bytes; its data stays encoded until `unpack`.

    Raises:
        PoisonError: no envelope.
        NewerRecordError: only a newer reader may act on it.
    """
    decoder = _json_envelope if value[:1] == b"{" else _pack_envelope
    try:
        envelope = decoder.decode(value)
    except msgspec.DecodeError as exc:
        raise PoisonError(f"not a record envelope: {exc}") from exc
    if envelope.min_reader > READER:
        raise NewerRecordError(
            f"record {envelope.id} ({envelope.schema} v{envelope.version}) needs reader "
            f"{envelope.min_reader}, this is reader {READER}: upgrade kai-es"
        )
    return envelope


def unpack(envelope: Envelope) -> Any:
    """The record in an envelope, old versions upcast to the present one.

    Raises:
        PoisonError: unknown schema, or data that is not of its type.
    """
    schema = SCHEMAS.get(envelope.schema)
    if schema is None:
        raise PoisonError(f"record {envelope.id} has unknown schema {envelope.schema!r}")
    data = bytes(envelope.data)
    is_json = data[:1] == b"{"
    try:
        if envelope.version >= schema.version:
            decoders = _json_data if is_json else _pack_data
            return decoders[schema.name].decode(data)
        return msgspec.convert(
            _upcast(schema, envelope.version, data, is_json=is_json), schema.type
        )
    except (msgspec.DecodeError, KeyError, TypeError) as exc:
        raise PoisonError(
            f"record {envelope.id} ({envelope.schema} v{envelope.version}): {exc}"
        ) from exc


def _upcast(schema: Schema, version: int, data: bytes, *, is_json: bool) -> dict[str, Any]:
    builtins: dict[str, Any] = (
        msgspec.json.decode(data) if is_json else msgspec.msgpack.decode(data)
    )
    for old in range(version, schema.version):
        builtins = schema.upcasters[old](builtins)
    return builtins
