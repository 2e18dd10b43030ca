"""A real kube-apiserver with kubelets and kai-es on it, and who used how much of what.

The API server writes an audit line per write, so that writes are counted by who made them; that
costs it about 1 % of its time.
"""

import asyncio
import sys
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any, Final, NamedTuple

import aiohttp
import msgspec
import psutil
import yaml

from kai_es.cluster.api import USER_AGENT, ApiServer
from kai_es.cluster.endpoint import from_kubeconfig
from kai_es.kube.labels import GROUP_STAMP
from kai_es.ports.cluster import PODS, Resource
from kai_es.runtime.clock import SystemClock
from kai_es.runtime.embedded import ALL_PARTS, Stack, embedded
from kai_es.runtime.settings import Settings
from kai_es.runtime.supervise import Child
from kai_es.simulate.client import CONNECTIONS, Client
from kai_es.simulate.kinds import POD, POD_GROUP
from kai_es.simulate.loader import Loader
from kai_es.simulate.workload import (
    Job,
    NodeShape,
    Workload,
    node,
    pod,
    pod_group,
    priority_classes,
    queue,
)
from kai_es.status.groups import POD_GROUPS
from kai_es.status.pods import POD_BOUND
from tools.kubernetes import Kubernetes
from tools.process import free_port, start, stop

SPACE: Final = "bench"
GPU: Final = "nvidia.com/gpu"
See = Callable[[dict[str, Any], float], None]
SHAPE: Final = NodeShape(8, "NVIDIA-H100", 81_920, 128_000, 2**20)
N_CEILING: Final = 800
"""Pods that a bare client creates and binds to see what the server can do."""
READY_S: Final = 120.0
DONE_S: Final = 600.0
_CRDS: Final = Path(__file__).parents[1] / "deploy" / "crds"
_DEFINITIONS: Final = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_WRITES: Final = ("create", "update", "patch", "delete", "deletecollection")
_POLICY: Final = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [{"level": "Metadata", "verbs": list(_WRITES)}, {"level": "None"}],
}


class Seen(NamedTuple):
    """Moments (`perf_counter`) at which a plain watcher saw something of a pod first.

    told:    that its condition says that it was bound.
    counted: of a pod group, that its status says what it holds.
    """

    bound: dict[str, float]
    running: dict[str, float]
    told: dict[str, float]
    counted: dict[str, float]


