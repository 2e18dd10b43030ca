"""A small cluster in this process, with kubelet, and a log on which binds are ordered."""

import asyncio
import contextlib
import json

from kai_es.binder.plugins import from_json
from kai_es.binder.reservation import ReservationSettings, reservation_name
from kai_es.binder.service import BinderSettings
from kai_es.events.catalogue import partition_of
from kai_es.kube.labels import GPU_INDEX, RESERVATION_APP
from kai_es.kube.sharing import prepared
from kai_es.ports.cluster import PODS
from kai_es.runtime.clock import SystemClock
from kai_es.simulate.api import Api, Call
from kai_es.simulate.cluster_local import LocalCluster
from kai_es.simulate.database import Database
from kai_es.simulate.kinds import NODE, POD, KindTable
from kai_es.simulate.kubelet import Kubelet
from kai_es.simulate.kubelet_local import LocalApi
from kai_es.simulate.runs import RunLedger
from kai_es.simulate.store import Store
from kai_es.simulate.verbs import Target
from kai_es.simulate.workload import NodeShape, pod_group
from kai_es.simulate.workload import node as a_node
from kai_es.simulate.workload import pod as a_pod
from tests.unit.test_binder import World, running

SHARED = {"received": "Fraction", "gpu_count": 1, "gpu_portion": 50}
WHOLE = {"received": "Regular", "gpu_count": 1, "gpu_portion": 100}
GROUP = pod_group("g", namespace="ns", queue_name="q", min_member=1, priority_class="train")
WAIT_S = 20.0


class GpuSite:
    """world: orders binds on pods; its clock is hasty: what waits, waits a hundredth."""

    def __init__(self):
        self.clock = SystemClock()
        table = KindTable()
        self.store = Store(Database(None, cluster_id="0" * 32), table.kinds, self.clock.now_ms)
        self.api = Api(self.store, table)
        self.port = LocalCluster(self.api)
        self.world = World()
        self.nodes = {}

    @contextlib.asynccontextmanager
    async def kubelet(self):
        """Nodes whose kubelets work."""
        kubelet = Kubelet(
            LocalApi(self.api), RunLedger(None), self.clock, start_ms=(1, 5), stop_ms=(1, 5)
        )
        task = asyncio.create_task(kubelet.run())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _write(self, method, target, obj):
        call = Call(method, target, {}, json.dumps(obj).encode(), client="user")
        answer = await self.api.write(call)
        assert answer.status < 300, answer.body
        return json.loads(answer.body)

    async def node(self, name="n1", n_gpus=8):
        shape = NodeShape(n_gpus, "H100", 81_559, 128_000, 1_048_576)
        made = await self._write("POST", Target(NODE), a_node(name, shape))
        self.nodes[name] = made["metadata"]["uid"]

    async def pod(self, name, *, shares=True, gpus=0, space="ns", **changes):
        """A pending pod, prepared as by admission if it shares."""
        requests = {"cpu": "1", **({"nvidia.com/gpu": str(gpus)} if gpus else {})}
        raw = a_pod(name, GROUP, requests, run_s=None)
        raw["metadata"] |= {"namespace": space, **changes.pop("metadata", {})}
        del raw["spec"]["priorityClassName"]
        raw["spec"] |= changes
        raw = prepared(raw, f"{name}-maps") if shares else raw
        return await self._write("POST", Target(POD, space), raw)

    async def live(self, name, space="ns"):
        return await self.port.get(PODS, space, name)

    async def delete(self, name, space="ns", grace_s=0):
        target = Target(POD, space, name)
        return await self._write("DELETE", target, {"gracePeriodSeconds": grace_s})

    async def end(self, name):
        """The pod runs, and succeeds."""
        await self.runs(name)
        pod, changes = await self.live(name), {"status": {"phase": "Succeeded"}}
        await self.patch(pod, changes, subresource="status")

    async def runs(self, name):
        """Wait until the pod runs."""

        async def does_run():
            return (await self.live(name))["status"]["phase"] == "Running"

        await self.until(does_run)

    async def patch(self, pod, changes, **more):
        meta = pod["metadata"]
        identity = {"uid": meta["uid"], "rv": int(meta["resourceVersion"])}
        return await self.port.patch(
            PODS, meta["namespace"], meta["name"], changes, **identity, **more
        )

    async def order(self, pod, *groups, node="n1", **changes):
        """Order a pod onto groups of a node; the request's id."""
        meta = pod["metadata"]
        fields = {
            "pod_uid": meta["uid"],
            "pod_rv": int(meta["resourceVersion"]),
            "node": node,
            "partition": partition_of(node, 8),
            "node_uid": self.nodes.get(node, "gone"),
            **({"gpu_groups": groups, **SHARED} if groups else {}),
        }
        return await self.world.order(meta["name"], **fields | changes)

    async def bound(self, name, *groups, **changes):
        """Have a new pod bound by a binder that works already; the pod as it then is."""
        final = await self.final(await self.order(await self.pod(name), *groups, **changes))
        assert final.__struct_config__.tag == "bound", final
        return await self.live(name)

    def binding(self, port=None, *, plugins="", **changes):
        """A binder at work; plugins: overrides as JSON, changes: of reservation pods."""
        settings = BinderSettings(
            plugins=from_json(plugins), reservation=ReservationSettings(**changes)
        )
        return running(self.world.binder(cluster=port or self.port, settings=settings))

    @contextlib.asynccontextmanager
    async def working(self, port):
        """The same, for tests that ask the binder how it is."""
        binder = self.world.binder(cluster=port)
        async with running(binder):
            yield binder

    async def final(self, request_id):
        return await self.world.final(request_id)

    async def reservations(self):
        """Reservation pods by name."""
        pods, _ = await self.port.list(PODS, RESERVATION_APP)
        return {pod["metadata"]["name"]: pod for pod in pods}

    async def reservation(self, group, node="n1"):
        """The reservation pod of a group, None = there is none."""
        return (await self.reservations()).get(reservation_name(node, group))

    async def tell(self, group, uuid="GPU-1", node="n1"):
        """What the program in the reservation pod of a group does."""
        await self.until(lambda: self.reservation(group, node))
        while True:
            pod = await self.reservation(group, node)
            with contextlib.suppress(Exception):
                await self.patch(pod, {"metadata": {"annotations": {GPU_INDEX: uuid}}})
                return

    async def until(self, holds):
        """Wait until a coroutine function says something true."""
        async with asyncio.timeout(WAIT_S):
            while not (found := await holds()):
                await asyncio.sleep(0.002)
        return found

    async def none_reserved(self):
        async def none():
            return not await self.reservations()

        await self.until(none)
