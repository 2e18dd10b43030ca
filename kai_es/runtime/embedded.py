"""An embedded instance at work: PostgreSQL, the parts process, in the demo also a cluster."""

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Final

from sqlalchemy import Engine

from kai_es.ports.errors import ConfigError
from kai_es.runtime.binding import as_arguments
from kai_es.runtime.instance import Instance
from kai_es.runtime.settings import (
    ENV_CONFIG,
    ENV_DATABASE,
    ENV_KAFKA,
    ENV_MIRROR,
    Settings,
)
from kai_es.runtime.supervise import Child, Supervisor
from kai_es.storage.embedded import EmbeddedPostgres
from kai_es.storage.engine import connect_to
from kai_es.storage.schema import upgrade

logger = logging.getLogger(__name__)

ALL_PARTS: Final = (
    "informer",
    "snapshot",
    "scheduler",
    "binder",
    "status",
    "usage",
    "history",
    "checkpoint",
)
CLUSTER: Final = "apiserver"
PARTS: Final = "parts"
START_S: Final = 30.0
_POLL_S: Final = 0.05
_SETTLED: Final = dict.fromkeys((ENV_CONFIG, ENV_DATABASE, ENV_KAFKA, ENV_MIRROR), "")
"""Not for the parts: the instance has its own log and database, the rest is on the command line."""


class Stack:
    """The processes of one embedded instance.

    engine: the books, migrated.
    """

    def __init__(self, instance: Instance, settings: Settings, engine: Engine) -> None:
        self.instance = instance
        self.settings = settings
        self.engine = engine
        self.supervisor = Supervisor(instance.logs)

    async def start_cluster(self, seed: int) -> None:
        """Start the simulated API server with its kubelet and wait until it answers.

        Raises:
            ConfigError: it does not come up; names its log file.
        """
        folder = self.instance.cluster
        (folder / "url").unlink(missing_ok=True)
        argv = ["-m", "kai_es.simulate.apiserver", "--data", str(folder), "--exit-with-stdin"]
        self.supervisor.start(Child(CLUSTER, [*argv, "--seed", str(seed)]))
        for _ in range(int(START_S / _POLL_S)):
            if (folder / "url").exists():
                self.settings = replace(self.settings, kubeconfig=str(folder / "kubeconfig"))
                return
            await asyncio.sleep(_POLL_S)
        raise ConfigError(
            f"the simulated API server does not start: see {self.instance.logs}/{CLUSTER}.log"
        )

    def start_parts(self, parts: Sequence[str], *, listen: str) -> None:
        """Start one process with all `parts` as tasks."""
        argv = ["-m", "kai_es.cli", "run", *parts, "--exit-with-stdin", "--listen", listen]
        argv += ["--data", str(self.instance.root)]
        if self.settings.kubeconfig:
            argv += ["--kubeconfig", self.settings.kubeconfig]
        if self.settings.config:
            argv += ["--config", self.settings.config]
        if self.settings.mirror_bind_requests:
            argv.append("--mirror-bind-requests")
        argv += as_arguments(self.settings.binder)
        self.supervisor.start(Child(PARTS, argv, _SETTLED))


@asynccontextmanager
async def embedded(settings: Settings) -> AsyncIterator[Stack]:
    """Hold the instance, start PostgreSQL; at the end stop every process.

    Raises:
        ConfigError: the folder cannot be used or is in use.
        UnavailableError: PostgreSQL does not come up.
    """
    instance = Instance(settings.data).create()
    with instance.hold():
        postgres = EmbeddedPostgres(instance.postgres)
        url = await asyncio.to_thread(postgres.start, own=True)
        engine = connect_to(url)
        stack = Stack(instance, settings, engine)
        try:
            await asyncio.to_thread(upgrade, engine)
            yield stack
        finally:
            await stack.supervisor.stop_all()
            engine.dispose()
            await asyncio.to_thread(postgres.stop)
