"""Real servers for the tests. Each starts once per run and is shared by all workers.

A user's own servers are used when the environment names them: `KAI_ES_TEST_KAFKA` (bootstrap
address) and `KAI_ES_TEST_POSTGRES` (URL of a database whose user may create databases).
`KUBEBUILDER_ASSETS` names a folder with an etcd and a kube-apiserver, else they are built.
"""

import contextlib
import itertools
import logging
import os
import re

import psycopg
import pytest
from hypothesis import HealthCheck, settings

from tools import kubernetes, session

_ANY_MACHINE = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}
settings.register_profile("same", derandomize=True, **_ANY_MACHINE)
settings.register_profile("search", print_blob=True, **_ANY_MACHINE)
settings.load_profile("same")
"""A change is judged by the same examples everywhere; `make test-long` searches for new ones."""

os.environ.setdefault("XDG_RUNTIME_DIR", session.runtime_folder())
"""PostgreSQL's wheel looks there when it is imported, and warns where no login has set it."""

KAFKA = "tools.kafka:Broker"
POSTGRES = "tools.postgres:Postgres"

_numbers = itertools.count()


# kafka-python tells of every lost connection, twice a second, and here they are lost on purpose.
logging.getLogger("kafka").setLevel(logging.CRITICAL)


def pytest_collection_finish(session):
    """Build the API server before the clock of any test runs; what fails here is told there."""
    if any(item.get_closest_marker("cluster") for item in session.items):
        with contextlib.suppress(RuntimeError):
            kubernetes.binaries()


def server(kind, variable, run):
    """The address of a shared server, or of the user's own.

    variable: names the user's own, "" = there is none.
    """
    own = os.environ.get(variable)
    if own:
        yield own
        return
    worker = "PYTEST_XDIST_WORKER" in os.environ
    yield session.use(kind, run, main=os.getppid() if worker else None)
    session.leave(kind, run)


def run():
    """A name that all workers of this run share and no other run has."""
    return os.environ.get("PYTEST_XDIST_TESTRUNUID") or f"pid{os.getpid()}"


@pytest.fixture(scope="session")
def run_name():
    """See `run`."""
    return run()


@pytest.fixture(scope="session")
def kafka_bootstrap(run_name):
    """Bootstrap address of a broker."""
    yield from server(KAFKA, "KAI_ES_TEST_KAFKA", run_name)


@pytest.fixture
def kafka_prefix(run_name, worker_id, request):
    """A topic prefix that no other test uses."""
    test = re.sub(r"[^a-z0-9]+", "-", request.node.name.lower()).strip("-")[:60]
    return f"t-{run_name[:8]}-{worker_id}-{next(_numbers)}-{test}"


@pytest.fixture(scope="session")
def postgres_server(run_name):
    """URL of a PostgreSQL server."""
    yield from server(POSTGRES, "KAI_ES_TEST_POSTGRES", run_name)


@pytest.fixture
def postgres_url(postgres_server, run_name, worker_id):
    """URL of a fresh, empty database, dropped after the test."""
    name = f"kai_es_test_{run_name[:8]}_{worker_id}_{next(_numbers)}"
    base = re.match(
        r"(?P<server>\w+(?:\+\w+)?://[^/?]*)(?:/[^?]*)?(?P<options>\?.*)?$", postgres_server
    )
    admin = re.sub(r"^\w+(\+\w+)?://", "postgresql://", postgres_server)
    with psycopg.connect(admin, autocommit=True, **_database(admin)) as connection:
        connection.execute(f'CREATE DATABASE "{name}"')
        yield f"{base['server']}/{name}{base['options'] or ''}"
        connection.execute(f'DROP DATABASE "{name}" WITH (FORCE)')


def _database(url):
    """The maintenance database, unless the URL names one."""
    return {} if re.match(r"\w+://[^/]*/[^?]", url) else {"dbname": "postgres"}
