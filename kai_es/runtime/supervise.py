"""A parent that starts children, restarts those that end, and stops all of them with itself.

A child holds the reading end of a pipe as its standard input and ends when that closes, so none
outlives the parent, however it ends.
"""

import asyncio
import logging
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import psutil

logger = logging.getLogger(__name__)

BACKOFF_FIRST_S: Final = 0.2
BACKOFF_MAX_S: Final = 10.0
HEALTHY_S: Final = 5.0  # a child that lived this long starts again without back-off
STOP_TIMEOUT_S: Final = 20.0  # drain and commit take less; then SIGKILL


@dataclass(slots=True)
class Child:
    """One supervised process.

    name:  also the name of its log file.
    argv:  without the interpreter: `-m`, module, arguments; it must end with its standard input.
    longest_s: how long it has lived at most, of those lives that have ended.
    """

    name: str
    argv: Sequence[str]
    env: Mapping[str, str] = field(default_factory=dict)
    restarts: int = 0
    last_exit: int | None = None
    longest_s: float = 0.0
    process: asyncio.subprocess.Process | None = None

    @property
    def pid(self) -> int | None:
        """Its pid while it runs."""
        alive = self.process is not None and self.process.returncode is None
        return self.process.pid if alive and self.process is not None else None

    def cpu_s(self) -> float:
        """CPU that it has used in this life, 0 while it does not run."""
        pid = self.pid
        if pid is None:
            return 0.0
        try:
            times = psutil.Process(pid).cpu_times()
        except psutil.NoSuchProcess:
            return 0.0
        return float(times.user + times.system)


class Supervisor:
    """Keeps children running until `stop`."""

    def __init__(self, logs: Path) -> None:
        self._logs = logs
        self._children: dict[str, Child] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._stopping: set[str] = set()

    @property
    def children(self) -> Sequence[Child]:
        """Everything started and not stopped."""
        return tuple(self._children.values())

    def start(self, child: Child) -> None:
        """Start a child and keep it running."""
        assert child.name not in self._children, f"{child.name} runs already"
        self._stopping.discard(child.name)
        self._children[child.name] = child
        self._tasks[child.name] = asyncio.create_task(self._keep(child), name=child.name)

    async def stop(self, name: str) -> int | None:
        """Stop one child gracefully; its exit code."""
        child = self._children.pop(name)
        self._stopping.add(name)
        if child.pid is not None:
            os.kill(child.pid, signal.SIGTERM)
        task = self._tasks.pop(name)
        try:
            async with asyncio.timeout(STOP_TIMEOUT_S):
                await asyncio.shield(task)
        except TimeoutError:
            logger.warning("child does not stop, killed", extra={"child": name})
            if child.pid is not None:
                os.kill(child.pid, signal.SIGKILL)
            await task
        return child.last_exit

    async def stop_all(self) -> None:
        """Stop all children, the last started first."""
        for name in reversed(tuple(self._children)):
            await self.stop(name)

    async def _keep(self, child: Child) -> None:
        loop = asyncio.get_running_loop()
        backoff = BACKOFF_FIRST_S
        while child.name not in self._stopping:
            started = loop.time()
            await self._run_once(child)
            if child.name in self._stopping:
                return
            lived = loop.time() - started
            child.longest_s = max(child.longest_s, lived)
            backoff = BACKOFF_FIRST_S if lived > HEALTHY_S else min(backoff * 2, BACKOFF_MAX_S)
            child.restarts += 1
            logger.warning(
                "child ended, restarting",
                extra={"child": child.name, "exit": child.last_exit, "in_s": backoff},
            )
            await asyncio.sleep(backoff)

    async def _run_once(self, child: Child) -> None:
        with (self._logs / f"{child.name}.log").open("ab") as log:
            child.process = await asyncio.create_subprocess_exec(
                sys.executable,
                *child.argv,
                stdin=asyncio.subprocess.PIPE,
                stdout=log,
                stderr=log,
                env={**os.environ, **child.env},
                start_new_session=True,  # a ^C reaches the parent alone, which stops in order
            )
        if child.name in self._stopping:
            child.process.terminate()
        child.last_exit = await child.process.wait()
