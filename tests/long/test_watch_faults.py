"""The faults of tests/cluster/test_watch_faults.py in any order, with and without a watch cache."""

import asyncio
import random
import signal

import pytest

from tests.cluster.conftest import NO_CACHE, install
from tests.cluster.faults import trouble
from tools.kubernetes import Kubernetes

pytestmark = [pytest.mark.long, pytest.mark.cluster, pytest.mark.timeout(1800)]

ROUNDS = 16


@pytest.fixture(params=[(), NO_CACHE], ids=["cached", "uncached"])
def server(request, tmp_path):
    made = Kubernetes(tmp_path / "kubernetes", request.param)
    try:
        made.start()
        install(made.kubeconfig())
        yield made
    finally:
        made.close()


async def test_no_object_is_missed_in_any_order(server, tmp_path, monkeypatch):
    monkeypatch.setattr("kai_es.intake.reflector.PAGE", 10)
    monkeypatch.setattr("kai_es.intake.reflector.UNSERVED_S", 1.0)
    chance = random.Random(7)

    async def away(it) -> None:
        await it.gate.shut()
        await asyncio.sleep(chance.uniform(0.1, 3))
        await it.gate.open()

    faults = (
        lambda it: it.break_watches(changes=chance.randrange(60)),
        lambda it: it.restart_api(chance.choice([signal.SIGKILL, signal.SIGTERM])),
        lambda it: it.restart_etcd(away_s=chance.uniform(0, 5)),
        away,
        lambda it: it.forget(),
    )
    async with trouble(server, tmp_path, seed=7) as it:
        for _ in range(ROUNDS):
            busy = asyncio.create_task(it.users.work_on())
            for fault in chance.sample(faults, 2):
                await fault(it)
                await asyncio.sleep(chance.uniform(0, 1))
            busy.cancel()
            await asyncio.gather(busy, return_exceptions=True)
            await it.settled()
        assert it.users.n_done > 200
