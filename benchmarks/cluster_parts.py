"""Shapes `intake` and `binds`: informer and binder on the simulated API server and a SQLite log."""

import asyncio
import resource
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from time import perf_counter
from typing import Any, Final
from zlib import crc32

import aiohttp

from benchmarks.rows import POD
from kai_es.binder.service import Binder
from kai_es.cluster.api import ApiServer
from kai_es.cluster.endpoint import from_kubeconfig
from kai_es.eventlog.sqlite import SqliteLog
from kai_es.eventlog.sqlite_lease import SqliteLeadership
from kai_es.eventlog.sqlite_offsets import SqliteOffsets
from kai_es.events.catalogue import BIND_REQUESTS, BIND_RESULTS, OBJECTS
from kai_es.events.codec import pack
from kai_es.events.requests import BindRequested
from kai_es.intake.service import Informer
from kai_es.ports.eventlog import Out, Position
from kai_es.runtime.clock import SystemClock
from kai_es.simulate.cluster import ClusterProcess

N_PODS: Final = {"intake": 50_000, "binds": 4_000}
N_NODES: Final = 100
N_SINGLE: Final = 50
_UNSET: Final = ("priority", "priorityClassName", "serviceAccountName")


def run_shape(name: str) -> dict[str, Any]:
    """Rates with everything there at once, then latencies of single ones."""
    return asyncio.run(_intake() if name == "intake" else _binds())


class World:
    """A cluster process, a log, and what a client of both needs."""

    def __init__(self, cluster: ClusterProcess, api: ApiServer, log: SqliteLog) -> None:
        self.api = api
        self.log = log
        self.leadership = SqliteLeadership(log)
        self.clock = SystemClock()
        self._url = cluster.url
        self._session = aiohttp.ClientSession(headers=cluster.headers)

    async def close(self) -> None:
        """Close the client's connections."""
        await self._session.close()

    async def create(self, path: str, body: Any) -> Any:
        """The object as the server made it."""
        async with self._session.post(self._url + path, json=body) as answer:
            return await answer.json()

    async def pod(self, name: str) -> Any:
        """A created pod like those of the shape `rows`."""
        spec = {key: value for key, value in POD["spec"].items() if key not in _UNSET}
        labels, annotations = POD["metadata"]["labels"], POD["metadata"]["annotations"]
        metadata = {"name": name, "labels": labels, "annotations": annotations}
        pod = {"metadata": metadata, "spec": spec}
        return await self.create("/api/v1/namespaces/ns/pods", pod)

    async def pods(self, count: int) -> list[Any]:
        """Many created pods."""
        turn = asyncio.Semaphore(32)

        async def one(n: int) -> Any:
            async with turn:
                return await self.pod(f"p{n}")

        return list(await asyncio.gather(*(one(n) for n in range(count))))

    async def next_entry(self, topic: str, prefix: str, ends: dict[int, Position]) -> None:
        """Return when a record whose key begins so stands behind `ends`."""
        seen = asyncio.Event()

        async def follow(partition: int, start: Position) -> None:
            async for entries in self.log.read(topic, partition, start, follow=True):
                if any(entry.key.startswith(prefix) for entry in entries):
                    seen.set()

        followers = [asyncio.create_task(follow(*end)) for end in ends.items()]
        await seen.wait()
        for follower in followers:
            follower.cancel()
        await asyncio.gather(*followers, return_exceptions=True)


@asynccontextmanager
async def _world() -> AsyncIterator[World]:
    with tempfile.TemporaryDirectory() as folder, ClusterProcess(Path(folder) / "cluster") as it:
        async with ApiServer(from_kubeconfig(str(it.kubeconfig))) as api:
            log = SqliteLog(Path(folder) / "log.db")
            world = World(it, api, log)
            await world.create("/api/v1/namespaces", {"metadata": {"name": "ns"}})
            try:
                yield world
            finally:
                await world.close()
                await log.close()


