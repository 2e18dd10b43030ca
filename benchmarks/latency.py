"""Shapes `latency` and `latency-kafka`: a pod created → its binding applied, on an idle cluster.

500 simulated nodes behind the simulated API server; one pod at a time, at moments that chance
chooses, seen by a watch. `latency` is what `kai-es up --embedded` runs: all parts in one process on
SQLite, the books with them. `latency-kafka` runs informer, snapshot, scheduler and binder as
processes of their own on a broker (`KAI_ES_TEST_KAFKA`, or one that shares the cores).
"""

import asyncio
import contextlib
import json
import os
import random
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from time import perf_counter
from typing import Any, Final

import aiohttp

from kai_es.cluster.endpoint import from_kubeconfig
from kai_es.kube.labels import GROUP_STAMP
from kai_es.runtime.clock import SystemClock
from kai_es.runtime.embedded import ALL_PARTS, Stack, embedded
from kai_es.runtime.settings import Settings
from kai_es.runtime.supervise import Child
from kai_es.simulate.client import Client
from kai_es.simulate.kinds import NAMESPACE, POD, POD_GROUP
from kai_es.simulate.loader import Loader
from kai_es.simulate.workload import Sizes, generate, pod, pod_group
from tools.kafka import Broker
from tools.process import free_port

N_NODES: Final = 500
N_WARM: Final = 20
N_PODS: Final = 300
RUN_S: Final = 5.0
GAP_S: Final = (0.1, 0.3)
"""Between pods; the next comes after the last is bound, so that nothing waits for another."""

READY_S: Final = 120.0
BOUND_S: Final = 30.0

Bound = Callable[[str], "asyncio.Future[float]"]


def run_shape(name: str) -> dict[str, Any]:
    """Milliseconds from the request that creates a pod to the event that shows it bound."""
    with tempfile.TemporaryDirectory() as folder:
        return asyncio.run(_measure(Path(folder), on_kafka=name == "latency-kafka"))


async def _measure(folder: Path, *, on_kafka: bool) -> dict[str, Any]:
    async with embedded(Settings(data=folder / "instance")) as stack:
        await stack.start_cluster(seed=1)
        async with _parts(stack, folder, on_kafka=on_kafka) as doors:
            endpoint = from_kubeconfig(stack.settings.kubeconfig)
            async with Client(endpoint, "kai-es-bench") as client:
                loader = Loader(client, SystemClock())
                await loader.load(replace(generate(1, Sizes(N_NODES, 1)), jobs=()))
                await loader.create(NAMESPACE, {"metadata": {"name": "bench"}})
                await _all_ready(doors)
                headers = await endpoint.headers()
                async with _watched(endpoint.url, headers) as bound:
                    waits = [await _one(loader, n, bound) for n in range(N_WARM + N_PODS)]
    waits = sorted(waits[N_WARM:])
    return {
        "wall_ms": round(sum(waits)),
        "n_nodes": N_NODES,
        "n_pods": N_PODS,
        "p50_ms": round(waits[N_PODS // 2], 1),
        "p99_ms": round(waits[N_PODS * 99 // 100], 1),
        "max_ms": round(waits[-1], 1),
    }


@asynccontextmanager
async def _parts(stack: Stack, folder: Path, *, on_kafka: bool) -> AsyncIterator[list[str]]:
    """Start the parts; gives the addresses of their doors. They end before their broker does."""
    if not on_kafka:
        address = f"127.0.0.1:{free_port()}"
        stack.start_parts(ALL_PARTS, listen=address)
        yield [address]
        return
    async with contextlib.AsyncExitStack() as closing:
        bootstrap = os.environ.get("KAI_ES_TEST_KAFKA")
        if not bootstrap:
            broker = Broker(folder / "kafka")
            closing.callback(broker.close)
            broker.start()
            bootstrap = broker.address
        doors = {
            name: f"127.0.0.1:{free_port()}"
            for name in ("informer", "snapshot", "scheduler", "binder")
        }
        for name, address in doors.items():
            argv = ["-m", "kai_es.cli", "run", name, "--exit-with-stdin", "--listen", address]
            argv += ["--data", str(stack.instance.root), "--kubeconfig", stack.settings.kubeconfig]
            argv += ["--kafka", bootstrap, "--prefix", f"bench-{os.getpid()}"]
            stack.supervisor.start(Child(name, argv))
            closing.push_async_callback(stack.supervisor.stop, name)
        yield list(doors.values())


async def _all_ready(doors: list[str]) -> None:
    async with asyncio.timeout(READY_S), aiohttp.ClientSession() as session:
        for address in doors:
            while not await _is_ready(session, address):
                await asyncio.sleep(0.1)


async def _is_ready(session: aiohttp.ClientSession, address: str) -> bool:
    try:
        async with session.get(f"http://{address}/readyz") as answer:
            return answer.status == 200
    except aiohttp.ClientError:
        return False


@asynccontextmanager
async def _watched(url: str, headers: dict[str, str]) -> AsyncIterator[Bound]:
    """Tells when a pod is first seen bound."""
    seen: dict[str, asyncio.Future[float]] = {}
    began = asyncio.Event()

    def bound(name: str) -> "asyncio.Future[float]":
        return seen.setdefault(name, asyncio.get_running_loop().create_future())

    async def watch(session: aiohttp.ClientSession) -> None:
        async with session.get(f"{url}/api/v1/pods?watch=true") as answer:
            began.set()
            async for line in answer.content:
                event = json.loads(line)
                if event["type"] == "MODIFIED" and event["object"]["spec"].get("nodeName"):
                    future = bound(event["object"]["metadata"]["name"])
                    if not future.done():
                        future.set_result(perf_counter())

    timeout = aiohttp.ClientTimeout(total=None)
    async with aiohttp.ClientSession(headers=headers, timeout=timeout) as session:
        watching = asyncio.create_task(watch(session))
        await began.wait()
        try:
            yield bound
        finally:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)


_chance: Final = random.Random(1)


async def _one(loader: Loader, number: int, bound: Bound) -> float:
    """Milliseconds of one pod; its group is created right before."""
    await asyncio.sleep(_chance.uniform(*GAP_S))
    name = f"job-{number:05d}"
    group = pod_group(
        name, namespace="bench", queue_name="team-0", min_member=1, priority_class="train"
    )
    requests = {"cpu": "1", "memory": "1Gi", "nvidia.com/gpu": "1"}
    one = pod(f"{name}-0", group, requests, run_s=RUN_S)
    done = bound(f"{name}-0")
    meta = (await loader.create(POD_GROUP, group))["metadata"]
    one["metadata"]["annotations"][GROUP_STAMP] = f"{meta['uid']}/{meta['generation']}"
    began = perf_counter()
    await loader.create(POD, one)
    async with asyncio.timeout(BOUND_S):
        return (await done - began) * 1000
