"""The platform as it runs for real: every part twice, on Kafka and PostgreSQL of their own."""

import asyncio
import os
import random
import re
import shutil
import signal
import tempfile
import time
from pathlib import Path

import aiohttp

from kai_es.events.decisions import Bind, CycleInputs
from kai_es.runtime.progress import ENDED_PHASES
from kai_es.runtime.settings import DEFAULT_SHARD
from kai_es.runtime.worker_place import ENV_INSTANCE
from kai_es.scheduler import decide
from tests.platform.stack import API_SERVER, BOOKS, PARTS, Platform
from tools.kafka import Broker
from tools.postgres import Postgres
from tools.process import free_port

DATABASE = "postgres"
LAG_MAX_S = 5.0
_GAUGE = re.compile(r"^(kai_es_\w+) ([-+.\w]+)$", re.MULTILINE)


class KafkaPlatform(Platform):
    """Processes `<part>-<n>`, each with doors of its own; servers that can be restarted.

    Args:
        root: for everything.
        copies: of each part; one leads, the others stand by.
        only: these parts alone, None = all.

    keeps_log: whether the broker's data and log stay when it stops, for whoever looks for a fault.
    """

    def __init__(self, root, *, seed, copies=2, config="", only=None):
        self.broker = Broker(root / "kafka")
        # Not below pytest's folder: every run of pytest closes that to the server's own user.
        self._home = Path(tempfile.mkdtemp(prefix="kai-es-test-"))
        self.postgres = Postgres(self._home / "postgres")
        super().__init__(
            root,
            f"{self.postgres.address}/{DATABASE}",
            seed=seed,
            config=config,
            kafka=self.broker.address,
        )
        parts = {**PARTS, "books": BOOKS}
        self.parts = {
            f"{name}-{n}": parts[name] for name in (only or parts) for n in range(1, copies + 1)
        }
        self.ports = {name: free_port() for name in self.parts}
        self.paused = set()
        self.keeps_log = False

    async def start(self):
        await asyncio.gather(
            asyncio.to_thread(self.broker.start), asyncio.to_thread(self.postgres.start)
        )
        await super().start()

    async def stop(self):
        for name in tuple(self.paused):
            self.resume(name)
        try:
            await super().stop()
        finally:
            await asyncio.to_thread(self.broker.kill if self.keeps_log else self.broker.close)
            await asyncio.to_thread(self.postgres.close)
            shutil.rmtree(self._home, ignore_errors=True)

    def argv(self, name):
        return [*super().argv(name), "--listen", f"127.0.0.1:{self.ports[name]}"]

    def env(self, name):
        return {ENV_INSTANCE: name, "TMPDIR": str(self._home)}

    # -- what a process says of itself

    async def door(self, name, path):
        """Status and text; status 0 = nobody answers."""
        url = f"http://127.0.0.1:{self.ports[name]}{path}"
        timeout = aiohttp.ClientTimeout(total=2)
        try:
            async with aiohttp.ClientSession(timeout=timeout) as session, session.get(url) as got:
                return got.status, await got.text()
        except (aiohttp.ClientError, TimeoutError):
            return 0, ""

    async def gauges(self, name):
        """Our gauges of a process, without those that have labels."""
        _, text = await self.door(name, "/metrics")
        return {key: float(value) for key, value in _GAUGE.findall(text)}

    async def stop_parts(self):
        """End every part in good order; the servers stay."""
        await asyncio.gather(*(self.supervisor.stop(name) for name in self.parts))

    async def leader(self, part):
        """The process that leads; waits until one does."""
        while True:
            for name in self.parts:
                if name.startswith(f"{part}-") and name not in self.paused:
                    gauges = await self.gauges(name)
                    if gauges.get(f"kai_es_{part}_leading"):
                        return name
            await asyncio.sleep(0.1)

    async def lags(self):
        """Every lag of every process, seconds."""
        return {
            (name, key): value
            for name in self.parts
            for key, value in (await self.gauges(name)).items()
            if key.endswith("_lag_seconds")
        }

    async def unready(self):
        """Processes that are not ready, with what they say."""
        found = {}
        for name in self.parts:
            status, text = await self.door(name, "/readyz")
            if status != 200:
                found[name] = text or "no answer"
        return found

    async def told(self):
        """Who leads and how late everybody is; each writes its stacks into its log."""
        lines = []
        for name in self.parts:
            self.signal(name, signal.SIGUSR1)
            gauges = await self.gauges(name)
            chosen = {k: v for k, v in gauges.items() if k.endswith(("_leading", "_lag_seconds"))}
            lines.append(f"{name}: {chosen}")
        return "\n".join(lines)

    # -- faults

    def pause(self, name):
        """Stop a process from doing anything, as a machine that hangs does."""
        self.paused.add(name)
        self.signal(name, signal.SIGSTOP)

    def resume(self, name):
        """Let it go on."""
        self.paused.discard(name)
        self.signal(name, signal.SIGCONT)

    def signal(self, name, number):
        for child in self.supervisor.children:
            if child.name == name and child.pid is not None:
                os.kill(child.pid, number)


