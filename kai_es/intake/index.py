"""What `objects.index` holds when an informer starts: what its lists are diffed against."""

from collections.abc import Callable
from typing import Any, Final, NamedTuple

import msgspec

from kai_es.events.catalogue import OBJECTS_INDEX, SCHEMAS
from kai_es.events.codec import decode, unpack
from kai_es.events.envelope import Envelope
from kai_es.events.objects import Alive, ObjectSeen
from kai_es.ports.eventlog import EventLog

FIRST_INCARNATION: Final = 1

_SEEN: Final = str(ObjectSeen.__struct_config__.tag)


class IndexedObject(msgspec.Struct, frozen=True, kw_only=True):
    """`ObjectSeen` with the object left encoded: most starts need no more than its version."""

    kind: str
    uid: str
    namespace: str
    name: str
    rv: int
    incarnation: int
    object: msgspec.Raw

    def content(self) -> dict[str, Any]:
        """The object."""
        return msgspec.json.decode(self.object, type=dict[str, Any])


class Progress(NamedTuple):
    """How far the log had come.

    incarnation: the highest one.
    rvs: kind -> position of its history in that incarnation.
    objects: live objects in the index.
    """

    incarnation: int
    rvs: dict[str, int]
    objects: int


async def read_index(
    eventlog: EventLog, *, seen: Callable[[IndexedObject], None], gone: Callable[[str], None]
) -> Progress:
    """Read the index to its end, giving each last version to `seen`.

    A compacted topic may still hold what was overwritten: `seen` comes again with a later version
    of the same object, `gone` (with its key) takes it back.

    Raises:
        PoisonError: a record that this release cannot read: nothing may be taken as unknown.
    """
    live: set[str] = set()
    incarnation = newest = FIRST_INCARNATION
    rvs: dict[str, int] = {}
    for partition, start in sorted((await eventlog.begin(OBJECTS_INDEX)).items()):
        async for entries in eventlog.read(OBJECTS_INDEX, partition, start, follow=False):
            for entry in entries:
                if entry.value is None:
                    live.discard(entry.key)
                    gone(entry.key)
                    continue
                envelope = decode(entry.value)
                if envelope.schema == _SEEN:
                    record = _object(envelope)
                    live.add(entry.key)
                    newest = max(newest, record.incarnation)
                    seen(record)
                elif isinstance(mark := unpack(envelope), Alive):
                    incarnation = mark.incarnation
                    rvs = {kind.kind: kind.rv for kind in mark.kinds}
    if newest > incarnation:  # it ended between a restore and the first mark after it
        incarnation, rvs = newest, {}
    return Progress(incarnation, rvs, len(live))


def _object(envelope: Envelope) -> IndexedObject:
    if envelope.version == SCHEMAS[_SEEN].version:
        try:
            return msgspec.json.decode(envelope.data, type=IndexedObject)
        except msgspec.DecodeError:
            pass  # `unpack` says what is wrong
    return msgspec.convert(_encoded(unpack(envelope)), IndexedObject)


def _encoded(record: ObjectSeen) -> dict[str, Any]:
    fields = {name: getattr(record, name) for name in record.__struct_fields__}
    return {**fields, "object": msgspec.Raw(msgspec.json.encode(record.object))}
