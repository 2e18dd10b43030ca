"""Shapes `e2e-…`: the whole of kai-es against a real kube-apiserver on this machine.

`e2e-fill`: 4,000 one-GPU pods on 500 nodes of 8 GPUs are there, with their groups; then the parts
start. `e2e-live`: the same pods are created while they run. `e2e-gang`: one gang of 512 pods of 8
GPUs. `e2e-idle`: created → bound on an idle cluster. `e2e-full`: the full cluster: the share of a
core while nothing happens, one pod of a team with rights, one job of 250 × 8 GPUs.

As `kai-es up --embedded` (SQLite log, embedded PostgreSQL), pod groups made by the load generator,
kubelets simulated in a process of their own, BindRequest mirror off; times by a plain watcher. Each
prints its writes and CPU per pod, of our parts, and what a bare client reached on the same server.
"""

import asyncio
import json
import random
import sys
from collections.abc import Awaitable, Callable, Sequence
from time import perf_counter
from typing import Any, Final

from benchmarks.real_cluster import GPU, SPACE, RealCluster, real_cluster
from kai_es.kube.quantity import parse_quantity
from kai_es.simulate.workload import Job, pod, pod_group

N_NODES: Final = 500
N_JOBS: Final = 4_000
N_GANG: Final = 512
N_IDLE: Final = 30
N_WARM: Final = 3
N_SINGLE: Final = 5
N_LARGE: Final = 250
IDLE_S: Final = 30.0
QUIET_S: Final = 10.0
"""A cluster on which nobody has written anything for so long is idle."""
SETTLE_S: Final = 180.0
STATUS_S: Final = 120.0
_QUEUES: Final = "/apis/scheduling.run.ai/v2/queues"

_chance: Final = random.Random(1)


def run_shape(name: str) -> dict[str, Any]:
    """Seconds, writes and CPU of one shape."""
    return asyncio.run(_SHAPES[name]())


def _jobs(prefix: str, n_jobs: int, *, n_pods: int = 1, gpus: int = 1, team: str) -> list[Job]:
    found = []
    for n in range(n_jobs):
        name = f"{prefix}-{n:05d}"
        group = pod_group(
            name, namespace=SPACE, queue_name=team, min_member=n_pods, priority_class="train"
        )
        requests = {"cpu": str(gpus), "memory": f"{gpus}Gi", GPU: str(gpus)}
        pods = (pod(f"{name}-{k}", group, requests, run_s=None) for k in range(n_pods))
        found.append(Job(0, group, tuple(pods)))
    return found


def _names(jobs: Sequence[Job]) -> list[str]:
    return [made["metadata"]["name"] for job in jobs for made in job.pods]


async def _fill() -> dict[str, Any]:
    async with real_cluster(N_NODES) as cluster:
        ceiling = await cluster.ceiling()
        jobs = _jobs("fill", N_JOBS, team="team-a")
        await cluster.submit(jobs)
        begin = perf_counter()
        cluster.start_parts()
        found = await _measured(cluster, jobs, begin, lambda: _all_bound(cluster, jobs))
        found |= {"pods_per_s": round(N_JOBS / found["wall_s"], 1)}
        return {"wall_ms": round(found["wall_s"] * 1000), **found, **ceiling}


async def _live() -> dict[str, Any]:
    async with real_cluster(N_NODES) as cluster:
        ceiling = await cluster.ceiling()
        cluster.start_parts()
        await cluster.ready()
        jobs = _jobs("live", N_JOBS, team="team-a")
        begin = perf_counter()

        async def create_and_wait() -> None:
            await cluster.submit(jobs)
            await _all_bound(cluster, jobs)

        found = await _measured(cluster, jobs, begin, create_and_wait)
        created = max(cluster.created.values()) - begin
        found |= {"creating_s": round(created, 1), **_waits(cluster, jobs)}
        return {"wall_ms": round(found["wall_s"] * 1000), **found, **ceiling}


async def _gang() -> dict[str, Any]:
    async with real_cluster(N_GANG) as cluster:
        ceiling = await cluster.ceiling()
        cluster.start_parts()
        await cluster.ready()
        jobs = _jobs("gang", 1, n_pods=N_GANG, gpus=8, team="team-a")
        begin = perf_counter()

        async def create_and_wait() -> None:
            await cluster.submit(jobs)
            await _all_bound(cluster, jobs)

        found = await _measured(cluster, jobs, begin, create_and_wait)
        last = max(cluster.created[name] for name in _names(jobs))
        bound = max(cluster.seen.bound[name] for name in _names(jobs))
        found |= {"after_last_create_s": round(bound - last, 2)}
        return {"wall_ms": round(found["wall_s"] * 1000), **found, **ceiling}


async def _idle() -> dict[str, Any]:
    async with real_cluster(N_NODES) as cluster:
        cluster.start_parts()
        await cluster.ready()
        jobs = _jobs("idle", N_WARM + N_IDLE, team="team-a")
        for job in jobs[:N_WARM]:
            await _one_by_one(cluster, job)
        await asyncio.sleep(2)
        cpu, writes = cluster.cpu_s(), cluster.writes()
        for job in jobs[N_WARM:]:
            await asyncio.sleep(_chance.uniform(0.2, 0.8))
            await _one_by_one(cluster, job)
        await asyncio.sleep(2)
        spent = _spent(cluster, cpu, writes, N_IDLE)
        waits = _waits(cluster, jobs[N_WARM:])
        return {"wall_ms": round(waits["wait_p50_s"] * 1000 * N_IDLE), **waits, **spent}


async def _one_by_one(cluster: RealCluster, job: Job) -> None:
    await cluster.submit([job])
    await _all_bound(cluster, [job])


