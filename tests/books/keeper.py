"""A process that keeps the books of a SQLite log: `python -m tests.books.keeper LOG URL`."""

import asyncio
import sys
import time
from pathlib import Path

from kai_es.eventlog.sqlite import SqliteLog
from kai_es.storage.checkpoint import PostgresCheckpoints
from kai_es.storage.engine import connect_to
from kai_es.storage.history import PostgresHistory
from kai_es.storage.usage import PostgresUsage
from projectors.checkpoint import Cadence
from streams.books import Books
from streams.checkpointer import Checkpointer
from streams.local import LocalRunner
from streams.projection import history_projection, usage_projection
from streams.rollup import RollUps


class WallClock:
    """The machine's clocks."""

    def now_ms(self):
        return time.time_ns() // 1_000_000

    def monotonic_s(self):
        return time.monotonic()

    async def sleep(self, seconds):
        await asyncio.sleep(seconds)


def books_of(log, engine, *, rows_max=2_000):
    """Everything that is kept in one database."""
    clock, store = WallClock(), PostgresUsage(engine)
    checkpoints = PostgresCheckpoints(engine)
    usage = usage_projection(store, clock)
    history = history_projection(PostgresHistory(engine), clock)
    cadence = Cadence(rows_max=rows_max)
    return LocalRunner(
        log,
        Books(
            log,
            clock,
            projections=[usage, history],
            checkpoints=checkpoints,
            checkpointer=Checkpointer(checkpoints, log, clock, cadence=cadence),
            rollups=RollUps(store, usage, clock),
        ),
        clock,
    )


async def main(path, url):
    log = SqliteLog(Path(path))
    try:
        await books_of(log, connect_to(url)).run()
    finally:
        await log.close()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
