"""Every part as its own supervised process on one log, with a simulated API server."""

import asyncio
import os
import random
import signal
from contextlib import asynccontextmanager
from pathlib import Path

from sqlalchemy import Engine

from kai_es.cluster.endpoint import found
from kai_es.ports.errors import UnavailableError
from kai_es.reader import View
from kai_es.runtime.clock import SystemClock
from kai_es.runtime.instance import Instance
from kai_es.runtime.progress import tally
from kai_es.runtime.settings import Settings
from kai_es.runtime.supervise import Child, Supervisor
from kai_es.runtime.wiring import open_log
from kai_es.simulate.client import Client
from kai_es.simulate.loader import Loader
from kai_es.storage.engine import connect_to
from kai_es.storage.schema import upgrade

API_SERVER = "apiserver"
PARTS = {
    "informer": ["informer"],
    "snapshot": ["snapshot"],
    "scheduler": ["scheduler"],
    "binder": ["binder"],
}
BOOKS = ["usage", "history", "checkpoint"]
HEAL_S = 90.0


class Platform:
    """Processes by name; each can be killed and comes back by itself."""

    def __init__(
        self, root: Path, database: str, *, seed: int, config: str = "", kafka: str = ""
    ) -> None:
        self.instance = Instance(root / "instance").create()
        self.settings = Settings(
            data=self.instance.root,
            database=database,
            kubeconfig=str(self.instance.cluster / "kubeconfig"),
            config=config,
            kafka=kafka,
        )
        self.engine: Engine = connect_to(database)
        self.supervisor = Supervisor(self.instance.logs)
        self.seed = seed
        self.parts = {**PARTS, "books": BOOKS}

    async def start(self):
        await asyncio.to_thread(upgrade, self.engine)
        folder = self.instance.cluster
        self._run(
            API_SERVER,
            ["-m", "kai_es.simulate.apiserver", "--data", str(folder), "--exit-with-stdin"],
        )
        while not (folder / "url").exists():
            await asyncio.sleep(0.05)
        for name in self.parts:
            self._run(name, self.argv(name))

    def argv(self, name):
        argv = ["-m", "kai_es.cli", "run", *self.parts[name], "--exit-with-stdin"]
        argv += ["--data", str(self.settings.data), "--database", self.settings.database]
        argv += ["--kubeconfig", self.settings.kubeconfig, "--kafka", self.settings.kafka]
        if self.settings.config and "informer" in self.parts[name]:
            argv += ["--config", self.settings.config]
        return argv

    def env(self, name):
        del name
        return {}

    def _run(self, name, argv):
        self.supervisor.start(Child(name, argv, self.env(name)))

    async def answers(self):
        """Wait until the API server is back from its last kill."""
        while True:
            try:
                async with Client(found(self.settings.kubeconfig), "kai-es-test") as client:
                    if (await client.call("GET", "/readyz"))[0] == 200:
                        return
            except UnavailableError:
                await asyncio.sleep(0.1)

    def kill(self, name):
        """SIGKILL, as the kernel's memory killer does it."""
        for child in self.supervisor.children:
            if child.name == name and child.pid is not None:
                os.kill(child.pid, signal.SIGKILL)

    async def stop(self):
        await self.supervisor.stop_all()
        self.engine.dispose()

    @asynccontextmanager
    async def watched(self):
        """A view of the log that follows it."""
        async with open_log(self.settings) as opened:
            view = View(opened.log, SystemClock())
            following = asyncio.create_task(view.run())
            try:
                yield view
            finally:
                following.cancel()
                await asyncio.gather(following, return_exceptions=True)

    async def load(self, workload):
        """Create a workload through the API."""
        async with Client(found(self.settings.kubeconfig), "kai-es-test-loader") as client:
            await Loader(client, SystemClock()).load(workload)


async def torment(platform, names, *, n_kills, chance: random.Random, mean_s):
    """Kill a random process n times at random moments; every fifth time all of them."""
    for n in range(1, n_kills + 1):
        await asyncio.sleep(chance.uniform(0.3 * mean_s, 1.7 * mean_s))
        for name in names if n % 5 == 0 else [chance.choice(names)]:
            platform.kill(name)


async def until_done(view, n_pods):
    """Wait until every pod has ended, at most HEAL_S without any progress."""
    last, patience = None, HEAL_S
    while patience > 0:
        now = tally(view.world)
        if now.pods >= n_pods and now.ended == now.pods:
            return
        patience = patience - 0.2 if now == last else HEAL_S
        last = now
        await asyncio.sleep(0.2)
    raise AssertionError(f"no progress for {HEAL_S} s: {last} of {n_pods} pods")
