"""The whole circle on a simulated cluster of this process, in virtual time."""

import asyncio

import msgspec

from kai_es.binder.service import Binder
from kai_es.cycle import Scheduler, Setting
from kai_es.eventlog.memory import MemoryLeadership, MemoryLog, MemoryStore
from kai_es.eventlog.memory_offsets import MemoryOffsets
from kai_es.intake.service import Informer
from kai_es.kube.labels import AS_OF
from kai_es.reader import View
from kai_es.scheduler.config import Config
from kai_es.simulate.api import Api, Call
from kai_es.simulate.cluster_local import LocalCluster
from kai_es.simulate.database import Database
from kai_es.simulate.kinds import KindTable
from kai_es.simulate.kubelet import Kubelet
from kai_es.simulate.kubelet_local import LocalApi
from kai_es.simulate.runs import RunLedger
from kai_es.simulate.store import Store
from kai_es.simulate.verbs import Target
from kai_es.simulate.virtual import VirtualClock
from kai_es.status.service import StatusWriter
from streams.snapshot import SnapshotStream
from tests.worlds.loop import run_world

MERGE = "application/merge-patch+json"
USER = "user"
IDLE_S = 5.0


WITH_STATUS = ("pods", "podgroups.scheduling.run.ai", "queues.scheduling.run.ai")


def offsets_of(obj):
    """Snapshot offsets that parts of an object say they were computed from."""
    found = {}
    annotation = obj["metadata"].get("annotations", {}).get(AS_OF)
    if annotation:
        found["annotation"] = int(annotation)
    for one in obj.get("status", {}).get("conditions", ()):
        if one["type"] == AS_OF:
            found["status"] = int(one["message"])
    return found


class Circle:
    """API server, kubelet, log and parts.

    calls: every write that a client asked for.
    view:  follows the log.
    """

    def __init__(self, *, settings=None, kubelet=True, mirror=False):
        self.clock = VirtualClock()
        table = KindTable()
        self.api_store = Store(
            Database(None, cluster_id=f"{1:032x}"), table.kinds, self.clock.now_ms
        )
        self.api = Api(self.api_store, table)
        self.calls = []
        self.as_of = {}
        self.api_store.note = self._note
        self.store = MemoryStore(idle_s=IDLE_S)
        self.leadership = MemoryLeadership()
        self.settings = settings or Config(withheld=()).settings()
        self.view = View(self.log(), self.clock)
        self._kubelet = kubelet
        self._mirror = mirror
        self._tasks = {}

    def _note(self, access):
        """A write; a status never goes back behind the one it replaces (invariant 16)."""
        self.calls.append(access)
        if not access.client.startswith("status") or access.status >= 300 or not access.uid:
            return
        name = f"{access.namespace}/{access.name}" if access.namespace else access.name
        kinds = {kind.resource: kind for kind in self.api.table.kinds}
        stored = self.api_store.get(kinds[access.resource], name)
        if stored is None or access.resource not in WITH_STATUS:
            return
        for what, offset in offsets_of(stored.object()).items():
            key = (access.uid, what)
            assert offset >= self.as_of.get(key, 0), f"{name}: {what} goes back to {offset}"
            self.as_of[key] = offset

    def log(self):
        return MemoryLog(store=self.store)

    def start(self):
        """Run everything."""
        self._run("view", self.view)
        if self._kubelet:
            self._run("kubelet", Kubelet(LocalApi(self.api), RunLedger(None), self.clock, seed=1))
        for name in ("informer", "snapshot", "scheduler", "binder"):
            self._run(name, getattr(self, f"_{name}")(f"{name}-a"))
        self.start_status("status-a")

    def start_status(self, holder):
        """Run a status writer; there may be several."""
        writer = StatusWriter(
            cluster=LocalCluster(self.api, holder),
            view=View(self.log(), self.clock),
            mirror=self._mirror,
            **self._common(holder),
        )
        self._run(holder, writer)
        return writer

    def _run(self, name, part):
        self._tasks[name] = asyncio.create_task(part.run(), name=name)

    def check(self):
        """Raise what a part failed with."""
        for task in self._tasks.values():
            if task.done():
                task.result()

    async def kill(self, name):
        """End a part; its role stays taken until its lease has run out."""
        task = self._tasks.pop(name)
        self.leadership.crash(name)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    async def until(self, what, *, seconds=120):
        """Wait until `what()` is true, in virtual seconds."""
        loop = asyncio.get_running_loop()
        until = loop.time() + seconds
        while not what():
            self.check()
            assert loop.time() < until, f"not after {seconds} s"
            await asyncio.sleep(0.1)

    def _common(self, holder):
        return {"leadership": self.leadership, "clock": self.clock, "holder": holder}

    def _informer(self, holder):
        configs = [{"metadata": {"name": "default"}, "settings": self.settings}]
        cluster = LocalCluster(self.api, holder)
        return Informer(
            cluster=cluster, eventlog=self.log(), configs=configs, **self._common(holder)
        )

    def _snapshot(self, holder):
        return SnapshotStream(log=self.log(), **self._common(holder))

    def _scheduler(self, holder):
        log = self.log()
        setting = Setting(
            log, self.clock, View(log, self.clock), "default", partition=0, offload=_inline
        )
        return Scheduler(setting, leadership=self.leadership, holder=holder)

    def _binder(self, holder):
        return Binder(
            cluster=LocalCluster(self.api, holder),
            eventlog=self.log(),
            offsets=MemoryOffsets(),
            **self._common(holder),
        )

    # -- users

    async def create(self, kind, obj):
        target = Target(kind, obj["metadata"].get("namespace", ""))
        answer = await self.api.write(
            Call("POST", target, {}, msgspec.json.encode(obj), client=USER)
        )
        assert answer.status == 201, answer.body
        return msgspec.json.decode(answer.body)

    async def patch(self, kind, name, changes, *, namespace="", subresource=""):
        target = Target(kind, namespace, name, subresource)
        body = msgspec.json.encode(changes)
        answer = await self.api.write(
            Call("PATCH", target, {}, body, content_type=MERGE, client=USER)
        )
        assert answer.status == 200, answer.body
        return msgspec.json.decode(answer.body)

    async def delete(self, kind, name, *, namespace=""):
        target = Target(kind, namespace, name)
        await self.api.write(Call("DELETE", target, {}, b"{}", client=USER))

    def live(self, kind):
        """Objects that are there, by name."""
        self.api_store.settle()
        shelf = self.api_store.shelf(kind)
        return {
            shelf.live[key].object()["metadata"]["name"]: shelf.live[key].object()
            for key in shelf.keys
        }

    def writes(self, client="status"):
        """What a client wrote, refused writes included."""
        return [call for call in self.calls if call.client.startswith(client)]


async def _inline(work):
    return work()


def in_virtual_time(make, **options):
    """Run `make(circle)` to its end."""

    async def main():
        circle = Circle(**options)
        await make(circle)
        circle.check()

    run_world(main())
