"""Shape `log`: the SQLite log with records of 1 KB, as an informer and a stream use it.

`per_s` is appends per second in batches of 500 to `objects`, each batch one durable transaction;
`index_per_s` the same with every record in `objects.index` too, half a batch each.
"""

import asyncio
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec

from kai_es.eventlog.sqlite import SqliteLog
from kai_es.events.catalogue import OBJECTS, OBJECTS_INDEX, SNAPSHOT, TOPICS
from kai_es.events.envelope import Envelope
from kai_es.ports.eventlog import EventLog, Out, Position

BATCH = 500
N_BATCHES = 100
N_SINGLE = 500
RECORD_BYTES = 1_000


def a_record(n: int) -> Envelope:
    """An envelope of about `RECORD_BYTES`."""
    return Envelope(
        schema="object-seen",
        version=1,
        id=f"cluster/Pod/{n}/1/seen",
        event_time=1,
        ingest_time=2,
        producer="informer/host-1",
        data=msgspec.Raw(b'{"object":"' + b"x" * (RECORD_BYTES - 200) + b'"}'),
    )


def batches(topics: Sequence[str]) -> list[list[Out]]:
    """`N_BATCHES` batches of `BATCH` records, spread over these topics."""
    each = BATCH // len(topics)
    return [
        [
            Out(topic, f"Pod/{number * each + n}", None, a_record(n))
            for n in range(each)
            for topic in topics
        ]
        for number in range(N_BATCHES)
    ]


async def append_rate(log: EventLog, topics: Sequence[str]) -> float:
    """Records per second."""
    work = batches(topics)
    epoch = await log.take_over("informer")
    start = time.perf_counter()
    for batch in work:
        await log.append(epoch, batch)
    return N_BATCHES * BATCH / (time.perf_counter() - start)


async def read_rate(log: EventLog) -> float:
    """Records per second, all partitions of `objects` one after another."""
    begins = await log.begin(OBJECTS)
    start, found = time.perf_counter(), 0
    for partition in range(TOPICS[OBJECTS].partitions):
        async for chunk in log.read(OBJECTS, partition, begins[partition], follow=False):
            found += len(chunk)
    assert found >= N_BATCHES * BATCH
    return found / (time.perf_counter() - start)


async def single_ms(log: EventLog) -> list[float]:
    """Times of single durable appends, ascending."""
    record, took = a_record(1), []
    for _ in range(N_SINGLE):
        start = time.perf_counter()
        await log.append_one(SNAPSHOT, "batch", record)
        took.append((time.perf_counter() - start) * 1000)
    return sorted(took)


async def follow_ms(log: EventLog, other: EventLog) -> list[float]:
    """Times from an append through one log until a follower of the other has it, ascending."""
    record, took = a_record(1), []
    position = (await log.end(SNAPSHOT))[0]
    chunks = log.read(SNAPSHOT, 0, Position(position), follow=True)
    await anext(chunks)
    for _ in range(100):
        start = time.perf_counter()
        appending = asyncio.create_task(other.append_one(SNAPSHOT, "batch", record))
        while not await anext(chunks):
            pass
        took.append((time.perf_counter() - start) * 1000)
        await appending
    return sorted(took)


def middle(times: Sequence[float]) -> float:
    """Median, ms."""
    return round(times[len(times) // 2], 2)


async def measure(log: EventLog, other: EventLog) -> dict[str, object]:
    """All figures of one kind of log; `other` is a second client of it."""
    start = time.perf_counter()
    per_s = await append_rate(log, [OBJECTS])
    index_per_s = await append_rate(log, [OBJECTS, OBJECTS_INDEX])
    read_per_s = await read_rate(log)
    singles = await single_ms(log)
    follows = await follow_ms(log, log)
    others = await follow_ms(log, other)
    return {
        "wall_ms": round((time.perf_counter() - start) * 1000),
        "per_s": round(per_s),
        "index_per_s": round(index_per_s),
        "read_per_s": round(read_per_s),
        "append_one_ms_p50": middle(singles),
        "append_one_ms_p99": round(singles[len(singles) * 99 // 100], 2),
        "follow_ms_p50": middle(follows),
        "follow_other_client_ms_p50": middle(others),
        "result": f"{2 * N_BATCHES * BATCH} records of {RECORD_BYTES} bytes in batches of {BATCH}",
    }


def run() -> dict[str, object]:
    """The SQLite log."""

    async def main(path: Path) -> dict[str, object]:
        log, other = SqliteLog(path), SqliteLog(path)
        try:
            return await measure(log, other)
        finally:
            await other.close()
            await log.close()

    with tempfile.TemporaryDirectory() as folder:
        return asyncio.run(main(Path(folder) / "log.db"))