class Torment:
    """Faults of a seed, and when the last one was over.

    n_kills: processes ended so far.
    told:    what was done when, for the report of a failure.
    """

    def __init__(self, platform, seed, *, seconds, every_s=5.0, pause_s=30.0, api_server=True):
        self.platform = platform
        self.chance = random.Random(seed)
        self.seconds = seconds
        self.every_s = every_s
        self.pause_s = pause_s
        self.names = [*platform.parts, *([API_SERVER] if api_server else [])]
        self.n_kills = 0
        self.told = []
        self._began = time.monotonic()

    async def run(self):
        """Everything at once: kills all the time, one restart of each server, one pause."""
        self._began = time.monotonic()
        special = [self._restart_broker, self._restart_postgres, self._pause_scheduler]
        self.chance.shuffle(special)
        await asyncio.gather(self._kill_parts(), self._in_turn(special))
        self._tell("over")

    def _tell(self, what):
        self.told.append(f"{time.monotonic() - self._began:6.1f} s {what}")

    async def _kill_parts(self):
        until = self._began + self.seconds
        while (pause := min(self.every_s, until - time.monotonic())) > 0:
            await asyncio.sleep(pause)
            name = self.chance.choice(
                [name for name in self.names if name not in self.platform.paused]
            )
            how = self.chance.choice((signal.SIGKILL, signal.SIGKILL, signal.SIGTERM))
            self._tell(f"{how.name} {name}")
            self.platform.signal(name, how)
            self.n_kills += 1

    async def _in_turn(self, faults):
        """So that all are over when the kills are."""
        room = max(0.0, self.seconds - self.pause_s) / (len(faults) + 1)
        for fault in faults:
            await asyncio.sleep(room * self.chance.uniform(0.5, 1.0))
            await fault()

    async def _restart_broker(self):
        how = self.chance.choice(("kill", "stop"))
        await self._restart("broker", self.platform.broker, how)

    async def _restart_postgres(self):
        how = self.chance.choice(("kill", "stop"))
        await self._restart("postgres", self.platform.postgres, how)

    async def _restart(self, what, server, how):
        self._tell(f"{how} {what}")
        await asyncio.to_thread(getattr(server, how))
        await asyncio.sleep(self.chance.uniform(0, 2))
        await asyncio.to_thread(server.start)
        self._tell(f"{what} is back")

    async def _pause_scheduler(self):
        name = await self.platform.leader("scheduler")
        self._tell(f"pause {name}")
        self.platform.pause(name)
        await asyncio.sleep(self.pause_s)
        self.platform.resume(name)
        self._tell(f"{name} goes on")


def crowding():
    """How much more time a machine needs on which more runs than this test."""
    return max(1.0, os.getloadavg()[0] / (2 * (os.cpu_count() or 1)))


async def healthy(platform, view, *, within_s):
    """21: after so many seconds every process is ready, every lag < 5 s, and no pod is left that
    could be placed."""
    until = time.monotonic() + within_s
    stuck = None
    while True:
        unready = await platform.unready()
        lags = {key: lag for key, lag in (await platform.lags()).items() if lag >= LAG_MAX_S}
        if not unready and not lags:
            async with view.still() as world:
                could = await asyncio.to_thread(placeable, world)
            stuck = could if stuck is None else stuck & could
            if not stuck:
                return
        assert time.monotonic() < until, (
            f"could be bound and are not: {stuck}; not ready: {unready}; lags: {lags}"
        )
        await asyncio.sleep(1)


async def until_done(view, *, patience_s=90.0):
    """Wait until every pod has ended but those that never can: rests of gangs.

    A gang that is evicted when some of its pods are about to end leaves too few that are made again
    (the simulated controller, as a Job's, makes no pod again that ended).
    """
    last, since = None, time.monotonic()
    while open_pods := await unended(view):
        if open_pods != last:
            last, since = open_pods, time.monotonic()
        assert time.monotonic() - since < patience_s, f"{len(open_pods)} pods, e.g. {open_pods[:5]}"
        await asyncio.sleep(0.5)


async def unended(view):
    """Pods that have not ended and can."""
    async with view.still() as world:
        alive = {}
        for row in world.snapshot.pods.values():
            if row.pod.phase not in ENDED_PHASES:
                alive.setdefault((row.pod.namespace, row.pod.group), []).append(row.pod)
        return sorted(
            pod.name
            for key, pods in alive.items()
            for pod in pods
            if pod.node or len(pods) >= world.snapshot.groups.get(key).group.min_member
        )


def placeable(world):
    """Pods that the next cycle would bind."""
    config = world.snapshot.config(DEFAULT_SHARD)
    shard = world.reigns.shards[DEFAULT_SHARD]
    now_ms = max(world.time, shard.now_ms)
    inputs = CycleInputs(shard=DEFAULT_SHARD, cycle=shard.next_cycle, now_ms=now_ms)
    ops = decide(world.snapshot, config, inputs).ops
    return {op.pod_uid for op in ops if isinstance(op, Bind)}