class RealCluster:
    """The server, a client of it, a watcher, and the instance that the parts belong to.

    door: address of the parts' doors.
    """

    def __init__(self, server: Kubernetes, client: Client, stack: Stack, kubelet_pid: int) -> None:
        self.server, self.client, self.stack = server, client, stack
        self.loader = Loader(client, SystemClock())
        self.seen = Seen({}, {}, {}, {})
        self.created: dict[str, float] = {}
        self.door = f"127.0.0.1:{free_port()}"
        self._kubelet_pid = kubelet_pid

    # -- objects

    async def furnish(self, n_nodes: int, n_more: int = 0) -> None:
        """Nodes of eight GPUs, a department with two teams that share them evenly.

        Args:
            n_nodes: how many.
            n_more: GPUs more than half that the second team has a right to, the first has less.
        """
        nodes = tuple(node(f"node-{n:04d}", SHAPE) for n in range(n_nodes))
        half = n_nodes * SHAPE.n_gpus / 2
        queues = (
            queue("department"),
            queue("team-a", parent="department", gpu_quota=half - n_more),
            queue("team-b", parent="department", gpu_quota=half + n_more),
        )
        await self.loader.load(Workload(nodes, queues, priority_classes(), ()))
        await self.call("POST", "/api/v1/namespaces", {"metadata": {"name": SPACE}})

    async def submit(self, jobs: Sequence[Job]) -> None:
        """Create pod groups and their pods, each pod right after its group."""
        turn = asyncio.Semaphore(CONNECTIONS)

        async def one(job: Job) -> None:
            async with turn:
                meta = (await self.loader.create(POD_GROUP, job.group))["metadata"]
            stamp = {GROUP_STAMP: f"{meta['uid']}/{meta['generation']}"}
            await asyncio.gather(*(one_pod(made, stamp) for made in job.pods))

        async def one_pod(made: Any, stamp: dict[str, str]) -> None:
            made["metadata"]["annotations"] |= stamp
            async with turn:
                self.created[made["metadata"]["name"]] = perf_counter()
                await self.loader.create(POD, made)

        await asyncio.gather(*map(one, jobs))

    async def call(self, method: str, path: str, body: object = None) -> Any:
        """The answer of a request that must succeed."""
        data = b"" if body is None else msgspec.json.encode(body)
        status, answer = await self.client.call(method, path, data)
        assert status < 300, answer[:500]
        return msgspec.json.decode(answer)

    async def ceiling(self) -> dict[str, float]:
        """Creates and binds per second of a bare client, with nobody else at work."""
        group = pod_group("bare", namespace=SPACE, queue_name="", min_member=1, priority_class="")
        names = [f"bare-{n}" for n in range(N_CEILING)]
        bodies = [pod(name, group, {"cpu": "1"}, run_s=None) for name in names]
        for body in bodies:
            body["spec"] |= {"schedulerName": "nobody", "priorityClassName": ""}
        path = f"/api/v1/namespaces/{SPACE}/pods"
        creates = await self._rate(("POST", path, body) for body in bodies)
        target = {"kind": "Node", "name": "none"}
        binds = await self._rate(
            ("POST", f"{path}/{name}/binding", {"metadata": {"name": name}, "target": target})
            for name in names
        )
        await self._rate(("DELETE", f"{path}/{name}", {"gracePeriodSeconds": 0}) for name in names)
        return {"bare_creates_per_s": creates, "bare_binds_per_s": binds}

    async def _rate(self, calls: Iterable[tuple[str, str, Any]]) -> float:
        turn = asyncio.Semaphore(CONNECTIONS)

        async def one(method: str, path: str, body: Any) -> None:
            async with turn:
                await self.call(method, path, body)

        start_s = perf_counter()
        done = await asyncio.gather(*(one(*call) for call in calls))
        return round(len(done) / (perf_counter() - start_s), 1)

    # -- the parts

    def start_parts(self, *apart: str) -> None:
        """Start what `kai-es up --embedded` starts, some of it in processes of their own."""
        together = [name for name in ALL_PARTS if name not in apart]
        self.stack.start_parts(together, listen=self.door)
        for name in apart:
            argv = ["-m", "kai_es.cli", "run", name, "--exit-with-stdin"]
            argv += ["--listen", f"127.0.0.1:{free_port()}", "--kubeconfig", self.server.address]
            argv += ["--data", str(self.stack.instance.root)]
            self.stack.supervisor.start(Child(name, argv))

    async def ready(self) -> None:
        """Wait until the parts have nothing to complain about."""
        async with asyncio.timeout(READY_S), aiohttp.ClientSession() as session:
            while not await _is_ready(session, self.door):
                await asyncio.sleep(0.1)

    async def until(self, what: Any, *, seconds: float = DONE_S) -> float:
        """The moment at which `what()` became true."""
        async with asyncio.timeout(seconds):
            while not what():
                await asyncio.sleep(0.01)
        return perf_counter()

    # -- measures

    def cpu_s(self) -> dict[str, float]:
        """CPU seconds used so far."""
        folder = str(self.stack.instance.postgres)
        database = [
            p for p in psutil.process_iter(["name", "cmdline"]) if p.info["name"] == "postgres"
        ]
        roots = [p.pid for p in database if any(folder in word for word in p.info["cmdline"] or ())]
        pids = {
            **{child.name: [child.pid] for child in self.stack.supervisor.children},
            "postgres": [q.pid for r in roots for q in _tree(r)],
            "apiserver": [self.server.pids()[0]],
            "etcd": [self.server.pids()[1]],
            "kubelet": [self._kubelet_pid],
        }
        return {name: sum(map(_cpu_s, some)) for name, some in pids.items()}

    def writes(self) -> Counter[str]:
        """Writes of our parts so far, by verb and resource."""
        found: Counter[str] = Counter()
        with (self.server.home / "audit.log").open("rb") as lines:
            for line in lines:
                if not line.endswith(b"\n"):
                    break
                said = msgspec.json.decode(line, type=_Audit)
                if said.userAgent == USER_AGENT and said.responseStatus.get("code", 0) < 300:
                    target = said.objectRef
                    sub = f"/{target['subresource']}" if target.get("subresource") else ""
                    found[f"{said.verb} {target['resource']}{sub}"] += 1
        return found


class _Audit(msgspec.Struct):
    """What is looked at of an audit line."""

    verb: str
    objectRef: dict[str, Any]  # noqa: N815 - the field's own name
    userAgent: str = ""  # noqa: N815
    responseStatus: dict[str, Any] = {}  # noqa: N815


