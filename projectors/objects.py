"""Records of `objects` to snapshot rows: parse, or park the version (architecture §3, Poison)."""

from typing import Final

import msgspec

from kai_es.events.objects import (
    Alive,
    Listed,
    ObjectDeleted,
    ObjectRecord,
    ObjectSeen,
    ParkedAction,
)
from kai_es.events.snapshot import (
    AliveSeen,
    KindListed,
    Parked,
    ParkingEnded,
    Removed,
    Row,
    Upserted,
)
from kai_es.kube.errors import InvalidObjectError
from kai_es.kube.parse import parse
from kai_es.kube.parse_pod import read_leniently

DISCARD: Final = "discard"
_ERROR_MAX: Final = 1000  # characters of an error that a row repeats


def rows_of(
    record: ObjectRecord, *, partition: int, event_ms: int, source: str = ""
) -> tuple[Row, ...]:
    """The rows of one record.

    Args:
        record: as unpacked.
        partition: of `objects` that it was read from.
        event_ms: its envelope's event time, ms.
        source: `topic/partition/position`, shown with a parked version.
    """
    match record:
        case ObjectSeen():
            return (_version(record, source),)
        case ObjectDeleted():
            return (
                Removed(
                    kind=record.kind,
                    uid=record.uid,
                    rv=record.rv,
                    incarnation=record.incarnation,
                    namespace=record.namespace,
                    name=record.name,
                ),
            )
        case Listed():
            return (
                KindListed(
                    partition=partition,
                    kind=record.kind,
                    rv=record.rv,
                    incarnation=record.incarnation,
                    served=record.served,
                ),
            )
        case Alive():
            return (
                AliveSeen(
                    partition=partition,
                    incarnation=record.incarnation,
                    time=event_ms,
                    kinds=record.kinds,
                    others=record.others,
                ),
            )
        case ParkedAction():
            return (_action(record, source),)


def undecodable_row(key: str, value: bytes, *, error: str, source: str) -> Parked:
    """The parked version for a record of `objects` that cannot be decoded at all.

    Kind and uid come from the key; what else can still be read of the bytes is.
    """
    kind, _, uid = key.partition("/")
    try:
        envelope = msgspec.json.decode(value)
    except (msgspec.DecodeError, UnicodeDecodeError):
        envelope = None
    data = envelope.get("data") if isinstance(envelope, dict) else None
    data = data if isinstance(data, dict) else {}
    raw = data.get("object")
    seen = ObjectSeen(
        kind=kind,
        uid=uid,
        namespace=_str(data.get("namespace")),
        name=_str(data.get("name")),
        rv=_int(data.get("rv")),
        incarnation=_int(data.get("incarnation")),
        object=raw if isinstance(raw, dict) else {},
    )
    return _parked(seen, error, source)


def _version(seen: ObjectSeen, source: str) -> Upserted | Parked:
    try:
        obj = parse(seen.kind, seen.object)
        if obj.uid != seen.uid:
            raise InvalidObjectError(
                f"{seen.kind} {seen.namespace}/{seen.name}",
                f"metadata.uid is {obj.uid!r}, want {seen.uid!r} as in the record",
            )
    except InvalidObjectError as exc:
        return _parked(seen, str(exc), source)
    return Upserted(rv=seen.rv, incarnation=seen.incarnation, obj=obj)


def _parked(seen: ObjectSeen, error: str, source: str) -> Parked:
    node, phase, requests = read_leniently(seen.object) if seen.kind == "Pod" else ("", "", {})
    return Parked(
        kind=seen.kind,
        uid=seen.uid,
        rv=seen.rv,
        incarnation=seen.incarnation,
        namespace=seen.namespace,
        name=seen.name,
        error=error[:_ERROR_MAX],
        source=source,
        node=node,
        phase=phase,
        requests=requests,
    )


def _action(record: ParkedAction, source: str) -> Row:
    """`discard` ends the parking; `retry` is the live object as a version of its own."""
    if record.action == DISCARD or record.object is None:
        return ParkingEnded(
            kind=record.kind, uid=record.uid, rv=record.rv, incarnation=record.incarnation
        )
    metadata = record.object.get("metadata")
    metadata = metadata if isinstance(metadata, dict) else {}
    seen = ObjectSeen(
        kind=record.kind,
        uid=record.uid,
        namespace=_str(metadata.get("namespace")),
        name=_str(metadata.get("name")),
        rv=record.rv,
        incarnation=record.incarnation,
        object=record.object,
    )
    return _version(seen, source)


def _int(value: object) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) else 0


def _str(value: object) -> str:
    return value if isinstance(value, str) else ""