async def _full() -> dict[str, Any]:
    """Team B has a right to the large job and to the single ones, which go on running.

    The scheduler has a process of its own, so that its share of a core can be told.
    """
    async with real_cluster(N_NODES, n_more=N_SINGLE) as cluster:
        jobs = _jobs("fill", N_JOBS, team="team-a")
        await cluster.submit(jobs)
        begin = perf_counter()
        cluster.start_parts("scheduler")
        await _all_bound(cluster, jobs)
        await _statuses(cluster, jobs)
        await _settled(cluster)
        found: dict[str, Any] = {"idle_core_share": await _idle_share(cluster)}
        singles = []
        for n in range(N_SINGLE):
            (job,) = _jobs(f"single{n}", 1, team="team-b")
            await _one_by_one(cluster, job)
            (name,) = _names([job])
            singles.append(round(cluster.seen.bound[name] - cluster.created[name], 3))
            await asyncio.sleep(2)
        large = _jobs("large", 1, n_pods=N_LARGE, gpus=8, team="team-b")
        start_s = perf_counter()
        await cluster.submit(large)
        await _all_bound(cluster, large)
        took_s = max(cluster.seen.bound[n] for n in _names(large)) - start_s
        await asyncio.sleep(3)  # the books follow
        found |= {
            "single_s": sorted(singles),
            "large_s": round(took_s, 1),
            "large_decision_ms": await _slowest_evicting_cycle(cluster),
            "writes": dict(cluster.writes().most_common()),
        }
        return {"wall_ms": round((perf_counter() - begin) * 1000), **found}


async def _settled(cluster: RealCluster) -> None:
    """Return when what could wait (marks, events) is written, too."""
    async with asyncio.timeout(SETTLE_S):
        written = None
        while written != (written := cluster.writes()):
            await asyncio.sleep(QUIET_S)


async def _idle_share(cluster: RealCluster) -> dict[str, float]:
    before = cluster.cpu_s()
    await asyncio.sleep(IDLE_S)
    after = cluster.cpu_s()
    return {name: round((after[name] - before[name]) / IDLE_S, 4) for name in after}


async def _slowest_evicting_cycle(cluster: RealCluster) -> float:
    """Milliseconds of the cycle that decided the most evictions."""
    argv = ["-m", "kai_es.cli", "cycles", "--data", str(cluster.stack.instance.root), "-o", "json"]
    process = await asyncio.create_subprocess_exec(
        sys.executable, *argv, stdout=asyncio.subprocess.PIPE
    )
    told, _ = await process.communicate()
    rows = json.loads(told)
    return float(max(rows, key=lambda row: int(row["evictions"]))["ms"])


async def _all_bound(cluster: RealCluster, jobs: Sequence[Job]) -> None:
    names = set(_names(jobs))
    await cluster.until(lambda: names <= cluster.seen.bound.keys())


async def _measured(
    cluster: RealCluster, jobs: Sequence[Job], begin: float, do: Callable[[], Awaitable[None]]
) -> dict[str, Any]:
    """What the work of `do` took until the last bind, and until all statuses were right."""
    cpu, writes = cluster.cpu_s(), cluster.writes()
    await do()
    last = max(cluster.seen.bound[name] for name in _names(jobs))
    sys.stderr.write(f"last bind after {last - begin:.1f} s\n")
    right = await _statuses(cluster, jobs)
    found = {"wall_s": round(last - begin, 2), "statuses_right_after_s": round(right - last, 2)}
    return found | _spent(cluster, cpu, writes, len(_names(jobs)))


def _spent(cluster: RealCluster, cpu: Any, writes: Any, n_pods: int) -> dict[str, Any]:
    now = cluster.cpu_s()
    made = cluster.writes() - writes
    return {
        "writes_per_pod": round(sum(made.values()) / n_pods, 2),
        "cpu_ms_per_pod": {name: round((now[name] - cpu[name]) * 1000 / n_pods, 2) for name in now},
        "writes": dict(made.most_common()),
    }


async def _statuses(cluster: RealCluster, jobs: Sequence[Job]) -> float:
    """The moment at which pods run and say they are bound, groups and queues what they have."""
    names, groups = set(_names(jobs)), {job.group["metadata"]["name"] for job in jobs}
    seen = cluster.seen
    await cluster.until(lambda: names <= seen.running.keys(), seconds=STATUS_S)
    await cluster.until(lambda: groups <= seen.counted.keys(), seconds=STATUS_S)
    await cluster.until(lambda: names <= seen.told.keys(), seconds=STATUS_S)
    last = max(*(seen.told[name] for name in names), *(seen.counted[name] for name in groups))
    gpus = sum(int(_gpus(made)) for job in jobs for made in job.pods)
    async with asyncio.timeout(STATUS_S):
        while True:
            asked = perf_counter()
            queue = await cluster.call("GET", f"{_QUEUES}/department")
            told = queue.get("status", {}).get("allocated", {}).get(GPU, "0")
            if parse_quantity(told, what="department", field=GPU) == gpus:
                return max(asked, last)
            await asyncio.sleep(0.3)


def _gpus(made: Any) -> str:
    return str(made["spec"]["containers"][0]["resources"]["requests"][GPU])


def _waits(cluster: RealCluster, jobs: Sequence[Job]) -> dict[str, float]:
    waits = sorted(cluster.seen.bound[n] - cluster.created[n] for n in _names(jobs))
    return {
        "wait_p50_s": round(waits[len(waits) // 2], 3),
        "wait_p99_s": round(waits[min(len(waits) * 99 // 100, len(waits) - 1)], 3),
    }


_SHAPES: Final = {
    "e2e-fill": _fill,
    "e2e-live": _live,
    "e2e-gang": _gang,
    "e2e-idle": _idle,
    "e2e-full": _full,
}
