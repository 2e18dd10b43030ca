"""What `objects.index` holds when an informer starts: what its lists are diffed against."""

from collections.abc import Mapping
from typing import NamedTuple

from kai_es.events.catalogue import OBJECTS_INDEX
from kai_es.events.codec import decode, unpack
from kai_es.events.objects import Alive, ObjectSeen
from kai_es.ports.eventlog import EventLog

FIRST_INCARNATION = 1


class Indexed(NamedTuple):
    """The last state of the log.

    objects: key -> last version of every live object.
    incarnation: the highest one.
    rvs: kind -> how far its history had come, in that incarnation.
    """

    objects: Mapping[str, ObjectSeen]
    incarnation: int
    rvs: Mapping[str, int]


async def read_index(eventlog: EventLog) -> Indexed:
    """Read the index to its end.

    Raises:
        PoisonError: a record that this release cannot read: nothing may be taken as unknown.
    """
    objects: dict[str, ObjectSeen] = {}
    incarnation = FIRST_INCARNATION
    rvs: dict[str, int] = {}
    for partition, start in sorted((await eventlog.begin(OBJECTS_INDEX)).items()):
        async for entries in eventlog.read(OBJECTS_INDEX, partition, start, follow=False):
            for entry in entries:
                if entry.value is None:
                    objects.pop(entry.key, None)
                    continue
                record = unpack(decode(entry.value))
                if isinstance(record, ObjectSeen):
                    objects[entry.key] = record
                elif isinstance(record, Alive):
                    incarnation = record.incarnation
                    rvs = {kind.kind: kind.rv for kind in record.kinds}
    newest = max((record.incarnation for record in objects.values()), default=incarnation)
    if newest > incarnation:  # it ended between a restore and the first mark after it
        incarnation, rvs = newest, {}
    return Indexed(objects, incarnation, rvs)
