"""What clients rely on, on the real server: the suite that the simulated one passes, too."""

from tests.simulation.test_apiserver import *  # noqa: F403
from tests.simulation.test_crds import test_the_server_takes_it  # noqa: F401

del test_eviction_demands_the_uid  # noqa: F821 - takes the server 10 s: tests/long
