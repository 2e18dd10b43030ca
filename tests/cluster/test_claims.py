"""Claims on devices and volumes through all parts, on a real API server.

There is no controller manager: the simulated controllers run beside the kubelets.
"""

from tests.cluster.parts import furnish, running
from tests.simulation import claims_scenario as scenario
from tests.simulation.api_client import PODS


async def test_claims_from_manifest_to_running_and_back(cluster, kubeconfig, kubelet, tmp_path):
    furnish(cluster, 2, gpus=0)
    scenario.build(cluster, "node-1")
    async with running(kubeconfig, tmp_path / "instance") as parts:
        await parts.until(lambda: scenario.all_run(cluster))
        scenario.check(cluster, "node-1")
        for name in scenario.NAMES[1:3]:
            cluster.ok("DELETE", f"{PODS}/{name}")
        await parts.until(lambda: scenario.is_free(cluster, "both"))
