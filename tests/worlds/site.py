"""The simulated cluster of a world: API server, kubelets, controllers, in this event loop."""

import asyncio

import msgspec

from kai_es.simulate.api import Api, Call, CutError
from kai_es.simulate.database import Database
from kai_es.simulate.kinds import NODE, POD, KindTable
from kai_es.simulate.kubelet import Kubelet
from kai_es.simulate.kubelet_local import LocalApi
from kai_es.simulate.recreation import Recreator
from kai_es.simulate.runs import RunLedger
from kai_es.simulate.store import Store
from kai_es.simulate.verbs import Target
from kai_es.simulate.virtual import VirtualClock

MERGE = "application/merge-patch+json"
USER = "user"
_GOES_ON = ("", "deleted")
"""Outcomes of pods that are made again, or still run."""


def _is_gone(call):
    """What a server that was stopped makes of a call that was on its way."""
    raise CutError


class Site:
    """The cluster.

    silent:     kinds whose watches say nothing at the moment.
    page:       the server gives no larger pages.
    cuts:       so many lists in pages will find that their state is compacted.
    n_restores: how often etcd was restored from a backup.
    """

    def __init__(self, seed, truth, *, page):
        self.clock = VirtualClock()
        self.silent = set()
        self.page = page
        self.cuts = 0
        self.n_restores = 0
        self.runs = RunLedger(None)
        self._seed = seed
        self._truth = truth
        self._kubelet = self._controller = None
        self._writable = asyncio.Event()
        self._writable.set()
        self._table = KindTable()
        self._serve(Database(None, cluster_id=f"{seed:032x}"))

    def _serve(self, database):
        self._database = database
        self.store = Store(database, self._table.kinds, self.clock.now_ms)
        self.api = Api(self.store, self._table)
        self._truth.watch(self.store, self._table.kinds)

    def start(self):
        """Let kubelets and controllers work."""
        self._controller = asyncio.create_task(Recreator(self.api).run())
        self.start_kubelet()

    async def restart(self):
        """The API server stops and starts again: watches break, its state is the same."""
        self.store.settle()
        await self._replace(self._database)
        self.start()

    def backup(self):
        """What a backup of etcd would be now."""
        self.store.settle()
        return self._database.backup()

    async def restore(self, backup, noticed):
        """Go back to a backup; nobody else writes until `noticed` returns.

        The log can tell a restore only by numbers that fell: who writes meanwhile fills the hole.
        """
        self._writable.clear()
        self.n_restores += 1
        self.store.settle()
        backup.cluster_id = f"{self._seed:016x}{self.n_restores:016x}"
        await self._replace(backup)
        await noticed()
        self._writable.set()
        self.start()

    async def _replace(self, database):
        faults, former = self.api.faults, self.api
        for task in (self._controller, self._kubelet):
            task.cancel()
        await asyncio.gather(self._controller, self._kubelet, return_exceptions=True)
        former.store.settle()
        former.read = former.write = _is_gone
        cluster_id = database.cluster_id
        database.load_facts()
        database.cluster_id = cluster_id
        self._serve(database)
        self.api.faults = faults
        former.administer("POST", "drop-watches", {})

    async def cut_list(self):
        """Compact what a list in pages goes on from."""
        self.cuts -= 1
        name = self.live(NODE)[0]["metadata"]["name"]
        await self.patch(NODE, name, {"metadata": {"annotations": {"touched": str(self.store.rv)}}})
        self.store.compact(self.store.rv)

    def start_kubelet(self):
        kubelet = Kubelet(LocalApi(self.api), self.runs, self.clock, seed=self._seed)
        self._kubelet = asyncio.create_task(kubelet.run())

    async def restart_kubelet(self):
        self._kubelet.cancel()
        await asyncio.gather(self._kubelet, return_exceptions=True)
        self.start_kubelet()

    def stop(self):
        """Let nothing happen any more by itself."""
        self.check()
        self._controller.cancel()
        self._kubelet.cancel()

    async def heard(self, kind, seconds):
        """Return when watches of a kind are cut after their silence, or after so long."""
        loop = asyncio.get_running_loop()
        until = loop.time() + seconds
        while kind in self.silent and loop.time() < until:
            await asyncio.sleep(0.5)

    def ended(self):
        """(namespace, name) of pods that ran to their end, or that a kubelet refused."""
        runs = self.runs.all()
        return {(run.namespace, run.name) for run in runs if run.outcome not in _GOES_ON}

    def check(self):
        """Raise what the simulated parts themselves failed with."""
        for task in (self._controller, self._kubelet):
            if task.done() and not task.cancelled():
                task.result()

    # -- what users do

    async def create(self, kind, obj):
        """The object as it now is; None = it was there already."""
        await self._writable.wait()
        target = Target(kind, obj["metadata"].get("namespace", ""))
        body = msgspec.json.encode(obj)
        answer = await self.api.write(Call("POST", target, {}, body, client=USER))
        if answer.status == 409:
            return None
        assert answer.status == 201, answer.body
        return msgspec.json.decode(answer.body)

    async def patch(self, kind, name, changes, *, namespace="", subresource=""):
        await self._writable.wait()
        target = Target(kind, namespace, name, subresource)
        body = msgspec.json.encode(changes)
        call = Call("PATCH", target, {}, body, content_type=MERGE, client=USER)
        return (await self.api.write(call)).status

    async def delete(self, kind, name, *, namespace="", grace_s=None):
        await self._writable.wait()
        options = {} if grace_s is None else {"gracePeriodSeconds": grace_s}
        target = Target(kind, namespace, name)
        call = Call("DELETE", target, {}, msgspec.json.encode(options), client=USER)
        return (await self.api.write(call)).status

    def get(self, kind, name, namespace):
        """An object that is there."""
        self.store.settle()
        return self.store.get(kind, f"{namespace}/{name}").object()

    def live(self, kind):
        """Objects that are there, by key order."""
        self.store.settle()
        shelf = self.store.shelf(kind)
        return [shelf.live[key].object() for key in shelf.keys]

    async def lose_node(self, name):
        """The node is gone, and its pods are removed as by the controller manager."""
        await self.delete(NODE, name)
        for pod in self.live(POD):
            if pod["spec"].get("nodeName") == name:
                meta = pod["metadata"]
                await self.delete(POD, meta["name"], namespace=meta["namespace"], grace_s=0)
