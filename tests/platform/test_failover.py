"""Two schedulers on a broker: one leads; when it is killed or paused the other one soon does."""

import asyncio
import signal
import time

import pytest

from kai_es.audit.verify import verify
from kai_es.cli.run import FENCED
from kai_es.eventlog.kafka import KafkaLog
from kai_es.eventlog.kafka_client import KafkaSettings
from kai_es.events.decisions import Cycle
from kai_es.reader import View
from kai_es.runtime.clock import SystemClock
from tests.histories.circle import Informer, a_cluster, raw_node
from tests.histories.logs import running
from tests.platform.kafka_stack import crowding
from tests.platform.process import Parts

pytestmark = pytest.mark.broker

FAILOVER_S = 15.0


class Site:
    """A stream, two schedulers, and an informer of this process."""

    def __init__(self, folder, bootstrap, prefix):
        self.folder, self.kafka = folder, {"kafka": bootstrap, "prefix": prefix}
        self.clock = SystemClock()
        self.log = KafkaLog(KafkaSettings(bootstrap=bootstrap, prefix=prefix))
        self.view = View(self.log, self.clock)
        self.view.listen(self._note)
        self.informer = Informer(self.log, self.clock)
        self.cycles = []
        self.n_nodes = 0
        self.processes = dict.fromkeys(("stream", "one", "two"))

    def start(self, name):
        part = "snapshot" if name == "stream" else "scheduler"
        self.processes[name] = Parts(self.folder / name, [part], **self.kafka)

    def _note(self, applied, batch):
        self.cycles += [row for row in batch.rows if isinstance(row, Cycle)]

    async def next_cycle(self, *, after):
        """The first cycle of a later reign; something happens all the time."""
        while not self.cycles or self.cycles[-1].epoch <= after:
            await self.something_new()
        return next(cycle for cycle in self.cycles if cycle.epoch > after)

    async def something_new(self):
        """A change that a cycle comes of."""
        self.n_nodes += 1
        await self.informer.put("Node", raw_node(f"n{self.n_nodes}"))
        await asyncio.sleep(0.2)

    async def leader(self):
        """The scheduler that leads, and the other one."""
        while True:
            leads = {
                name: await self.processes[name].gauge("kai_es_scheduler_leading")
                for name in ("one", "two")
            }
            if sum(leads.values()) == 1:
                return sorted(leads, key=leads.get, reverse=True)
            await asyncio.sleep(0.1)

    async def close(self):
        for parts in self.processes.values():
            if parts is not None:
                parts.kill()
        await self.log.close()


@pytest.fixture
async def site(kafka_bootstrap, kafka_prefix, tmp_path):
    made = Site(tmp_path, kafka_bootstrap, kafka_prefix)
    yield made
    await made.close()


async def test_leader_killed_then_leader_paused(site):
    async with asyncio.timeout(240):
        for name in site.processes:  # the schedulers at once
            site.start(name)
        await a_cluster(site.informer)
        async with running(site.view.run(), site.informer.run()):
            epoch = (await site.next_cycle(after=0)).epoch
            took = []
            leader, _ = await site.leader()
            site.processes[leader].kill()
            killed = time.monotonic()
            site.start(leader)
            epoch = (await site.next_cycle(after=epoch)).epoch
            took.append(time.monotonic() - killed)

            leader, _ = await site.leader()
            paused = site.processes[leader]
            paused.signal(signal.SIGSTOP)
            stopped = time.monotonic()
            epoch = (await site.next_cycle(after=epoch)).epoch
            took.append(time.monotonic() - stopped)
            paused.signal(signal.SIGCONT)
            assert await asyncio.to_thread(paused.process.wait, 60) == FENCED
            n_cycles = len(site.cycles)
            while len(site.cycles) < n_cycles + 3:
                await site.something_new()
            assert {cycle.epoch for cycle in site.cycles[n_cycles:]} == {epoch}
        print(f"failover after a kill {took[0]:.1f} s, after a pause {took[1]:.1f} s")
        assert max(took) <= FAILOVER_S * crowding()
        report = await verify(site.log)
        assert report.holds, report.violations
