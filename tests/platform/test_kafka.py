"""Separate processes on real Kafka and PostgreSQL, tormented: nothing is lost or repeated."""

import asyncio
import time
from typing import NamedTuple

import pytest

from kai_es.runtime.wiring import open_log
from kai_es.simulate.workload import Sizes, generate
from kai_es.storage.checkpoint import PostgresCheckpoints
from tests.platform import checks
from tests.platform.kafka_stack import KafkaPlatform, Torment, crowding, healthy, until_done

pytestmark = [pytest.mark.broker, pytest.mark.postgres]

OUTAGE_MS = 30_000
"""The longest time that faults can keep a pod's end from being seen."""


ACTIONS = "actions: allocate, consolidation, reclaim, preempt, stalegangeviction\n"
HISTORY = "usageDBConfig: {usageParams: {windowSize: 1h, fetchInterval: 3s}}\n"


class Form(NamedTuple):
    """How large a run is, for how long it is tormented, and how soon it must be well again."""

    sizes: Sizes
    seconds: float
    pause_s: float
    heal_s: float
    limit_s: float
    config: str


SMALL = Form(
    Sizes(n_nodes=50, n_jobs=200, arrival_s=25.0),
    seconds=25.0,
    pause_s=9.0,  # the lease runs out after 6 s
    heal_s=120.0,
    limit_s=560.0,
    config=ACTIONS + HISTORY,
)
LARGE = Form(
    Sizes(n_nodes=500, n_jobs=4000, arrival_s=110.0),
    seconds=130.0,
    pause_s=30.0,
    heal_s=60.0,
    limit_s=1_700.0,
    config=ACTIONS,
)


async def a_run(root, seed, form):
    """Load, torment, heal, stop; then every invariant."""
    began = time.monotonic()
    workload = generate(seed, form.sizes)
    config = root / "config.yaml"
    config.write_text(form.config)
    platform = KafkaPlatform(root, seed=seed, config=str(config))
    torment = Torment(platform, seed, seconds=form.seconds, pause_s=form.pause_s)
    try:
        await platform.start()
        async with platform.watched() as view:
            loading = asyncio.create_task(platform.load(workload))
            await torment.run()
            await loading
            over = time.monotonic()
            await healthy(platform, view, within_s=form.heal_s * crowding())
            healed_s = time.monotonic() - over
            await until_done(view)
            await view.until(lambda: not list(view.world.open_requests()))
            await platform.answers()
            await checks.truth(platform.settings, platform.instance.cluster, view.world)
        await platform.stop_parts()
        bound = checks.no_double_bind(platform.instance.cluster)
        async with open_log(platform.settings) as opened:
            cycles = await checks.log_holds(opened.log, PostgresCheckpoints(platform.engine))
            expired = await checks.one_result_each(opened.log)
            # While nothing was bound for two minutes the others of a gang may have ended.
            assert len(bound.keys() | expired) >= workload.n_pods
            await checks.books_exact(platform.settings, platform.engine, opened.log)
        if HISTORY in form.config:
            assert any(recorded.cycle.inputs.usage for recorded in cycles), "it never counted"
        checks.kubelet_agrees(platform.engine, platform.instance.cluster, slack_ms=OUTAGE_MS)
    except BaseException:
        platform.keeps_log = True
        print("\n".join(torment.told))
        print(await platform.told())
        raise
    finally:
        await platform.stop()
    print(
        f"seed {seed}: {workload.n_pods} pods, {len(cycles)} cycles replayed, "
        f"{torment.n_kills} kills, well {healed_s:.0f} s after the last fault, "
        f"{time.monotonic() - began:.0f} s in all"
    )


@pytest.mark.timeout(600)
async def test_nothing_is_lost_or_repeated_over_faults(tmp_path):
    async with asyncio.timeout(SMALL.limit_s):
        await a_run(tmp_path, 1, SMALL)


@pytest.mark.long
@pytest.mark.timeout(1_800)
@pytest.mark.parametrize("seed", range(1, 21))
async def test_four_thousand_jobs_on_five_hundred_nodes(tmp_path, seed):
    async with asyncio.timeout(LARGE.limit_s):
        await a_run(tmp_path, seed, LARGE)
