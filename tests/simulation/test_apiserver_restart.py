"""What only the simulated API server does: crashes on order, faults on order, an access ledger."""

import asyncio
import itertools
import random
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import urllib3

from kai_es.ports.errors import UnavailableError
from kai_es.simulate.cluster import ClusterProcess, SimulatedCluster
from tests.simulation.api_client import PODS, Api, a_binding, a_pod, shown

MAPS = "/api/v1/namespaces/{ns}/configmaps"


@pytest.fixture
def own(tmp_path: Path) -> Iterator[ClusterProcess]:
    """A server that a test may kill."""
    with ClusterProcess(tmp_path / "cluster", "--bookmark-seconds", "0.3") as cluster:
        yield cluster


@pytest.fixture
def own_api(own: ClusterProcess) -> Iterator[Api]:
    api = Api(str(own.kubeconfig), "default", lambda: None)
    yield api
    api.close()


def state(api: Api) -> object:
    return [api.ok("GET", path)["items"] for path in ("/api/v1/pods", "/api/v1/configmaps")]


def faults(api: Api, *rules: object) -> None:
    api.ok("PUT", "/simulate/faults", {"rules": rules})


def test_restart_keeps_state_version_token_and_address(own: ClusterProcess, own_api: Api):
    own_api.bound_pod("a")
    own_api.ok("POST", MAPS, {"metadata": {"name": "m"}})
    own_api.ok("DELETE", MAPS + "/m")
    before, rv = state(own_api), own_api.ok("GET", "/simulate/stats")["rv"]
    url = own.url
    own.stop()
    own.start()
    assert own.url == url
    assert state(own_api) == before
    assert own_api.ok("GET", "/simulate/stats")["rv"] == rv
    assert int(own_api.pod("b")["metadata"]["resourceVersion"]) == rv + 1


def test_restart_keeps_defined_kinds_and_their_objects(own: ClusterProcess, own_api: Api):
    definition = {
        "metadata": {"name": "widgets.example.com"},
        "spec": {
            "group": "example.com",
            "scope": "Cluster",
            "names": {"kind": "Widget", "plural": "widgets"},
            "versions": [{"name": "v1", "served": True, "storage": True}],
        },
    }
    own_api.ok("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition)
    widget = {"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w"}}
    made = own_api.ok("POST", "/apis/example.com/v1/widgets", widget)
    own.kill()
    own.start()
    assert own_api.ok("GET", "/apis/example.com/v1/widgets/w") == made


def test_kill_loses_no_answered_write(own: ClusterProcess, own_api: Api):
    """Writers run until the server is killed under them; whatever was answered must be there."""
    for round_ in range(3):
        answered: dict[str, str] = {}
        threads = [
            threading.Thread(target=_write_until_down, args=(own_api, f"r{round_}-{n}-", answered))
            for n in range(4)
        ]
        for thread in threads:
            thread.start()
        time.sleep(0.3 + random.Random(round_).random() * 0.2)
        own.kill()
        for thread in threads:
            thread.join()
        own.start()
        items = own_api.ok("GET", MAPS)["items"]
        found = {m["metadata"]["name"]: m["metadata"]["resourceVersion"] for m in items}
        assert len(answered) > 20
        assert answered.items() <= found.items()
        ledger = {r.name: r.rv for r in own.ledger() if r.resource == "configmaps"}
        assert {name: int(rv) for name, rv in found.items()}.items() <= ledger.items()


def _write_until_down(api: Api, prefix: str, answered: dict[str, str]) -> None:
    for i in itertools.count():
        try:
            made = api.ok("POST", MAPS, {"metadata": {"name": f"{prefix}{i}"}})
        except (urllib3.exceptions.HTTPError, OSError):
            return
        answered[made["metadata"]["name"]] = made["metadata"]["resourceVersion"]


def test_watch_resumes_over_a_kill_without_a_gap(own: ClusterProcess, own_api: Api):
    rv = own_api.ok("GET", MAPS)["metadata"]["resourceVersion"]
    own_api.ok("POST", MAPS, {"metadata": {"name": "a"}})
    own_api.ok("DELETE", MAPS + "/a")
    own.kill()
    own.start()
    own_api.ok("POST", MAPS, {"metadata": {"name": "b"}})
    with own_api.watch(f"{MAPS}?resourceVersion={rv}&timeoutSeconds=20") as events:
        seen = [shown(e) for e in itertools.islice(events, 3)]
    assert seen == [("ADDED", "a"), ("DELETED", "a"), ("ADDED", "b")]


def test_history_limit_expires_old_watches_also_after_a_restart(tmp_path: Path):
    with ClusterProcess(tmp_path, "--history-seconds", "0.001") as cluster:
        api = Api(str(cluster.kubeconfig), "default", lambda: None)
        api.ok("POST", MAPS, {"metadata": {"name": "a"}})
        rv = api.ok("GET", MAPS)["metadata"]["resourceVersion"]
        api.ok("POST", MAPS, {"metadata": {"name": "b"}})
        api.ok("POST", "/simulate/compact", {})
        before = state(api)
        cluster.kill()
        cluster.start()
        with api.watch(f"{MAPS}?resourceVersion={rv}&timeoutSeconds=20") as events:
            assert [(e["type"], e["object"]["code"]) for e in events] == [("ERROR", 410)]
        assert state(api) == before
        api.close()


def test_an_older_copy_of_the_state_is_an_etcd_restore(own: ClusterProcess, own_api: Api):
    own_api.ok("POST", MAPS, {"metadata": {"name": "a"}})
    own.stop()
    copy = own.data / "copy.db"
    shutil.copy(own.data / "apiserver.db", copy)
    own.start()
    later = own_api.ok("POST", MAPS, {"metadata": {"name": "b"}})["metadata"]["resourceVersion"]
    own.stop()
    shutil.copy(copy, own.data / "apiserver.db")
    own.start()
    listed = own_api.ok("GET", MAPS)
    assert [m["metadata"]["name"] for m in listed["items"]] == ["a"]
    assert int(listed["metadata"]["resourceVersion"]) < int(later)


def test_two_servers_on_one_directory_are_refused(own: ClusterProcess):
    with pytest.raises(UnavailableError, match=r"apiserver\.log"):
        ClusterProcess(own.data).start()
    assert "another API server runs on" in (own.data / "apiserver.log").read_text()


def test_server_ends_with_its_parent(tmp_path: Path):
    """The parent is killed, so it can end nothing itself."""
    code = (
        "import sys, time; from pathlib import Path\n"
        "from kai_es.simulate.cluster import ClusterProcess\n"
        "cluster = ClusterProcess(Path(sys.argv[1])).start()\n"
        "print(cluster.url, flush=True)\n"
        "time.sleep(60)\n"
    )
    parent = subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE, text=True
    )
    assert parent.stdout is not None
    url = parent.stdout.readline().strip()
    pool = urllib3.PoolManager(retries=False)
    assert pool.request("GET", url + "/readyz").status == 200
    parent.kill()
    parent.wait()
    parent.stdout.close()
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        try:
            pool.request("GET", url + "/readyz")
        except urllib3.exceptions.HTTPError:
            return
        time.sleep(0.05)
    pytest.fail("the server lives on without its parent")


def test_bookmarks_come_at_the_configured_pace(own_api: Api):
    rv = own_api.ok("GET", MAPS)["metadata"]["resourceVersion"]
    own_api.ok("POST", PODS, a_pod("other-kind"))
    query = f"resourceVersion={rv}&timeoutSeconds=20&allowWatchBookmarks=true"
    with own_api.watch(f"{MAPS}?{query}") as events:
        first, second = itertools.islice(events, 2)
    assert first["type"] == second["type"] == "BOOKMARK"
    assert int(first["object"]["metadata"]["resourceVersion"]) > int(rv)


def test_create_is_quick_on_one_connection(own_api: Api):
    """Delayed acknowledgements would make it 40 ms each."""
    start = time.perf_counter()
    for i in range(50):
        own_api.ok("POST", MAPS, {"metadata": {"name": f"m{i}"}})
    assert time.perf_counter() - start < 1.5


# -- access ledger


def test_ledger_shows_every_write_with_its_outcome(own: ClusterProcess, own_api: Api):
    uid = own_api.pod("a")["metadata"]["uid"]
    for node in ("x", "y"):
        own_api.call("POST", PODS + "/a/binding", a_binding("a", node), User_Agent="binder-1")
    own_api.call("DELETE", PODS + "/missing")
    rows = [r for r in own.ledger() if r.resource == "pods"]
    assert [(r.verb, r.subresource, r.name, r.status) for r in rows] == [
        ("create", "", "a", 201),
        ("create", "binding", "a", 201),
        ("create", "binding", "a", 409),
        ("delete", "", "missing", 404),
    ]
    assert [(r.uid, r.client) for r in rows if r.subresource and r.status < 300] == [
        (uid, "binder-1")
    ]


# -- faults


def test_error_fault_acts_on_what_it_names_only(own_api: Api):
    own_api.pod("a")
    faults(
        own_api,
        {"action": "error", "code": 403, "subresource": "binding", "resource": "pods", "times": 1},
        {"action": "error", "code": 429, "verb": "list", "retry_after_s": 7, "skip": 1, "times": 1},
    )
    own_api.fails(403, "POST", PODS + "/a/binding", a_binding("a", "n"))
    own_api.ok("POST", PODS + "/a/binding", a_binding("a", "n"))
    own_api.ok("GET", PODS)
    response = own_api.open("GET", PODS)
    assert (response.status, response.headers["Retry-After"]) == (429, "7")
    response.drain_conn()
    response.release_conn()
    own_api.ok("GET", PODS)


def test_delay_fault_delays(own_api: Api):
    faults(own_api, {"action": "delay", "delay_ms": 300, "verb": "get"})
    own_api.pod("a")
    start = time.monotonic()
    own_api.ok("GET", PODS + "/a")
    assert time.monotonic() - start >= 0.3


@pytest.mark.parametrize(("action", "executed"), [("close", False), ("lose", True)])
def test_connection_faults_differ_in_what_was_done(own_api: Api, action: str, executed: bool):
    own_api.pod("a")
    faults(own_api, {"action": action, "subresource": "binding", "times": 1})
    with pytest.raises(urllib3.exceptions.HTTPError):
        own_api.call("POST", PODS + "/a/binding", a_binding("a", "n"))
    assert ("nodeName" in own_api.ok("GET", PODS + "/a")["spec"]) is executed


def test_fault_with_an_unknown_word_is_refused(own_api: Api):
    for rule in ({"action": "explode"}, {"action": "error", "kode": 5}):
        own_api.fails(400, "PUT", "/simulate/faults", {"rules": [rule]})


def test_dropped_watches_break_or_end(own_api: Api):
    rv = own_api.ok("GET", MAPS)["metadata"]["resourceVersion"]
    query = f"{MAPS}?resourceVersion={rv}&timeoutSeconds=20"
    with own_api.watch(query) as events:
        assert own_api.ok("POST", "/simulate/drop-watches", {"graceful": True}) == {"dropped": 1}
        assert list(events) == []
    with own_api.watch(query) as events:
        own_api.ok("POST", "/simulate/drop-watches", {"resource": "configmaps"})
        with pytest.raises(urllib3.exceptions.HTTPError):
            next(events)
    assert own_api.ok("GET", "/simulate/stats")["watches"] == []


async def test_cluster_in_this_process(tmp_path: Path):
    async with SimulatedCluster(tmp_path) as cluster:
        http = urllib3.PoolManager(retries=False)
        response = await asyncio.to_thread(
            http.request, "GET", cluster.url + "/api/v1/nodes", headers=cluster.headers
        )
        assert response.status == 200
        assert cluster.ledger() == []
