"""Watches on the real server: the suite that the simulated one passes, too.

It runs before `test_apiserver.py`: the server holds up objects of kinds that are newer than two
seconds, and this needs none of them for longer than that.
"""

from tests.simulation.test_apiserver_watch import *  # noqa: F403
