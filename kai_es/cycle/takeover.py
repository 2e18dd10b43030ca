"""How a scheduler comes to power: fence, read, announce (architecture §3, Leadership)."""

from typing import NamedTuple

from kai_es.cycle.records import producer_of, reign_record
from kai_es.events.catalogue import DECISIONS
from kai_es.events.codec import decode, unpack
from kai_es.events.decisions import CycleChunk, Reign
from kai_es.events.envelope import PoisonError
from kai_es.ports.eventlog import Epoch, EventLog, Position
from kai_es.snapshot.world import World


class Power(NamedTuple):
    """The right to decide for a shard.

    epoch:  of the log, for appends.
    reign:  as announced.
    passed: the view must have folded `decisions` up to here before the first cycle.
    """

    epoch: Epoch
    reign: Reign
    passed: int


async def take_power(
    log: EventLog, world: World, *, shard: str, partition: int, now_ms: int
) -> Power:
    """Fence every predecessor, find the last numbers, and announce the reign.

    Args:
        log: with nobody else's epoch for this shard's producer from here on.
        world: what is folded so far; the rest is read from `decisions`.
        shard: to decide for.
        partition: its partition of `decisions`.
        now_ms: the shell's clock.

    Raises:
        FencedError: a newer leader took over meanwhile.
        GoneError: `decisions` no longer has what comes after the world's cursor.
        PoisonError: a decision cannot be decoded.
    """
    epoch = await log.take_over(producer_of(shard))
    last = world.reigns.shards.get(shard)
    number, next_cycle = (last.epoch, last.next_cycle) if last is not None else (0, 1)
    start = world.chain.cursors.get((DECISIONS, partition))
    if start is None:
        start = int((await log.begin(DECISIONS))[partition])
    async for chunk in log.read(DECISIONS, partition, Position(start), follow=False):
        for entry in chunk:
            try:
                record = unpack(decode(entry.value or b""))
            except PoisonError as exc:
                raise PoisonError(f"{DECISIONS}/{partition}/{entry.position}: {exc}") from exc
            if isinstance(record, Reign) and record.shard == shard:
                number = max(number, record.epoch)
            elif isinstance(record, CycleChunk) and record.shard == shard:
                next_cycle = max(next_cycle, record.cycle + 1)
    reign = Reign(shard=shard, epoch=number + 1, first_cycle=next_cycle)
    (position,) = await log.append(epoch, [reign_record(reign, partition=partition, now_ms=now_ms)])
    return Power(epoch, reign, int(position) + 1)
