"""Informers and binders as processes that tests can kill: `python -m tests.simulation.parts …`."""

import asyncio
import logging
import signal
import subprocess
import sys
from pathlib import Path

from kai_es.binder.service import Binder
from kai_es.cluster.api import ApiServer
from kai_es.cluster.endpoint import from_kubeconfig
from kai_es.eventlog.sqlite import SqliteLog
from kai_es.eventlog.sqlite_lease import SqliteLeadership
from kai_es.eventlog.sqlite_offsets import SqliteOffsets
from kai_es.intake.service import Informer
from kai_es.runtime.clock import SystemClock

LEASE_S = 0.5
"""So that a killed part's successor need not wait long."""


class Part:
    """A part in its own process."""

    def __init__(self, name: str, kubeconfig: Path, log: Path):
        self._arguments = [name, str(kubeconfig), str(log)]
        self._process: subprocess.Popen[bytes] | None = None
        self._starts = 0

    def start(self):
        self._starts += 1
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.simulation.parts", *self._arguments, str(self._starts)]
        )
        return self

    def kill(self):
        self._end(signal.SIGKILL)

    def stop(self):
        self._end(signal.SIGTERM)

    def restart_if_ended(self):
        """What a supervisor does after a fenced part has ended itself."""
        if self._process is not None and self._process.poll() is not None:
            self.start()

    def _end(self, how):
        process, self._process = self._process, None
        if process is not None:
            process.send_signal(how)
            process.wait(10)


async def run(name: str, kubeconfig: str, path: str, number: str) -> None:
    log = SqliteLog(Path(path))
    common = {
        "eventlog": log,
        "leadership": SqliteLeadership(log, lease_s=LEASE_S),
        "clock": SystemClock(),
        "holder": f"{name}-{number}",
    }
    async with ApiServer(from_kubeconfig(kubeconfig)) as cluster:
        part: Informer | Binder
        if name == "informer":
            part = Informer(cluster=cluster, **common)
        else:
            part = Binder(cluster=cluster, offsets=SqliteOffsets(log), **common)
        task = asyncio.create_task(part.run())
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
        await asyncio.gather(task, return_exceptions=True)
    await log.close()


if __name__ == "__main__":
    logging.basicConfig(level=logging.ERROR)
    asyncio.run(run(*sys.argv[1:5]))
