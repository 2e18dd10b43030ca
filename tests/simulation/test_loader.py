"""Loading a workload through the API, also over faults and crashes."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from kai_es.cluster.endpoint import from_kubeconfig
from kai_es.ports.errors import RefusedError
from kai_es.simulate.client import Client
from kai_es.simulate.cluster import ClusterProcess, SimulatedCluster, WallClock
from kai_es.simulate.faults import Fault
from kai_es.simulate.kinds import NODE, POD, POD_GROUP, QUEUE
from kai_es.simulate.loader import Loader
from kai_es.simulate.workload import NodeShape, Sizes, Workload, generate, node

SMALL = generate(1, Sizes(n_nodes=5, n_jobs=30, n_queues=2, arrival_s=0.2))


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[SimulatedCluster]:
    async with SimulatedCluster(tmp_path, kubelet=False) as cluster:
        yield cluster


async def load(cluster: SimulatedCluster, workload: Workload, rate_per_s: float | None = None):
    async with Client(from_kubeconfig(str(cluster.kubeconfig)), "test") as client:
        loader = Loader(client, WallClock(), rate_per_s)
        await loader.load(workload)
        return loader


def counts(cluster: SimulatedCluster) -> dict[str, int]:
    return {k.kind: len(cluster.store.shelf(k).live) for k in (NODE, QUEUE, POD_GROUP, POD)}


def expected(workload: Workload) -> dict[str, int]:
    return {
        "Node": len(workload.nodes),
        "Queue": len(workload.queues),
        "PodGroup": len(workload.jobs),
        "Pod": workload.n_pods,
    }


async def test_everything_is_created_and_pods_carry_the_stamp(cluster: SimulatedCluster):
    loader = await load(cluster, SMALL)
    assert counts(cluster) == expected(SMALL)
    assert (loader.n_groups, loader.n_pods) == (30, SMALL.n_pods)
    groups = [s.object()["metadata"] for s in cluster.store.shelf(POD_GROUP).live.values()]
    stamps = {(g["namespace"], g["name"]): f"{g['uid']}/1" for g in groups}
    for stored in cluster.store.shelf(POD).live.values():
        meta = stored.object()["metadata"]
        notes = meta["annotations"]
        stamp = stamps[meta["namespace"], notes["pod-group-name"]]
        assert notes["kai.scheduler/podgroup-stamp"] == stamp
    assert cluster.store.get(POD, next(iter(cluster.store.shelf(POD).live))).object()["spec"][
        "priority"
    ] in (50, 75, 100, 125)


async def test_loading_again_adds_nothing(cluster: SimulatedCluster):
    assert (await load(cluster, SMALL)).n_found == 0
    assert (await load(cluster, SMALL)).n_found == SMALL.n_pods
    assert counts(cluster) == expected(SMALL)


async def test_another_prefix_adds_work(cluster: SimulatedCluster):
    await load(cluster, SMALL)
    sizes = Sizes(n_nodes=5, n_jobs=30, n_queues=2, arrival_s=0.2, prefix="more")
    more = generate(1, sizes)
    assert (await load(cluster, more)).n_found == 0
    assert counts(cluster)["Pod"] == SMALL.n_pods + more.n_pods


async def test_faults_are_ridden_out(cluster: SimulatedCluster):
    rules = [
        Fault(action="error", code=429, verb="create", probability=0.1),
        Fault(action="lose", verb="create", probability=0.1),
        Fault(action="close", verb="create", probability=0.1),
    ]
    cluster.api.faults.replace(rules, seed=4)
    await load(cluster, SMALL)
    assert counts(cluster) == expected(SMALL)
    assert all(rule.acted for rule in rules)


async def test_rate_is_kept(cluster: SimulatedCluster):
    start = WallClock().monotonic_s()
    shape = NodeShape(1, "x", 1, 1, 1)
    nodes = tuple(node(f"n{i}", shape) for i in range(30))
    await load(cluster, Workload(nodes, (), (), ()), rate_per_s=100)
    assert 0.28 < WallClock().monotonic_s() - start < 1.0


async def test_object_that_is_refused_is_named(cluster: SimulatedCluster):
    bad = node("Bad_Name", NodeShape(1, "x", 1, 1, 1))
    with pytest.RaisesGroup(pytest.RaisesExc(RefusedError, match=r"422 .*Node /Bad_Name")):
        await load(cluster, Workload((bad,), (), (), ()))


async def test_api_server_may_be_killed_meanwhile(tmp_path: Path):
    process = await asyncio.to_thread(ClusterProcess(tmp_path).start)
    try:
        workload = generate(2, Sizes(n_nodes=5, n_jobs=60, n_queues=2, arrival_s=1.5))
        async with Client(from_kubeconfig(str(process.kubeconfig)), "test") as client:
            loader = Loader(client, WallClock())
            task = asyncio.create_task(loader.load(workload))
            for _ in range(2):
                await asyncio.sleep(0.4)
                process.kill()
                await asyncio.to_thread(process.start)
            await task
            assert loader.n_pods == workload.n_pods
        created = [r.uid for r in process.ledger() if r.resource == "pods" and r.status == 201]
        assert len(created) == len(set(created)) == workload.n_pods
    finally:
        process.stop()
