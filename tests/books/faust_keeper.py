"""A Faust worker: `python -m tests.books.faust_keeper NAME INSTANCE BOOTSTRAP PREFIX URL DIR`."""

import asyncio
import signal
import sys
from pathlib import Path

from kai_es.eventlog.kafka import KafkaLog
from kai_es.eventlog.kafka_client import KafkaSettings
from kai_es.storage.checkpoint import PostgresCheckpoints
from kai_es.storage.engine import connect_to
from kai_es.storage.history import PostgresHistory
from kai_es.storage.usage import PostgresUsage
from streams.checkpoint import checkpoint_worker
from streams.history import history_worker
from streams.usage import usage_worker
from streams.worker import WorkerSettings
from tests.books.keeper import WallClock


def worker_of(settings, log, engine):
    clock, checkpoints = WallClock(), PostgresCheckpoints(engine)
    if settings.name == "usage":
        store = PostgresUsage(engine)
        return usage_worker(settings, log, clock, store=store, checkpoints=checkpoints)
    if settings.name == "history":
        store = PostgresHistory(engine)
        return history_worker(settings, log, clock, store=store, checkpoints=checkpoints)
    return checkpoint_worker(settings, log, clock, checkpoints=checkpoints)


async def main(name, instance, bootstrap, prefix, url, folder):
    log = KafkaLog(KafkaSettings(bootstrap=bootstrap, prefix=prefix))
    settings = WorkerSettings(
        bootstrap=bootstrap, prefix=prefix, name=name, instance=instance, data=Path(folder)
    )
    worker = worker_of(settings, log, connect_to(url))
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    try:
        await worker.run(stop)
    finally:
        await log.close()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
