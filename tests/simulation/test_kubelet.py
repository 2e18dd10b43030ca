"""The simulated kubelet on an API server in this process."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import msgspec
import pytest

from kai_es.simulate.answers import MERGE_PATCH
from kai_es.simulate.api import Call
from kai_es.simulate.cluster import ClusterProcess, SimulatedCluster, WallClock
from kai_es.simulate.faults import Fault
from kai_es.simulate.kinds import NODE, POD
from kai_es.simulate.kubelet import Kubelet
from kai_es.simulate.kubelet_http import serve
from kai_es.simulate.kubelet_local import LocalApi
from kai_es.simulate.rooms import requested
from kai_es.simulate.runs import RunLedger, read_runs
from kai_es.simulate.verbs import Target
from tests.simulation.api_client import PODS, Api, a_binding

QUICK = {"start_ms": (1, 5), "stop_ms": (1, 5)}


class Cluster(SimulatedCluster):
    """An API server and one kubelet that a test may restart."""

    async def call(self, method: str, target: Target, body: object = None, kind: str = "") -> dict:
        content_type = kind or "application/json"
        call = Call(method, target, {}, msgspec.json.encode(body), content_type)
        answer = await self.api.write(call)
        assert answer.status < 300, answer.body
        return msgspec.json.decode(answer.body)

    async def node(self, name: str, **allocatable: str) -> None:
        amounts = {"cpu": "4", "memory": "8Gi", "pods": "10", "nvidia.com/gpu": "2"} | allocatable
        await self.call(
            "POST",
            Target(NODE),
            {"metadata": {"name": name}, "status": {"allocatable": amounts, "capacity": amounts}},
        )

    async def pod(self, name: str, node: str = "n1", **more: object) -> None:
        requests = {"cpu": "1", "nvidia.com/gpu": "1"} | more.pop("requests", {})
        meta = {"name": name, "annotations": {}} | more
        if (seconds := meta.pop("run_seconds", None)) is not None:
            meta["annotations"] |= {"kai.scheduler/simulated-run-seconds": seconds}
        container = {"name": "main", "image": "x", "resources": {"requests": requests}}
        target = Target(POD, "default")
        await self.call("POST", target, {"metadata": meta, "spec": {"containers": [container]}})
        target = Target(POD, "default", name, "binding")
        await self.call("POST", target, {"metadata": {"name": name}, "target": {"name": node}})

    def get(self, name: str) -> dict | None:
        self.store.settle()
        stored = self.store.get(POD, f"default/{name}")
        return stored.object() if stored else None

    def phase(self, name: str) -> str:
        pod = self.get(name)
        return pod["status"]["phase"] if pod else "gone"

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(5):
            while not condition():
                await asyncio.sleep(0.002)

    @contextlib.asynccontextmanager
    async def kubelet(self, **options: object) -> AsyncIterator[None]:
        ledger = RunLedger(self.data / "kubelet.db")
        kubelet = Kubelet(LocalApi(self.api), ledger, WallClock(), **(QUICK | options))
        task = asyncio.create_task(kubelet.run())
        yield
        task.cancel()
        await asyncio.wait([task])
        ledger.close()
        assert task.cancelled(), task.exception()


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Cluster]:
    async with Cluster(tmp_path, kubelet=False) as cluster:
        yield cluster


async def test_bound_pod_runs_and_succeeds_after_its_time(cluster: Cluster):
    await cluster.node("n1")
    async with cluster.kubelet():
        await cluster.pod("a", run_seconds="0.05")
        await cluster.until(lambda: cluster.phase("a") == "Running")
        status = cluster.get("a")["status"]
        conditions = {c["type"]: c["status"] for c in status["conditions"]}
        assert conditions["Ready"] == conditions["PodScheduled"] == "True"
        assert status["containerStatuses"][0]["ready"] is True
        assert status["startTime"]
        await cluster.until(lambda: cluster.phase("a") == "Succeeded")
    [run] = cluster.runs()
    assert run.resources == {"cpu": 1000, "nvidia.com/gpu": 1, "pods": 1}
    assert run.devices == (0,)
    assert run.outcome == "succeeded"
    assert run.bound_ms <= run.started_ms
    assert 50 <= run.ended_ms - run.started_ms < 1000


async def test_pod_without_a_time_runs_on(cluster: Cluster):
    await cluster.node("n1")
    async with cluster.kubelet():
        await cluster.pod("a")
        await cluster.until(lambda: cluster.phase("a") == "Running")
        await asyncio.sleep(0.05)
        assert cluster.phase("a") == "Running"
    assert [(r.outcome, r.ended_ms) for r in cluster.runs()] == [("", 0)]


async def test_unbound_pod_is_left_alone(cluster: Cluster):
    container = {"name": "main", "image": "x"}
    body = {"metadata": {"name": "a"}, "spec": {"containers": [container]}}
    await cluster.call("POST", Target(POD, "default"), body)
    async with cluster.kubelet():
        await asyncio.sleep(0.03)
    assert cluster.phase("a") == "Pending"
    assert cluster.runs() == []


async def test_deleted_pod_is_stopped_and_removed(cluster: Cluster):
    await cluster.node("n1")
    async with cluster.kubelet():
        await cluster.pod("a")
        await cluster.until(lambda: cluster.phase("a") == "Running")
        await cluster.call("DELETE", Target(POD, "default", "a"))
        assert cluster.phase("a") == "Running"
        await cluster.until(lambda: cluster.phase("a") == "gone")
    [run] = cluster.runs()
    assert run.outcome == "deleted"
    assert run.ended_ms >= run.started_ms


async def test_pod_deleted_by_force_is_noticed(cluster: Cluster):
    await cluster.node("n1")
    async with cluster.kubelet():
        await cluster.pod("a")
        await cluster.until(lambda: cluster.phase("a") == "Running")
        await cluster.call("DELETE", Target(POD, "default", "a"), {"gracePeriodSeconds": 0})
        await cluster.until(lambda: cluster.runs()[0].outcome == "deleted")


async def test_finalizer_keeps_a_stopped_pod_without_its_resources(cluster: Cluster):
    await cluster.node("n1")
    async with cluster.kubelet():
        await cluster.pod("a", finalizers=["kai.scheduler/test"], requests={"nvidia.com/gpu": "2"})
        await cluster.until(lambda: cluster.phase("a") == "Running")
        await cluster.call("DELETE", Target(POD, "default", "a"))
        await cluster.until(lambda: cluster.phase("a") == "Failed")
        await cluster.pod("b", requests={"nvidia.com/gpu": "2"})
        await cluster.until(lambda: cluster.phase("b") == "Running")
        ended = cluster.runs()[0].ended_ms
        await cluster.call(
            "PATCH", Target(POD, "default", "a"), {"metadata": {"finalizers": None}}, MERGE_PATCH
        )
        assert cluster.phase("a") == "gone"
        assert cluster.runs()[0].ended_ms == ended


@pytest.mark.parametrize(
    ("requests", "reason"),
    [
        ({"cpu": "3500m"}, "OutOfcpu"),
        ({"memory": "9Gi"}, "OutOfmemory"),
        ({"nvidia.com/gpu": "2"}, "UnexpectedAdmissionError"),
        ({"example.com/none": "1"}, "UnexpectedAdmissionError"),
    ],
)
async def test_pod_that_does_not_fit_is_refused(cluster: Cluster, requests: dict, reason: str):
    await cluster.node("n1")
    async with cluster.kubelet():
        await cluster.pod("first")
        await cluster.until(lambda: cluster.phase("first") == "Running")
        await cluster.pod("second", requests=requests)
        await cluster.until(lambda: cluster.phase("second") == "Failed")
    assert cluster.get("second")["status"]["reason"] == reason
    assert [r.outcome for r in cluster.runs()] == ["", reason]


async def test_node_with_all_its_pods_refuses_one_more(cluster: Cluster):
    await cluster.node("n1", pods="1")
    async with cluster.kubelet():
        await cluster.pod("first", requests={"nvidia.com/gpu": "0"})
        await cluster.pod("second", requests={"nvidia.com/gpu": "0"})
        await cluster.until(lambda: cluster.phase("second") == "Failed")
    assert cluster.get("second")["status"]["reason"] == "OutOfpods"


async def test_ended_pod_makes_room(cluster: Cluster):
    await cluster.node("n1")
    async with cluster.kubelet():
        await cluster.pod("a", requests={"nvidia.com/gpu": "2"}, run_seconds="0")
        await cluster.until(lambda: cluster.phase("a") == "Succeeded")
        await cluster.pod("b", requests={"nvidia.com/gpu": "2"})
        await cluster.until(lambda: cluster.phase("b") == "Running")


async def test_pod_waits_for_its_node(cluster: Cluster):
    async with cluster.kubelet():
        await cluster.pod("a", node="later")
        await asyncio.sleep(0.03)
        assert cluster.phase("a") == "Pending"
        await cluster.node("later")
        await cluster.until(lambda: cluster.phase("a") == "Running")


async def test_reservation_pod_tells_its_device(cluster: Cluster):
    await cluster.node("n1")
    async with cluster.kubelet():
        await cluster.pod("first")
        await cluster.pod("r", labels={"runai-gpu-group": "g"})
        await cluster.until(lambda: cluster.phase("r") == "Running")
    notes = cluster.get("r")["metadata"]["annotations"]
    assert notes["run.ai/reserve_for_gpu_index"] == "GPU-n1-1"


async def test_bad_duration_is_told(cluster: Cluster):
    await cluster.node("n1")
    async with cluster.kubelet():
        await cluster.pod("a", run_seconds="soon")
        await cluster.until(lambda: cluster.phase("a") == "Failed")
    assert "simulated-run-seconds is 'soon'" in cluster.get("a")["status"]["message"]


async def test_restarted_kubelet_goes_on_where_the_last_one_stopped(cluster: Cluster):
    await cluster.node("n1", **{"nvidia.com/gpu": "3"})
    async with cluster.kubelet():
        await cluster.pod("long", run_seconds="0.2")
        await cluster.until(lambda: cluster.phase("long") == "Running")
    started = cluster.runs()[0].started_ms
    await cluster.pod("new", run_seconds="0")
    await cluster.pod("gone")
    async with cluster.kubelet(start_ms=(10_000, 10_000)):
        await cluster.until(lambda: len(cluster.runs()) == 3)
    await cluster.call("DELETE", Target(POD, "default", "gone"), {"gracePeriodSeconds": 0})
    async with cluster.kubelet():
        await cluster.until(lambda: cluster.phase("new") == "Succeeded")
        await cluster.until(lambda: cluster.phase("long") == "Succeeded")
    runs = {r.name: r for r in cluster.runs()}
    assert runs["long"].started_ms == started
    assert 200 <= runs["long"].ended_ms - started < 1500
    assert [runs[name].outcome for name in ("long", "new", "gone")] == [
        *["succeeded"] * 2,
        "deleted",
    ]
    assert sorted(r.devices for r in runs.values()) == [(0,), (1,), (2,)]


async def test_latency_depends_on_seed_and_pod_alone(cluster: Cluster):
    ledger = RunLedger(None)
    one, same, other = (
        Kubelet(LocalApi(cluster.api), ledger, WallClock(), seed=seed) for seed in (1, 1, 2)
    )
    latencies = [[k._latency(f"uid-{i}", (20, 200)) for i in range(50)] for k in (one, same, other)]
    assert latencies[0] == latencies[1] != latencies[2]
    assert all(20 <= ms <= 200 for ms in latencies[0])
    ledger.close()


def test_request_is_the_sum_or_the_greediest_init_container():
    def part(cpu: str, **more: object) -> dict:
        return {"name": "x", "resources": {"requests": {"cpu": cpu}}} | more

    spec = {
        "initContainers": [part("100m", restartPolicy="Always"), part("2")],
        "containers": [part("500m"), part("1")],
        "overhead": {"cpu": "50m"},
    }
    pod = {"metadata": {"namespace": "ns", "name": "a"}, "spec": spec}
    assert requested(pod) == {"cpu": 2150, "pods": 1}


def test_kubelet_survives_kills_of_its_process(tmp_path: Path):
    with ClusterProcess(tmp_path) as process:
        api = Api(str(process.kubeconfig), "default", lambda: None)
        amounts = {"cpu": "64", "pods": "110"}
        status = {"allocatable": amounts, "capacity": amounts}
        api.ok("POST", "/api/v1/nodes", {"metadata": {"name": "n1"}, "status": status})
        for i in range(20):
            pod = {
                "metadata": {
                    "name": f"p{i}",
                    "annotations": {"kai.scheduler/simulated-run-seconds": "0.4"},
                },
                "spec": {"containers": [{"name": "main", "image": "x"}]},
            }
            api.ok("POST", PODS, pod)
            api.ok("POST", f"{PODS}/p{i}/binding", a_binding(f"p{i}", "n1"))
        for _ in range(3):
            time.sleep(0.15)
            process.kill()
            process.start()
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline:
            pods = api.ok("GET", PODS)["items"]
            if all(p["status"]["phase"] == "Succeeded" for p in pods):
                break
            time.sleep(0.05)
        runs = process.runs()
        assert [r.outcome for r in runs] == ["succeeded"] * 20
        assert all(r.ended_ms - r.started_ms >= 400 for r in runs)
        api.close()


async def test_kubelet_over_http_rides_out_what_an_api_server_does(
    cluster: Cluster, tmp_path: Path
):
    """Dropped watches, compaction while it was away, 429 and lost answers."""
    task = asyncio.create_task(serve(str(cluster.kubeconfig), tmp_path / "kubelet"))
    await cluster.node("n1", cpu="64", pods="64", **{"nvidia.com/gpu": "64"})
    try:
        await cluster.pod("forever")
        await cluster.until(lambda: cluster.phase("forever") == "Running")
        await cluster.pod("forced")
        await cluster.until(lambda: cluster.phase("forced") == "Running")
        rules = [
            Fault(action="error", code=429, subresource="status", probability=0.3),
            Fault(action="lose", subresource="status", probability=0.3),
            Fault(action="error", code=503, verb="watch", times=3),
        ]
        cluster.api.faults.replace(rules, seed=1)
        for stream in list(cluster.api.watches):
            stream.drop()
        await cluster.call("DELETE", Target(POD, "default", "forced"), {"gracePeriodSeconds": 0})
        for i in range(10):
            await cluster.pod(f"p{i}", run_seconds="0.05")
        cluster.store.compact(cluster.store.rv)
        await cluster.until(lambda: all(cluster.phase(f"p{i}") == "Succeeded" for i in range(10)))
        await cluster.call("DELETE", Target(POD, "default", "forever"))
        await cluster.until(lambda: cluster.phase("forever") == "gone")
    finally:
        task.cancel()
        await asyncio.wait([task])
    runs = read_runs(tmp_path / "kubelet" / "kubelet.db")
    outcomes = {r.name: r.outcome for r in runs}
    assert outcomes == {"forever": "deleted", "forced": "deleted"} | {
        f"p{i}": "succeeded" for i in range(10)
    }
    assert all(rule.acted for rule in rules)
