"""The stream `usage` as a Faust worker: `snapshot` on Kafka into the tables of usage."""

from typing import Protocol

from kai_es.ports.books import BooksStore, Rollup
from kai_es.ports.clock import Clock
from kai_es.ports.eventlog import EventLog
from kai_es.ports.stores import CheckpointStore
from projectors.usage import Stored, UsageRows
from streams.books import Books
from streams.projection import usage_projection
from streams.rollup import RollUps
from streams.worker import BooksWorker, WorkerSettings


class UsageStore(BooksStore[UsageRows, Stored], Rollup, Protocol):
    """Rows of usage and their sums."""


def usage_books(
    log: EventLog, clock: Clock, *, store: UsageStore, checkpoints: CheckpointStore
) -> Books:
    """Books of usage alone."""
    projection = usage_projection(store, clock)
    return Books(
        log,
        clock,
        projections=(projection,),
        checkpoints=checkpoints,
        rollups=RollUps(store, projection, clock),
    )


def usage_worker(
    settings: WorkerSettings,
    log: EventLog,
    clock: Clock,
    *,
    store: UsageStore,
    checkpoints: CheckpointStore,
) -> BooksWorker:
    """The worker; `settings.name` should be `usage`."""
    books = usage_books(log, clock, store=store, checkpoints=checkpoints)
    return BooksWorker(settings, books, clock)
