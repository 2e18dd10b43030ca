"""Shape `status`: 4,000 one-GPU pods on 500 × 8 GPUs, bound, and all their statuses right.

Informer, snapshot, scheduler, binder and status writer run in this process on a SQLite log; the
simulated API server has a process of its own. Everything is created before they start. A second
run without the status writer tells what it costs.
"""

import asyncio
import resource
import tempfile
from collections import Counter
from dataclasses import replace
from pathlib import Path
from time import perf_counter
from typing import Any, Final

from kai_es.cluster.api import USER_AGENT, ApiServer
from kai_es.cluster.endpoint import from_kubeconfig
from kai_es.kube.labels import GROUP_STAMP
from kai_es.ports.cluster import PODS, Resource
from kai_es.runtime.clock import SystemClock
from kai_es.runtime.crew import run_crew
from kai_es.runtime.instance import Instance
from kai_es.runtime.parts import made
from kai_es.runtime.settings import Settings
from kai_es.simulate.client import Client
from kai_es.simulate.cluster import ClusterProcess
from kai_es.simulate.kinds import NAMESPACE, POD, POD_GROUP
from kai_es.simulate.loader import Loader
from kai_es.simulate.workload import NodeShape, Sizes, generate, node, pod, pod_group
from kai_es.status.groups import POD_GROUPS
from kai_es.status.queues import QUEUES

N_NODES: Final = 500
N_PODS: Final = 4_000
CIRCLE: Final = ("informer", "snapshot", "scheduler", "binder")
CLIENT: Final = "bench"
DONE_S: Final = 600.0
_GPU: Final = "nvidia.com/gpu"


def run_shape(name: str, n_pods: int = N_PODS) -> dict[str, Any]:
    """Seconds, writes and CPU per pod."""
    del name
    without = asyncio.run(_measure((*CIRCLE,), n_pods))
    whole = asyncio.run(_measure((*CIRCLE, "status"), n_pods))
    return {
        **whole,
        "bound_s_without": without["bound_s"],
        "writes_per_pod_without": without["writes_per_pod"],
        "cpu_ms_per_pod_without": without["cpu_ms_per_pod"],
        "status_cpu_ms_per_pod": round(whole["cpu_ms_per_pod"] - without["cpu_ms_per_pod"], 2),
    }


async def _measure(names: tuple[str, ...], n_pods: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder, ClusterProcess(Path(folder) / "cluster") as it:
        endpoint = from_kubeconfig(str(it.kubeconfig))
        async with Client(endpoint, CLIENT) as client, ApiServer(endpoint) as api:
            await _load(client, n_pods)
            instance = Instance(Path(folder) / "instance").create()
            settings = Settings(data=instance.root, kubeconfig=str(it.kubeconfig))
            stop = asyncio.Event()
            async with made(names, settings) as running:
                began, cpu_s = perf_counter(), _cpu_s()
                crew = asyncio.create_task(run_crew(running.parts, stop))
                await _until(crew, lambda: _all_bound(api, n_pods))
                bound_s = perf_counter() - began
                right_s = 0.0
                if "status" in names:
                    await _until(crew, lambda: _all_right(api, n_pods))
                    right_s = perf_counter() - began - bound_s
                    await asyncio.sleep(10)  # what is written late counts, too
                cpu_s = _cpu_s() - cpu_s
                stop.set()
                await crew
        calls = [row for row in it.ledger() if row.client.startswith(USER_AGENT)]
    return {
        "wall_ms": round(bound_s * 1000),
        "bound_s": round(bound_s, 1),
        "right_after_s": round(right_s, 1),
        "writes_per_pod": round(len(calls) / n_pods, 2),
        "writes": dict(
            Counter(
                f"{row.verb} {row.resource}/{row.subresource} {row.status}" for row in calls
            ).most_common()
        ),
        "cpu_ms_per_pod": round(cpu_s * 1000 / n_pods, 2),
    }


async def _load(client: Client, n_pods: int) -> None:
    loader = Loader(client, SystemClock())
    n_nodes = max(n_pods * N_NODES // N_PODS, 1)
    shape = NodeShape(
        n_gpus=8, cpu_milli=64_000, memory_mib=524_288, product="A100", gpu_memory_mib=81_920
    )
    nodes = tuple(node(f"node-{n:04d}", shape) for n in range(n_nodes))
    await loader.load(replace(generate(1, Sizes(1, 1)), nodes=nodes, jobs=()))
    await loader.create(NAMESPACE, {"metadata": {"name": "bench"}})
    turn = asyncio.Semaphore(32)

    async def job(n: int) -> None:
        async with turn:
            name = f"job-{n:05d}"
            group = pod_group(
                name, namespace="bench", queue_name="team-0", min_member=1, priority_class="train"
            )
            requests = {"cpu": "1", "memory": "1Gi", _GPU: "1"}
            one = pod(f"{name}-0", group, requests, run_s=10_000)
            meta = (await loader.create(POD_GROUP, group))["metadata"]
            one["metadata"]["annotations"][GROUP_STAMP] = f"{meta['uid']}/{meta['generation']}"
            await loader.create(POD, one)

    await asyncio.gather(*(job(n) for n in range(n_pods)))


async def _until(crew: "asyncio.Task[None]", done: Any) -> None:
    async with asyncio.timeout(DONE_S):
        while not await done():
            if crew.done():
                crew.result()
            await asyncio.sleep(1)


async def _list(api: ApiServer, resource: Resource) -> list[Any]:
    return list((await api.list(resource))[0])


async def _all_bound(api: ApiServer, n_pods: int) -> bool:
    pods = (await api.list(PODS, fields="spec.nodeName="))[0]
    return not pods


async def _all_right(api: ApiServer, n_pods: int) -> bool:
    groups = await _list(api, POD_GROUPS)
    if not all(_held(one.get("status", {}).get("resourcesStatus", {})) == "1" for one in groups):
        return False
    queues = {one["metadata"]["name"]: one for one in await _list(api, QUEUES)}
    wanted = f"{n_pods // 1000}k" if n_pods % 1000 == 0 else str(n_pods)
    if _held(queues["team-0"].get("status", {})) != wanted:
        return False
    return all(_is_said_bound(one) for one in await _list(api, PODS))


def _held(status: dict[str, Any]) -> str:
    return str(status.get("allocated", {}).get(_GPU, ""))


def _is_said_bound(raw: dict[str, Any]) -> bool:
    conditions = raw["status"].get("conditions", ())
    return any(one["type"] == "PodBound" and one["status"] == "True" for one in conditions)


def _cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime
