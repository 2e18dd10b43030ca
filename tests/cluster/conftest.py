"""A real kube-apiserver 1.36 for the tests here, with our CRDs; each test gets a namespace.

* `api`: raw requests as the admin, in the test's own namespace. `port`: the same server behind our
  cluster ports.
* `cluster`: `api` on a server without nodes, queues and pods of earlier tests, for tests that run
  parts which read everything.
* `kubelet`: kubelets of all nodes, as a task of the test.
* `own_server`: a server that the test may stop, restart and damage.

There is no controller manager: namespaces stay Terminating, owned objects are not collected.
"""

import asyncio
import itertools
import os
import re
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from kai_es.cluster.api import ApiServer
from kai_es.cluster.endpoint import from_kubeconfig
from kai_es.simulate import kubelet_http
from tests.conftest import run, server
from tests.manifests import documents
from tests.simulation.api_client import MERGE_PATCH, Api
from tools import kubernetes, session
from tools.cache import locked

KUBERNETES = "tools.kubernetes:Kubernetes"
MANIFESTS = Path(__file__).parents[2] / "deploy"
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
ESTABLISHED_S = 30.0
NO_CACHE = ("--watch-cache=false",)
"""Compactions show: the cache hides them (its 410 comes after a restart)."""
SWEPT = (
    *("/api/v1/pods", "/api/v1/persistentvolumeclaims", "/api/v1/persistentvolumes"),
    *("/api/v1/nodes", "/apis/policy/v1/poddisruptionbudgets"),
    *(f"/apis/resource.k8s.io/v1/{kind}" for kind in ("resourceclaims", "resourceslices")),
    *("/apis/resource.k8s.io/v1/deviceclasses", "/apis/storage.k8s.io/v1/storageclasses"),
    *("/apis/storage.k8s.io/v1/csidrivers", "/apis/storage.k8s.io/v1/csistoragecapacities"),
    "/apis/scheduling.run.ai/v2alpha2/podgroups",
    "/apis/scheduling.run.ai/v1alpha2/bindrequests",
    "/apis/scheduling.run.ai/v2/queues",
    "/apis/kai.scheduler/v1alpha1/topologies",
    *("/apis/kai.scheduler/v1/schedulingshards", "/apis/kai.scheduler/v1/configs"),
)
"""What one test may leave that a scheduler of the next would see."""

_numbers = itertools.count()


def pytest_configure(config: pytest.Config) -> None:
    """Who asks for this folder waits for the server: it starts before the tests are read."""
    if config.option.collectonly or config.getoption("numprocesses", None):
        return
    main = os.getppid() if "PYTEST_XDIST_WORKER" in os.environ else None
    starting = {"target": session.use, "args": (KUBERNETES, run()), "kwargs": {"main": main}}
    threading.Thread(**starting).start()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """All carry the mark `cluster`."""
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.cluster)


@pytest.fixture(autouse=True)
def alone(
    request: pytest.FixtureRequest, run_name: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[bool]:
    """Whether no other worker's test is at the server that the workers share.

    What one sweeps away or compacts another may need: such tests are alone, those that keep to
    their namespace are not.
    """
    if "kubeconfig" not in request.fixturenames:
        yield False  # it has a server of its own, or none
        return
    is_alone = "cluster" in request.fixturenames or "compact" in request.function.__code__.co_names
    path = tmp_path_factory.getbasetemp().parent / f"{run_name}-cluster.lock"
    with locked(path, shared=not is_alone):
        yield is_alone


@pytest.fixture(scope="session")
def kubeconfig(run_name: str) -> Iterator[Path]:
    """The admin's kubeconfig of the shared API server, which serves our kinds."""
    for address in server(KUBERNETES, "", run_name):
        path = Path(address)
        install(path)
        yield path


def install(kubeconfig: Path) -> None:
    """Define our kinds and wait until they are served."""
    api = Api(str(kubeconfig), "default", lambda: None)
    definitions = [obj for p in sorted(MANIFESTS.glob("crds/*.yaml")) for obj in documents(p)]
    for definition in definitions:
        status, answer = api.call("POST", DEFINITIONS, definition)
        assert status in (201, 409), answer
    deadline = time.monotonic() + ESTABLISHED_S
    for definition in definitions:
        spec = definition["spec"]
        version, plural = spec["versions"][0]["name"], spec["names"]["plural"]
        while api.call("GET", f"/apis/{spec['group']}/{version}/{plural}")[0] != 200:
            assert time.monotonic() < deadline, f"{plural} are not served"
            time.sleep(0.05)
    api.close()


@pytest.fixture
def namespace(request: pytest.FixtureRequest) -> str:
    """A name for a namespace that no other test uses; `api` makes it."""
    test = re.sub(r"[^a-z0-9]+", "-", request.node.name.lower()).strip("-")[:40].strip("-")
    return f"t{next(_numbers)}-{os.getpid()}-{test}"  # workers share the server


@pytest.fixture(scope="session")
def admin(kubeconfig: Path) -> Iterator[Api]:
    """The API server as its admin; one client and its connections serve all tests."""
    admin = Api(str(kubeconfig), "default", lambda: None)
    yield admin
    admin.close()


@pytest.fixture
def api(admin: Api, kubeconfig: Path, namespace: str, alone: bool) -> Api:
    """The API server as its admin, and a fresh namespace on it."""

    def compact() -> None:
        assert alone, "others may need the history"
        kubernetes.compact(kubeconfig.parent)

    api = admin.within(namespace, compact)
    api.ok("POST", "/api/v1/namespaces", {"metadata": {"name": namespace}})
    return api


@pytest.fixture
def cluster(api: Api) -> Api:
    """`api`, and nothing that earlier tests have made."""
    sweep(api)
    return api


def sweep(api: Api) -> None:
    """Delete all objects of the kinds in `SWEPT`, without grace and finalizers."""
    for path in SWEPT:
        for obj in api.ok("GET", path)["items"]:
            meta = obj["metadata"]
            root, _, plural = path.rpartition("/")
            where = f"/namespaces/{meta['namespace']}" if meta.get("namespace") else ""
            one = f"{root}{where}/{plural}/{meta['name']}"
            if meta.get("finalizers"):
                api.call("PATCH", one, {"metadata": {"finalizers": None}}, Content_Type=MERGE_PATCH)
            status, answer = api.call("DELETE", one, {"gracePeriodSeconds": 0})
            assert status in (200, 202, 404), answer


@pytest.fixture
async def port(kubeconfig: Path) -> AsyncIterator[ApiServer]:
    """The shared server behind the cluster ports, as its admin."""
    async with ApiServer(from_kubeconfig(str(kubeconfig))) as port:
        yield port


@pytest.fixture
async def kubelet(kubeconfig: Path, tmp_path: Path) -> AsyncIterator[Path]:
    """Kubelets that run what is bound; the folder of their ledger."""
    data = tmp_path / "kubelet"
    task = asyncio.create_task(kubelet_http.serve(str(kubeconfig), data))
    yield data
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


@pytest.fixture(scope="session", autouse=True)
def uncached(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[[], kubernetes.Kubernetes]]:
    """Gives a server without a watch cache, with our kinds, to the one test that breaks it.

    Without workers it starts beside the tests before.
    """
    made = kubernetes.Kubernetes(tmp_path_factory.mktemp("uncached"), NO_CACHE)

    def start() -> kubernetes.Kubernetes:
        made.start()
        install(made.kubeconfig())
        return made

    is_wanted = any("server_to_break" in item.fixturenames for item in request.session.items)
    with ThreadPoolExecutor(1) as pool:
        early = is_wanted and "PYTEST_XDIST_WORKER" not in os.environ
        starting = pool.submit(start) if early else None
        yield lambda: start() if starting is None else starting.result()
    made.close()


@pytest.fixture
def own_server(tmp_path: Path) -> Iterator[kubernetes.Kubernetes]:
    """A server of the test's own, with our kinds."""
    own = kubernetes.Kubernetes(tmp_path / "kubernetes")
    try:
        own.start()
        install(own.kubeconfig())
        yield own
    finally:
        own.close()
