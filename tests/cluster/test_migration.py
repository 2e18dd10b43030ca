"""kai-es takes over a running KAI cluster, on a real API server."""

from kai_es.simulate.runs import read_runs
from tests.simulation.migration import take_over


async def test_nothing_restarts_and_everything_goes_on(
    cluster, kubeconfig, kubelet, tmp_path, monkeypatch
):
    for name in ("team-a", "kai-resource-reservation"):
        status, answer = cluster.call("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
        assert status in (201, 409), answer
    api = cluster.within("team-a", cluster.compact)
    await take_over(
        api, kubeconfig, tmp_path, lambda: read_runs(kubelet / "kubelet.db"), monkeypatch
    )
