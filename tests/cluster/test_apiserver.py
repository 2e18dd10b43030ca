"""What clients rely on, on the real server: the suite that the simulated one passes, too."""

import pytest

from tests.simulation import test_apiserver as shared
from tests.simulation.api_client import Api
from tests.simulation.test_apiserver import *  # noqa: F403
from tests.simulation.test_apiserver_watch import *  # noqa: F403
from tests.simulation.test_crds import test_the_server_takes_it  # noqa: F401


@pytest.mark.long  # the server itself tries again for 10 s before it says so
def test_eviction_demands_the_uid(api: Api):
    shared.test_eviction_demands_the_uid(api)
