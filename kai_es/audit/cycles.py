"""Which cycles a log holds, and which of them can be decided again."""

from collections.abc import Sequence
from typing import NamedTuple

from kai_es.events.catalogue import SNAPSHOT
from kai_es.events.decisions import Cycle
from kai_es.ports.eventlog import ReadableLog
from kai_es.reader.records import read_batches
from kai_es.snapshot.chain import Chain, Verdict


class Recorded(NamedTuple):
    """A cycle and the offset of the batch that it is in."""

    at: int
    cycle: Cycle


async def recorded_cycles(
    log: ReadableLog,
    *,
    shard: str | None = None,
    first: int | None = None,
    last: int | None = None,
) -> Sequence[Recorded]:
    """Cycles in accepted batches, in their order.

    Args:
        log: read from what it keeps to its present end.
        shard: only its cycles, None = of all shards.
        first: lowest number of interest, None = any.
        last: highest number of interest, None = any.
    """
    found: list[Recorded] = []
    begin = (await log.begin(SNAPSHOT))[0]
    chain = Chain()
    async for offset, batch in read_batches(log, start=int(begin)):
        verdict = chain.judge(batch)
        if verdict is Verdict.REJECT:
            continue
        if verdict is Verdict.MISSED:
            # What is kept begins within the history: writers name only accepted batches.
            chain = Chain(offset=batch.prev)
            found.clear()
        chain.accept(offset, batch)
        found += [
            Recorded(offset, row)
            for row in batch.rows
            if isinstance(row, Cycle)
            and (shard is None or row.shard == shard)
            and (first is None or row.cycle >= first)
            and (last is None or row.cycle <= last)
        ]
    return found
