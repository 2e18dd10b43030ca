"""What the topic `objects` amounts to, by the ranking of architecture §2, in plain Python."""

import asyncio
from typing import NamedTuple

from kai_es.events.catalogue import OBJECTS, OBJECTS_INDEX, TOPICS
from kai_es.events.codec import decode, unpack
from kai_es.events.objects import Alive, Listed, ObjectDeleted, ObjectSeen


class Folded(NamedTuple):
    """live: (kind, uid) -> ObjectSeen; ids of object records in order; last marks."""

    live: dict
    ids: list
    listed: dict
    alive: dict


async def records_of(eventlog, topic):
    async def read(partition, start):
        chunks = eventlog.read(topic, partition, start, follow=False)
        return [(partition, entry) async for entries in chunks for entry in entries]

    begins = sorted((await eventlog.begin(topic)).items())
    for records in await asyncio.gather(*(read(*begin) for begin in begins)):
        for record in records:
            yield record


async def fold(eventlog) -> Folded:
    ranks, live, ids, listed, alive = {}, {}, [], {}, {}
    async for partition, entry in records_of(eventlog, OBJECTS):
        envelope = decode(entry.value)
        record = unpack(envelope)
        match record:
            case ObjectSeen() | ObjectDeleted():
                ids.append(envelope.id)
                key = record.kind, record.uid
                deleted = isinstance(record, ObjectDeleted)
                rank = record.incarnation, record.rv, deleted
                if rank >= ranks.get(key, rank):
                    ranks[key] = rank
                    live.pop(key, None)
                    if not deleted:
                        live[key] = record
            case Listed():
                listed[record.kind, partition] = record
            case Alive():
                alive[partition] = record
    return Folded(live, ids, listed, alive)


async def index(eventlog) -> dict:
    """(kind, uid) -> ObjectSeen as a restarted informer finds it."""
    found = {}
    async for _, entry in records_of(eventlog, OBJECTS_INDEX):
        if entry.key == "Alive":
            continue
        key = tuple(entry.key.split("/", 1))
        found.pop(key, None)
        if entry.value is not None:
            found[key] = unpack(decode(entry.value))
    return found


PARTITIONS = TOPICS[OBJECTS].partitions
