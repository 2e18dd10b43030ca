import itertools
from collections.abc import Iterator

import pytest

from kai_es.simulate.cluster import ClusterProcess
from tests.simulation.api_client import Api

_numbers = itertools.count()


@pytest.fixture(scope="session")
def simulated(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterProcess]:
    """One simulated API server for all tests that only need a namespace of it."""
    with ClusterProcess(tmp_path_factory.mktemp("cluster")) as cluster:
        yield cluster


@pytest.fixture(params=["simulated"])
def api(request: pytest.FixtureRequest) -> Iterator[Api]:
    """An API server and a fresh namespace on it."""
    cluster = request.getfixturevalue(request.param)
    yield from open_api(cluster)


def open_api(cluster: ClusterProcess) -> Iterator[Api]:
    def compact() -> None:
        api.ok("POST", "/simulate/compact", {})

    api = Api(str(cluster.kubeconfig), f"test-{next(_numbers)}", compact)
    api.ok("POST", "/api/v1/namespaces", {"metadata": {"name": api.namespace}})
    yield api
    api.close()
