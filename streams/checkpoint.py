"""The stream `checkpoint` as a Faust worker: checkpoints of `snapshot` on Kafka, and its trims."""

from kai_es.ports.clock import Clock
from kai_es.ports.eventlog import EventLog
from kai_es.ports.stores import CheckpointStore
from streams.books import Books
from streams.checkpointer import Checkpointer
from streams.worker import BooksWorker, WorkerSettings


def checkpoint_books(log: EventLog, clock: Clock, *, checkpoints: CheckpointStore) -> Books:
    """Books that hold nothing but checkpoints."""
    return Books(
        log,
        clock,
        projections=(),
        checkpoints=checkpoints,
        checkpointer=Checkpointer(checkpoints, log, clock),
    )


def checkpoint_worker(
    settings: WorkerSettings, log: EventLog, clock: Clock, *, checkpoints: CheckpointStore
) -> BooksWorker:
    """The worker; `settings.name` should be `checkpoint`."""
    return BooksWorker(settings, checkpoint_books(log, clock, checkpoints=checkpoints), clock)
