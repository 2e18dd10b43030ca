"""The parts that keep the books: one local runner, or on Kafka a Faust worker for each."""

import asyncio
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Final

from sqlalchemy import Engine

from kai_es.ports.clock import Clock
from kai_es.ports.eventlog import EventLog
from kai_es.runtime.part import Part
from kai_es.runtime.settings import Settings
from kai_es.runtime.worker_place import take_place
from kai_es.storage.checkpoint import PostgresCheckpoints
from kai_es.storage.history import PostgresHistory
from kai_es.storage.schema import upgrade
from kai_es.storage.usage import PostgresUsage
from streams.books import Books
from streams.checkpointer import Checkpointer
from streams.local import LocalRunner
from streams.projection import history_projection, usage_projection
from streams.rollup import RollUps

BOOKS: Final = ("usage", "history", "checkpoint")
"""Projections into Postgres; those of one process share one reader, on Kafka each has its own."""

SILENT_S: Final = 30.0
"""Signs of life make a batch every 2 s; after so long the gate closes, too."""


def books_of(log: EventLog, engine: Engine, clock: Clock, names: Collection[str]) -> Books:
    """Books that keep `names`; the database is migrated before the first fold."""
    checkpoints, store = PostgresCheckpoints(engine), PostgresUsage(engine)
    usage = usage_projection(store, clock)
    history = history_projection(PostgresHistory(engine), clock)
    checkpointer = Checkpointer(checkpoints, log, clock)

    async def migrate() -> None:
        await asyncio.to_thread(upgrade, engine)

    return Books(
        log,
        clock,
        projections=[projection for projection in (usage, history) if projection.name in names],
        checkpoints=checkpoints,
        checkpointer=checkpointer if "checkpoint" in names else None,
        rollups=RollUps(store, usage, clock) if "usage" in names else None,
        prepare=migrate,
    )


def books_parts(
    settings: Settings, log: EventLog, engine: Engine, clock: Clock, names: Sequence[str]
) -> list[Part]:
    """The parts that keep `names`."""
    if settings.kafka:
        first, *others = (_worker(settings, log, engine, clock, name) for name in names)
        return [first, *(replace(other, beside=True) for other in others)]
    return [_local(LocalRunner(log, books_of(log, engine, clock, names), clock))]


def _local(runner: LocalRunner) -> Part:
    status = runner.status
    return Part(
        name="books",
        run=runner.run,
        stop=runner.stop,
        ready=lambda: [status.trouble] if status.trouble else [],
        gauges={
            "lag_seconds": ("Age of the oldest batch not folded", lambda: status.lag_s),
            "offset": ("Snapshot offset folded", lambda: status.offset),
            "diverged": ("Digest mismatches found", lambda: status.n_diverged),
        },
    )


def _worker(settings: Settings, log: EventLog, engine: Engine, clock: Clock, name: str) -> Part:
    from streams.worker import BooksWorker, WorkerSettings  # Faust takes a second to import

    books = books_of(log, engine, clock, (name,))
    place = take_place(name, f"{settings.kafka}/{settings.prefix}")
    worker = BooksWorker(
        WorkerSettings(
            bootstrap=settings.kafka,
            prefix=settings.prefix,
            name=name,
            instance=place.instance,
            data=place.folder,
            security=settings.kafka_security,
        ),
        books,
        clock,
    )
    stop = asyncio.Event()
    driver = worker.driver

    async def run() -> None:
        with place.lock:
            await worker.run(stop)

    def lag_s() -> float:
        works = driver.is_assigned and books.world.offset >= 0
        return max(clock.now_ms() - books.world.time, 0) / 1000 if works else 0.0

    made_s = clock.monotonic_s()

    def silence() -> str:
        if driver.is_assigned and books.world.offset < 0:
            return _silence(clock.monotonic_s() - made_s, "no batch was ever read, for")
        return _silence(lag_s(), "the newest batch folded is old:")

    return Part(
        name=name,
        run=run,
        stop=stop.set,
        ready=lambda: [t for t in (driver.trouble or silence(), books.trouble()) if t],
        gauges={
            "leading": ("1 = at work, 0 = standby", lambda: float(driver.is_assigned)),
            "lag_seconds": ("Age of the newest batch folded, 0 = standby", lag_s),
            "offset": ("Snapshot offset folded", lambda: books.world.offset),
        },
    )


def _silence(seconds: float, what: str) -> str:
    """Faust says nothing while it tries to reach a broker."""
    if seconds < SILENT_S:
        return ""
    return (
        f"{what} {seconds:.0f} s; it catches up, or none comes (does the snapshot stream run, is "
        "--prefix right, is the broker there?)"
    )
