"""Our parts at work on a real API server, as tasks of a test."""

import asyncio
from collections.abc import AsyncIterator, Collection, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

from kai_es.reader import View
from kai_es.runtime.clock import SystemClock
from kai_es.runtime.crew import run_crew
from kai_es.runtime.instance import Instance
from kai_es.runtime.parts import made
from kai_es.runtime.settings import Settings
from kai_es.runtime.wiring import open_log
from kai_es.simulate.kinds import POD
from tests.simulation.api_client import Api

CIRCLE = ("informer", "snapshot", "scheduler", "binder")
DONE_S = 60.0


class Running:
    """Parts on one log.

    view: follows the log.
    """

    def __init__(self, parts, view: View) -> None:
        self.view = view
        self._parts = parts

    def problems(self) -> list[str]:
        """What /readyz would say."""
        return [f"{part.name}: {text}" for part in self._parts for text in part.ready()]

    async def until(self, what, *, seconds: float = DONE_S) -> None:
        """Wait until `what()` is true.

        Raises:
            AssertionError: it is not after `seconds`; tells what /readyz says.
        """
        try:
            async with asyncio.timeout(seconds):
                while not what():
                    await asyncio.sleep(0.05)
        except TimeoutError:
            waiting = waiting_reasons(self.view)
            raise AssertionError(
                f"not after {seconds} s; ready: {self.problems()}; waiting: {waiting}"
            ) from None


@asynccontextmanager
async def running(
    kubeconfig: Path,
    root: Path,
    names: Collection[str] = CIRCLE,
    *,
    others: Mapping[str, Path] | None = None,
    **settings: Any,
) -> AsyncIterator[Running]:
    """Run parts until the end of the block; one that ends before fails the test.

    Args:
        root: folder of their log, made if missing.
        names: of the parts that use `kubeconfig`.
        others: part -> its own kubeconfig, for parts with an identity of their own.
        settings: further fields of `Settings`.
    """
    instance = Instance(root).create()
    crews = [(names, kubeconfig), *(([name], path) for name, path in (others or {}).items())]
    stop = asyncio.Event()
    async with AsyncExitStack() as stack:
        opened = await stack.enter_async_context(open_log(Settings(data=instance.root)))
        made_crews = [
            await stack.enter_async_context(
                made(members, Settings(data=instance.root, kubeconfig=str(path), **settings))
            )
            for members, path in crews
            if members
        ]
        view = View(opened.log, SystemClock())
        async with asyncio.TaskGroup() as tasks:
            for crew in made_crews:
                tasks.create_task(run_crew(crew.parts, stop))
            following = tasks.create_task(view.run())
            yield Running([part for crew in made_crews for part in crew.parts], view)
            following.cancel()
            stop.set()


def waiting_reasons(view: View, shard: str = "default") -> dict[str, str]:
    """Pending pod groups with their dominant reason."""
    known = view.world.reigns.reasons.get(shard, {})
    found = {}
    for uid, entry in view.world.objects.live.get("PodGroup", {}).items():
        introduced = known.get(uid)
        if introduced is not None and introduced.reasons:
            first = introduced.reasons[0]  # the dominant one
            found[entry.obj.name] = f"{first.code} {first.args}"
    return found


def pods_of(view: View, namespace: str = "") -> dict[str, object]:
    """Pods that the log knows, by name; those of a namespace, or all."""
    live = view.world.objects.live.get(POD.kind, {})
    return {
        e.obj.name: e.obj for e in live.values() if not namespace or e.obj.namespace == namespace
    }


def a_node(name: str, *, gpus: int = 8, cpu: str = "64", labels=None) -> dict:
    """A node that is ready."""
    has = {"cpu": cpu, "memory": "512Gi", "pods": "110", "nvidia.com/gpu": str(gpus)}
    ready = {"type": "Ready", "status": "True", "reason": "KubeletReady"}
    known = {"nvidia.com/gpu.count": str(gpus), "nvidia.com/gpu.memory": "81920"}
    return {
        "metadata": {
            "name": name,
            "labels": {"kubernetes.io/hostname": name, **known, **(labels or {})},
        },
        "status": {"capacity": has, "allocatable": has, "conditions": [ready]},
    }


def a_queue(name: str, *, parent: str = "") -> dict:
    """A queue that may use everything."""
    whole = {"quota": 0, "limit": -1, "overQuotaWeight": 1}
    spec = {"resources": {"cpu": whole, "memory": whole, "gpu": whole}}
    if parent:
        spec["parentQueue"] = parent
    return {
        "apiVersion": "scheduling.run.ai/v2",
        "kind": "Queue",
        "metadata": {"name": name},
        "spec": spec,
    }


def furnish(api: Api, n_nodes: int, *, gpus: int = 8) -> None:
    """Nodes node-0 … and the queues team-a and its parent."""
    for n in range(n_nodes):
        api.ok("POST", "/api/v1/nodes", a_node(f"node-{n}", gpus=gpus))
    for queue in (a_queue("department"), a_queue("team-a", parent="department")):
        api.ok("POST", "/apis/scheduling.run.ai/v2/queues", queue)
