"""API server, kubelet, generator and loader together, with a scheduler of forty lines."""

import asyncio
from pathlib import Path

import msgspec
import pytest

from kai_es.cluster.api import ApiServer
from kai_es.cluster.endpoint import from_kubeconfig
from kai_es.ports.clock import Clock
from kai_es.ports.cluster import NODES, PODS
from kai_es.simulate.client import Client
from kai_es.simulate.cluster import ClusterProcess, WallClock
from kai_es.simulate.loader import Loader
from kai_es.simulate.rooms import offered, requested
from kai_es.simulate.workload import Sizes, Workload, generate

ENDED = ("Succeeded", "Failed")


class FirstFit:
    """Binds each pod to the first node with room; knows nothing of gangs."""

    def __init__(self, reader: ApiServer, client: Client, n_pods: int) -> None:
        self.reader, self.client, self.n_pods = reader, client, n_pods
        self.free: dict[str, dict[str, float]] = {}
        self.waiting: dict[str, dict] = {}
        self.bound: dict[str, tuple[str, dict]] = {}
        self.ended: set[str] = set()

    async def run(self) -> None:
        for node in (await self.reader.list_page(NODES, limit=1000, token="")).items:
            self.free[node["metadata"]["name"]] = offered(node)
        page = await self.reader.list_page(PODS, limit=100_000, token="")
        for pod in page.items:
            self.see(pod)
        await self.bind()
        async for items in self.reader.watch(PODS, rv=page.rv, silence_s=60):
            for item in items:
                if item.type != "BOOKMARK":
                    self.see(item.object)
            await self.bind()
            if len(self.ended) == self.n_pods:
                return

    def see(self, pod: dict) -> None:
        uid = pod["metadata"]["uid"]
        if pod["status"]["phase"] in ENDED and uid not in self.ended:
            self.ended.add(uid)
            node, asked = self.bound[uid]
            for key, amount in asked.items():
                self.free[node][key] += amount
        elif uid not in self.bound:
            self.waiting[uid] = pod

    async def bind(self) -> None:
        for uid, pod in list(self.waiting.items()):
            asked = requested(pod)
            room = (n for n, free in self.free.items() if _fits(asked, free))
            node = next(room, None)
            if node is None:
                continue
            for key, amount in asked.items():
                self.free[node][key] -= amount
            del self.waiting[uid]
            self.bound[uid] = node, asked
            meta = pod["metadata"]
            path = f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}/binding"
            binding = {"metadata": {"name": meta["name"], "uid": uid}, "target": {"name": node}}
            status, answer = await self.client.call("POST", path, msgspec.json.encode(binding))
            assert status == 201, answer


def _fits(asked: dict, free: dict) -> bool:
    return all(free.get(key, 0) >= amount for key, amount in asked.items())


async def run(directory: Path, workload: Workload, clock: Clock) -> tuple[ClusterProcess, float]:
    process = await asyncio.to_thread(ClusterProcess(directory).start)
    endpoint = from_kubeconfig(str(process.kubeconfig))
    start = clock.monotonic_s()
    try:
        async with ApiServer(endpoint) as reader, Client(endpoint, "test") as client:
            loader = Loader(client, clock)
            await loader.load(Workload(workload.nodes, (), (), ()))
            async with asyncio.timeout(120), asyncio.TaskGroup() as tasks:
                tasks.create_task(loader.load(workload))
                tasks.create_task(FirstFit(reader, client, workload.n_pods).run())
    finally:
        await asyncio.to_thread(process.stop)
    return process, clock.monotonic_s() - start


def check(process: ClusterProcess, workload: Workload) -> None:
    runs = process.runs()
    assert {r.outcome for r in runs} == {"succeeded"}
    assert len(runs) == workload.n_pods
    binds = [r.uid for r in process.ledger() if r.subresource == "binding" and r.status == 201]
    assert len(binds) == len(set(binds)) == workload.n_pods
    assert_devices_held_once(runs)


def assert_devices_held_once(runs: list) -> None:
    """No device of a node has two pods at a time."""
    events = [(r.bound_ms, 1, r) for r in runs] + [(r.ended_ms, 0, r) for r in runs]
    holders: dict[tuple[str, int], str] = {}
    for _, comes, r in sorted(events, key=lambda e: e[:2]):
        for device in r.devices:
            if comes:
                assert (r.node, device) not in holders
                holders[r.node, device] = r.pod_uid
            else:
                del holders[r.node, device]
    assert not holders


async def test_small_workload_ends(tmp_path: Path):
    workload = generate(1, Sizes(n_nodes=5, n_jobs=40, n_queues=2, arrival_s=1.0))
    short = tuple(_shortened(job) for job in workload.jobs)
    workload = Workload(workload.nodes, workload.queues, workload.priority_classes, short)
    process, _ = await run(tmp_path, workload, WallClock())
    check(process, workload)


def _shortened(job):
    for pod in job.pods:
        pod["metadata"]["annotations"]["kai.scheduler/simulated-run-seconds"] = "0.1"
    return job


@pytest.mark.long
async def test_workload_of_the_demo_ends_in_a_minute(tmp_path: Path):
    workload = generate(1)
    process, took_s = await run(tmp_path, workload, WallClock())
    check(process, workload)
    assert took_s < 60
