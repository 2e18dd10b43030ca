"""kai-es takes over a running KAI cluster, here a simulated one."""

from kai_es.simulate.cluster import ClusterProcess
from tests.simulation.api_client import Api
from tests.simulation.migration import take_over


async def test_nothing_restarts_and_everything_goes_on(tmp_path, monkeypatch):
    with ClusterProcess(tmp_path / "cluster") as cluster:
        api = Api(str(cluster.kubeconfig), "team-a", lambda: None)
        await take_over(api, cluster.kubeconfig, tmp_path, cluster.runs, monkeypatch)
        api.close()
