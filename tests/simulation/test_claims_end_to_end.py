"""Claims on devices and volumes through all parts, on the simulated API server."""

import pytest

from kai_es.simulate.cluster import ClusterProcess
from tests.cluster.parts import furnish, running
from tests.simulation import claims_scenario as scenario
from tests.simulation.api_client import PODS, Api


@pytest.fixture
def cluster(tmp_path):
    with ClusterProcess(tmp_path / "cluster") as process:
        yield process


async def test_claims_from_manifest_to_running_and_back(cluster, tmp_path):
    api = Api(str(cluster.kubeconfig), "team", lambda: None)
    furnish(api, 2, gpus=0)
    scenario.build(api, "node-1")
    async with running(cluster.kubeconfig, tmp_path / "instance") as parts:
        await parts.until(lambda: scenario.all_run(api))
        scenario.check(api, "node-1")
        for name in scenario.NAMES[1:3]:
            api.ok("DELETE", f"{PODS}/{name}")
        await parts.until(lambda: scenario.is_free(api, "both"))
    api.close()
