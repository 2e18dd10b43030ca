"""Where the history of `snapshot` stands, found from its end (architecture §2)."""

from typing import Final

from kai_es.events.catalogue import SNAPSHOT
from kai_es.ports.eventlog import Position, ReadableLog
from kai_es.reader.records import HeadRecord, head_of
from kai_es.snapshot.chain import Chain

TAIL_RECORDS: Final = 1_000
"""A batch is confirmed before the next is sent, so repeats lie a few records back at most."""


async def last_chain(log: ReadableLog) -> Chain:
    """The chain at the last accepted batch, without folding anything.

    The highest `prev` P among the last records is an accepted batch, since writers name only
    those; the first record after P that names P is the last accepted one.
    """
    begin = int((await log.begin(SNAPSHOT))[0])
    end = int((await log.end(SNAPSHOT))[0])
    span = TAIL_RECORDS
    while True:
        start = max(begin, end - span)
        records = await _heads_between(log, start, end)
        prev = max((record.head.prev for record in records), default=-1)
        if start == begin or (len(records) >= TAIL_RECORDS and start <= prev + 1):
            break
        span = max(span * 4, end - prev)  # gaps in offsets, or a long row of rejected records
    last = next((r for r in records if r.head.prev == prev and r.offset > prev), None)
    if last is None:
        return Chain()
    cursors = {(c.topic, c.partition): c.stop for c in last.head.cursors}
    return Chain(offset=last.offset, time=last.head.time, cursors=cursors)


async def _heads_between(log: ReadableLog, start: int, end: int) -> list[HeadRecord]:
    records = []
    async for chunk in log.read(SNAPSHOT, 0, Position(start), follow=False):
        records += [head_of(entry) for entry in chunk if entry.position < end]
    return records
