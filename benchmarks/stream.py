"""Shape `stream`: objects on a SQLite log to accepted batches of `snapshot`, and its latency."""

import asyncio
import tempfile
import time
from pathlib import Path
from time import perf_counter
from typing import Any

from benchmarks.rows import record
from kai_es.eventlog.sqlite import SqliteLog
from kai_es.eventlog.sqlite_lease import SqliteLeadership
from kai_es.events.catalogue import OBJECTS
from kai_es.events.codec import decode
from kai_es.ports.eventlog import Epoch, Out
from streams.snapshot import SnapshotStream

N_OBJECTS = 20_000
N_SINGLE = 100
APPENDED_AT_ONCE = 500


class _Clock:
    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic_s(self) -> float:
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


def run() -> dict[str, Any]:
    """Rows per second from log to log, and milliseconds from append to acceptance when idle."""
    with tempfile.TemporaryDirectory() as folder:
        return asyncio.run(_run(Path(folder) / "log.db"))


async def _run(path: Path) -> dict[str, Any]:
    log = SqliteLog(path)
    stream = SnapshotStream(
        log=log, leadership=SqliteLeadership(log), clock=_Clock(), holder="bench"
    )
    epoch = await log.take_over("informer")
    for first in range(0, N_OBJECTS, APPENDED_AT_ONCE):
        await log.append(epoch, [_out(n) for n in range(first, first + APPENDED_AT_ONCE)])
    started = perf_counter()
    running = asyncio.ensure_future(stream.run())
    await _until(stream, N_OBJECTS)
    whole_s = perf_counter() - started
    waits = [await _single(log, epoch, stream, N_OBJECTS + n) for n in range(N_SINGLE)]
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    await log.close()
    waits.sort()
    return {
        "per_s": round(N_OBJECTS / whole_s),
        "wall_ms": round(whole_s * 1000),
        "idle_ms_p50": round(waits[N_SINGLE // 2], 1),
        "idle_ms_p99": round(waits[N_SINGLE * 99 // 100], 1),
    }


async def _single(log: SqliteLog, epoch: Epoch, stream: SnapshotStream, n: int) -> float:
    await asyncio.sleep(0.05)
    await log.append(epoch, [_out(n)])
    appended = perf_counter()
    await _until(stream, n + 1)
    return (perf_counter() - appended) * 1000


async def _until(stream: SnapshotStream, n_rows: int) -> None:
    while stream.status.n_rows < n_rows:
        await asyncio.sleep(0.0005)


def _out(n: int) -> Out:
    return Out(OBJECTS, f"Pod/uid-{n}", None, decode(record(n)))
