"""The stream `history` as a Faust worker: `snapshot` on Kafka into the tables of history."""

from kai_es.ports.books import BooksStore
from kai_es.ports.clock import Clock
from kai_es.ports.eventlog import EventLog
from kai_es.ports.stores import CheckpointStore
from projectors.history import HistoryRows, Runs
from streams.books import Books
from streams.projection import history_projection
from streams.worker import BooksWorker, WorkerSettings


def history_books(
    log: EventLog,
    clock: Clock,
    *,
    store: BooksStore[HistoryRows, Runs],
    checkpoints: CheckpointStore,
) -> Books:
    """Books of history alone."""
    projection = history_projection(store, clock)
    return Books(log, clock, projections=(projection,), checkpoints=checkpoints)


def history_worker(
    settings: WorkerSettings,
    log: EventLog,
    clock: Clock,
    *,
    store: BooksStore[HistoryRows, Runs],
    checkpoints: CheckpointStore,
) -> BooksWorker:
    """The worker; `settings.name` should be `history`."""
    books = history_books(log, clock, store=store, checkpoints=checkpoints)
    return BooksWorker(settings, books, clock)