@asynccontextmanager
async def _running(part: Informer | Binder, ready: Callable[[], bool]) -> AsyncIterator[float]:
    """Run a part; gives the seconds until it was ready."""
    began = perf_counter()
    task = asyncio.create_task(part.run())
    while not ready():
        if task.done():
            task.result()
        await asyncio.sleep(0.005)
    try:
        yield perf_counter() - began
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def _cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def _spread(seconds: list[float]) -> dict[str, float]:
    ordered = sorted(seconds)
    return {
        "p50_ms": round(ordered[len(ordered) // 2] * 1000, 1),
        "max_ms": round(ordered[-1] * 1000, 1),
    }


async def _intake() -> dict[str, Any]:
    """Pods listed and durable per second; a restart that finds nothing new; created to durable."""
    count = N_PODS["intake"]
    async with _world() as world:
        await world.pods(count)

        def informer(holder: str) -> Informer:
            return Informer(
                cluster=world.api,
                eventlog=world.log,
                leadership=world.leadership,
                clock=world.clock,
                holder=holder,
            )

        def ready() -> bool:
            return part.leads() and not part.problems()

        part, cpu_s = informer("first"), _cpu_s()
        async with _running(part, ready) as took_s:
            cpu_s = _cpu_s() - cpu_s
            single = []
            for n in range(N_SINGLE):
                ends = dict(await world.log.end(OBJECTS))
                waiting = asyncio.create_task(world.next_entry(OBJECTS, "Pod/", ends))
                await asyncio.sleep(0.02)
                began = perf_counter()
                await world.pod(f"single-{n}")
                await waiting
                single.append(perf_counter() - began)
        part = informer("second")
        async with _running(part, ready) as again_s:
            pass
        return {
            "per_s": round(count / took_s),
            "wall_ms": round(took_s * 1000),
            "cpu_ms_per_pod": round(cpu_s * 1000 / count, 3),
            "restart_ms": round(again_s * 1000),
            "created_to_durable": _spread(single),
        }


async def _binds() -> dict[str, Any]:
    """Binds per second from one transaction of requests; a single request to its result."""
    count = N_PODS["binds"]
    async with _world() as world:
        nodes = [
            (await world.create("/api/v1/nodes", {"metadata": {"name": f"n{n}"}}))["metadata"]
            for n in range(N_NODES)
        ]
        pods = [pod["metadata"] for pod in await world.pods(count)]
        epoch = await world.log.take_over("scheduler-bench")
        binder = Binder(
            cluster=world.api,
            eventlog=world.log,
            leadership=world.leadership,
            offsets=SqliteOffsets(world.log),
            clock=world.clock,
            holder="bench",
        )
        async with _running(binder, binder.leads):
            began, cpu_s = perf_counter(), _cpu_s()
            requests = [_request(p, nodes[n % N_NODES], world) for n, p in enumerate(pods)]
            await world.log.append(epoch, requests)
            while await _results(world) < count:
                await asyncio.sleep(0.02)
            took_s, cpu_s = perf_counter() - began, _cpu_s() - cpu_s
            single = []
            for n in range(N_SINGLE):
                pod = (await world.pod(f"single-{n}"))["metadata"]
                request = _request(pod, nodes[0], world)
                ends = dict(await world.log.end(BIND_RESULTS))
                waiting = asyncio.create_task(world.next_entry(BIND_RESULTS, pod["uid"], ends))
                await asyncio.sleep(0.02)
                sent = perf_counter()
                await world.log.append(epoch, [request])
                await waiting
                single.append(perf_counter() - sent)
        return {
            "per_s": round(count / took_s),
            "wall_ms": round(took_s * 1000),
            "cpu_ms_per_bind": round(cpu_s * 1000 / count, 3),
            "request_to_result": _spread(single),
        }


async def _results(world: World) -> int:
    """Results there are; positions are dense in this log without faults."""
    return sum((await world.log.end(BIND_RESULTS)).values())


def _request(pod: Any, node: Any, world: World) -> Out:
    request = BindRequested(
        request_id=f"bench/1/{pod['uid']}",
        shard="bench",
        cycle=1,
        epoch=1,
        namespace="ns",
        pod=pod["name"],
        pod_uid=pod["uid"],
        pod_rv=int(pod["resourceVersion"]),
        node=node["name"],
        node_uid=node["uid"],
        group_uid="g",
        not_after_ms=world.clock.now_ms() + 120_000,
    )
    envelope = pack(
        request,
        topic=BIND_REQUESTS,
        record_id=request.request_id,
        event_time=world.clock.now_ms(),
        ingest_time=world.clock.now_ms(),
        producer="bench",
    )
    return Out(BIND_REQUESTS, request.pod_uid, crc32(node["name"].encode()) % 8, envelope)
