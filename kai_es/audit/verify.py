"""`log verify`: what a log alone can show of the invariants."""

from collections.abc import Mapping
from typing import Final

from kai_es.audit.findings import Findings, Report
from kai_es.audit.reading import Reading
from kai_es.events.catalogue import BIND_REQUESTS, SNAPSHOT, TOPICS
from kai_es.events.codec import decode, unpack
from kai_es.events.envelope import PoisonError
from kai_es.events.requests import BindRequested, EvictRequested
from kai_es.ports.eventlog import Position, ReadableLog
from kai_es.ports.stores import CheckpointHead, CheckpointStore
from kai_es.reader.restore import nearest_world, reaches_back
from kai_es.snapshot import checkpoint
from kai_es.snapshot.errors import BrokenHistoryError
from kai_es.snapshot.world import World

IN_FLIGHT: Final = "requests of cycles that are not in `snapshot` yet"


async def verify(log: ReadableLog, *, checkpoints: CheckpointStore | None = None) -> Report:
    """Read a whole log and look for anything that must not be.

    Args:
        log: also an exported file.
        checkpoints: each is compared with the fold when it comes by; the first one is where the
            reading starts if the log no longer reaches back.

    Raises:
        HistoryGoneError: the log does not reach back, and no checkpoint is there to start from.
        CorruptLogError: a record fails its checksum; names it.
    """
    findings = Findings()
    world = World()
    try:
        world = await _start(log, checkpoints)
        reading = Reading(world, findings, is_whole=world.offset < 0)
        await _snapshot(log, reading, await _heads(checkpoints))
        await _sources(log, reading)
    except (BrokenHistoryError, PoisonError) as exc:
        findings.violated("8", f"{SNAPSHOT} after {world.offset}", str(exc))
    return findings.report()


async def _start(log: ReadableLog, checkpoints: CheckpointStore | None) -> World:
    if checkpoints is None or await reaches_back(log):
        return await nearest_world(log, None)
    first = min((head.offset for head in await checkpoints.heads()), default=None)
    return await nearest_world(log, checkpoints, at_most=first)


async def _heads(checkpoints: CheckpointStore | None) -> Mapping[int, CheckpointHead]:
    """Checkpoints that this release writes, by offset."""
    if checkpoints is None:
        return {}
    heads = await checkpoints.heads()
    return {head.offset: head for head in heads if head.version == checkpoint.VERSION}


async def _snapshot(
    log: ReadableLog, reading: Reading, heads: Mapping[int, CheckpointHead]
) -> None:
    world, findings = reading.world, reading.findings
    start = Position(world.offset + 1)
    async for chunk in log.read(SNAPSHOT, 0, start, follow=False):
        for entry in chunk:
            reading.take(entry)
            head = heads.get(world.offset)
            if head is None or world.offset != entry.position:
                continue
            findings.checked("17 checkpoints")
            if checkpoint.digest(world) != head.digest:
                where = f"checkpoint {head.offset}"
                findings.violated("9", where, "its digest is not that of the fold")
    reading.ledger.close(world.time)
    findings.checked("8 rejected batches", world.chain.n_rejected)


async def _sources(log: ReadableLog, reading: Reading) -> None:
    """The other topics: sizes, and that every request belongs to a cycle (invariants 6, 13)."""
    for topic in sorted(TOPICS):
        if topic == SNAPSHOT:
            continue
        for partition, begin in (await log.begin(topic)).items():
            async for chunk in log.read(topic, partition, begin, follow=False):
                for entry in chunk:
                    where = f"{topic}/{partition} {entry.position}"
                    reading.form.record(where, len(entry.value or b""))
                    if topic == BIND_REQUESTS:
                        _request(entry.value or b"", where, reading)


def _request(value: bytes, where: str, reading: Reading) -> None:
    request = unpack(decode(value))
    if not isinstance(request, BindRequested | EvictRequested):
        return
    reading.findings.checked("6 requests of their cycle")
    if request.cycle > reading.world.reigns.last_cycle(request.shard):
        reading.findings.checked(IN_FLIGHT)
    elif reading.is_whole and request.request_id not in reading.ordered:
        reading.findings.violated("6", where, f"{request.request_id} is in no cycle")
