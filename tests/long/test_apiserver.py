"""What takes a real API server long: an eviction of another uid, a kill."""

import pytest

from tests.cluster.conftest import (  # noqa: F401 - fixtures
    admin,
    alone,
    api,
    kubeconfig,
    namespace,
    own_server,
)
from tests.simulation.api_client import PODS, Api, a_pod
from tests.simulation.test_apiserver import test_eviction_demands_the_uid  # noqa: F401

pytestmark = [pytest.mark.long, pytest.mark.cluster]


def test_own_server_keeps_its_state_over_a_kill(own_server):  # noqa: F811 - a fixture
    client = Api(own_server.address, "default", lambda: None)
    client.ok("POST", PODS, a_pod("a"))
    own_server.kill()
    assert not own_server.alive()
    own_server.start()
    assert client.ok("GET", PODS + "/a")["metadata"]["name"] == "a"
    client.close()