@asynccontextmanager
async def real_cluster(n_nodes: int, n_more: int = 0) -> AsyncIterator[RealCluster]:
    """Everything up but the parts, furnished with nodes and queues (`RealCluster.furnish`)."""
    async with AsyncExitStack() as closing:
        folder = Path(closing.enter_context(tempfile.TemporaryDirectory()))
        server = await asyncio.to_thread(_server, folder / "kubernetes")
        closing.push_async_callback(asyncio.to_thread, server.close)
        await asyncio.to_thread(server.start)
        kubelet = start(_kubelet(server, folder), log=folder / "kubelet.log")
        closing.callback(stop, kubelet)
        endpoint = from_kubeconfig(server.address)
        client = await closing.enter_async_context(Client(endpoint, "kai-es-bench"))
        settings = Settings(data=folder / "instance", kubeconfig=server.address)
        stack = await closing.enter_async_context(embedded(settings))
        made = RealCluster(server, client, stack, kubelet.pid)
        await _define(made)
        await made.furnish(n_nodes, n_more)
        reader = await closing.enter_async_context(ApiServer(endpoint))
        watching = [
            asyncio.create_task(_watch(reader, PODS, partial(_see_pod, made.seen))),
            asyncio.create_task(_watch(reader, POD_GROUPS, partial(_see_group, made.seen))),
        ]
        try:
            yield made
        finally:
            for task in watching:
                task.cancel()
            await asyncio.gather(*watching, return_exceptions=True)


def _server(home: Path) -> Kubernetes:
    home.mkdir()
    (home / "policy.yaml").write_text(yaml.safe_dump(_POLICY))
    options = (f"--audit-policy-file={home / 'policy.yaml'}",)
    return Kubernetes(home, (*options, f"--audit-log-path={home / 'audit.log'}"))


def _kubelet(server: Kubernetes, folder: Path) -> list[str]:
    module = [sys.executable, "-m", "kai_es.simulate.kubelet_http"]
    return [*module, "--kubeconfig", server.address, "--data", str(folder / "kubelet")]


async def _define(cluster: RealCluster) -> None:
    """Define our kinds and wait until they are served."""
    paths = []
    for file in sorted(_CRDS.glob("*.yaml")):
        definition = yaml.safe_load(file.read_text())
        await cluster.call("POST", _DEFINITIONS, definition)
        spec = definition["spec"]
        version = spec["versions"][0]["name"]
        paths.append(f"/apis/{spec['group']}/{version}/{spec['names']['plural']}")
    async with asyncio.timeout(READY_S):
        for path in paths:
            while (await cluster.client.call("GET", path))[0] != 200:
                await asyncio.sleep(0.1)


async def _watch(reader: ApiServer, resource: Resource, see: See) -> None:
    """Show every version there is from now on."""
    rv = (await reader.list_page(resource, limit=1, token="")).rv
    while True:
        async for items in reader.watch(resource, rv=rv, silence_s=300):
            now = perf_counter()
            for item in items:
                rv = int(item.object["metadata"]["resourceVersion"])
                see(item.object, now)


def _see_pod(seen: Seen, raw: dict[str, Any], now: float) -> None:
    name = raw["metadata"].get("name", "")
    if raw.get("spec", {}).get("nodeName"):
        seen.bound.setdefault(name, now)
    status = raw.get("status", {})
    if status.get("phase") == "Running":
        seen.running.setdefault(name, now)
    for one in status.get("conditions", ()):
        if one["type"] == POD_BOUND and one["status"] == "True":
            seen.told.setdefault(name, now)


def _see_group(seen: Seen, raw: dict[str, Any], now: float) -> None:
    if raw.get("status", {}).get("resourcesStatus", {}).get("allocated", {}).get(GPU):
        seen.counted.setdefault(raw["metadata"]["name"], now)


async def _is_ready(session: aiohttp.ClientSession, address: str) -> bool:
    try:
        async with session.get(f"http://{address}/readyz") as answer:
            return answer.status == 200
    except aiohttp.ClientError:
        return False


def _tree(pid: int) -> Iterator[psutil.Process]:
    try:
        process = psutil.Process(pid)
        yield process
        yield from process.children(recursive=True)
    except psutil.NoSuchProcess:
        return


def _cpu_s(pid: int | None) -> float:
    if pid is None:
        return 0.0
    try:
        times = psutil.Process(pid).cpu_times()
    except psutil.NoSuchProcess:
        return 0.0
    return float(times.user + times.system)
