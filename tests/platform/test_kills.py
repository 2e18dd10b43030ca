"""Separate processes on one SQLite log, killed at random moments: nothing is lost or repeated."""

import asyncio
import random

import pytest

from kai_es.runtime.wiring import open_log
from kai_es.simulate.workload import Sizes, generate
from kai_es.storage.checkpoint import PostgresCheckpoints
from tests.platform import checks
from tests.platform.stack import API_SERVER, PARTS, Platform, torment, until_done

N_KILLS = 20
SIZES = Sizes(n_nodes=20, n_jobs=120, arrival_s=40.0)
OUTAGE_MS = 15_000
"""The longest time that a kill of all parts can keep a pod's end from being seen."""


@pytest.mark.postgres
@pytest.mark.timeout(600)
@pytest.mark.parametrize("with_api_server", [False, True], ids=["parts", "and-api-server"])
async def test_nothing_is_lost_or_repeated_over_kills(tmp_path, postgres_url, with_api_server):
    seed = 20261129 + with_api_server
    print(f"seed {seed}")
    workload = generate(seed, SIZES)
    config = tmp_path / "config.yaml"
    config.write_text("actions: allocate\n")
    platform = Platform(tmp_path, postgres_url, seed=seed, config=str(config))
    names = [*PARTS, *([API_SERVER] if with_api_server else [])]
    try:
        await platform.start()
        async with platform.watched() as view:
            loading = asyncio.create_task(platform.load(workload))
            await torment(platform, names, n_kills=N_KILLS, chance=random.Random(seed), mean_s=2.5)
            await loading
            await until_done(view, workload.n_pods)
            incarnations = {e.incarnation for e in view.world.objects.live["Pod"].values()}
            assert len(incarnations) == 1, "a restart of the API server was taken for a restore"
            await view.until(lambda: not list(view.world.open_requests()))
            await platform.answers()
            await checks.truth(platform.settings, platform.instance.cluster, view.world)
            assert all(entry.obj.node for entry in view.world.objects.live["Pod"].values())
        restarts = {child.name: child.restarts for child in platform.supervisor.children}
        assert sum(restarts.values()) >= N_KILLS
        for name in (*PARTS, "books"):
            await platform.supervisor.stop(name)
        bound = checks.no_double_bind(platform.instance.cluster)
        assert len(bound) == workload.n_pods
        async with open_log(platform.settings) as opened:
            cycles = await checks.log_holds(opened.log, PostgresCheckpoints(platform.engine))
            assert len(cycles) > N_KILLS
            await checks.one_result_each(opened.log)
            await checks.books_exact(platform.settings, platform.engine, opened.log)
        checks.kubelet_agrees(platform.engine, platform.instance.cluster, slack_ms=OUTAGE_MS)
    finally:
        await platform.stop()
