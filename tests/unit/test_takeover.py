"""Open bind requests of an installed KAI (docs/migration.md)."""

import pytest

from kai_es.intake.takeover import BUSY_S, SUPERSEDED_MS, Takeover
from kai_es.kube.times import rfc3339
from kai_es.ports.cluster import BIND_REQUESTS, PODS
from kai_es.ports.errors import ConflictError, GoneError, RefusedError

NOW_MS = 1_790_000_000_000


class Clock:
    ms = NOW_MS

    def now_ms(self):
        return self.ms


class Cluster:
    """Pods and bind requests by name, and what was done to them."""

    def __init__(self):
        self.pods, self.requests, self.done = {}, {}, []
        self.refuses: Exception | None = None
        self.clock = Clock()

    def pod(self, name="p", *, node="", labels=None, uid="", **metadata):
        meta = {"namespace": "ns", "name": name, "uid": uid or f"u-{name}", "resourceVersion": "5"}
        self.pods[name] = {
            "metadata": meta | {"labels": labels or {}} | metadata,
            "spec": {"nodeName": node},
            "status": {"phase": "Pending"},
        }

    def request(self, name="p", *, age_s=0, phase="", uid="", labels=None):
        owner = {"apiVersion": "v1", "kind": "Pod", "name": name, "uid": uid or f"u-{name}"}
        self.requests[name] = {
            "metadata": {
                "namespace": "ns",
                "name": name,
                "uid": f"r-{name}",
                "resourceVersion": "9",
                "creationTimestamp": rfc3339(NOW_MS - age_s * 1000),
                "ownerReferences": [owner],
                "labels": labels or {},
            },
            "spec": {"podName": name, "selectedNode": "n1"},
            "status": {"phase": phase} if phase else {},
        }

    async def list(self, resource, namespace="", *, labels="", fields=""):
        assert (resource, namespace, fields) == (BIND_REQUESTS, "", "")
        assert labels == "kai.scheduler/mirror!=true"
        if self.refuses is not None:
            raise self.refuses
        mirrored = ("kai.scheduler/mirror", "true")
        found = self.requests.values()
        return [one for one in found if mirrored not in one["metadata"]["labels"].items()], 1

    async def get(self, resource, namespace, name):
        assert resource is PODS
        if name not in self.pods:
            raise GoneError(status=404)
        return self.pods[name]

    async def patch(self, resource, namespace, name, changes, *, uid, rv, subresource=""):
        self.done.append(("patch", name, changes, uid, rv))
        return self.pods[name]

    async def delete(self, resource, namespace, name, *, uid, rv, grace_s=None):
        if self.refuses is not None:
            raise self.refuses
        self.done.append(("delete", name, uid, rv))
        del self.requests[name]


@pytest.fixture
def cluster():
    return Cluster()


async def looked(cluster):
    takeover = Takeover(cluster, cluster.clock)
    await takeover.look()
    return takeover


async def test_young_request_of_a_waiting_pod_is_waited_for(cluster):
    cluster.pod()
    cluster.request(age_s=20)
    found = await looked(cluster)
    assert found.open == 1
    assert "ns/p" in found.problem
    assert cluster.done == []


@pytest.mark.parametrize(
    "pod",
    [
        {"node": "n1"},
        {"uid": "another"},
        {"deletionTimestamp": "2026-01-01T00:00:00Z"},
        None,
    ],
)
async def test_requests_that_nobody_can_execute_are_left_alone(cluster, pod):
    if pod is not None:
        cluster.pod(**pod)
    cluster.request(age_s=9999)
    found = await looked(cluster)
    assert (found.open, found.problem, cluster.done) == (0, "", [])


async def test_finished_and_mirrored_ones_do_not_count(cluster):
    for name in ("done", "ours"):
        cluster.pod(name)
    cluster.request("done", phase="Succeeded")
    cluster.request("ours", labels={"kai.scheduler/mirror": "true"})
    assert (await looked(cluster)).open == 0


@pytest.mark.parametrize("phase", ["", "Failed"])
async def test_old_request_is_taken_back_with_what_its_attempt_left(cluster, phase):
    """A failed one too: its binder tries it again as long as it is there."""
    labels = {"runai-gpu-group": "g", "runai-gpu-group/h": "h", "app": "x"}
    cluster.pod(labels=labels)
    cluster.request(age_s=SUPERSEDED_MS / 1000 + 1, phase=phase)
    found = await looked(cluster)
    gone = {"metadata": {"labels": {"runai-gpu-group": None, "runai-gpu-group/h": None}}}
    assert cluster.done == [("patch", "p", gone, "u-p", 5), ("delete", "p", "r-p", 9)]
    assert found.open == 0


@pytest.mark.parametrize("exc", [ConflictError(status=409), RefusedError(status=403)])
async def test_request_that_cannot_be_taken_back_stays_open(cluster, exc):
    cluster.pod()
    cluster.request(age_s=9999)
    takeover = Takeover(cluster, cluster.clock)
    await takeover.look()
    cluster.request(age_s=9999)
    original = cluster.list

    async def listed(*args, **kwargs):
        cluster.refuses = None
        found = await original(*args, **kwargs)
        cluster.refuses = exc
        return found

    cluster.list = listed
    await takeover.look()
    assert takeover.open == 1


async def test_cluster_without_such_objects(cluster):
    cluster.refuses = GoneError(status=404)
    assert (await looked(cluster)).open == 0


@pytest.mark.parametrize(
    "exc",
    [RefusedError("add to our role", status=403), GoneError("add to our role", status=410)],
)
async def test_who_may_not_look_counts_one_until_it_may(cluster, exc):
    """Nobody knows whether another binder is at work, so nothing may be decided."""
    cluster.refuses = exc
    found = await looked(cluster)
    assert (found.open, found.pause_s()) == (1, BUSY_S)
    assert "add to our role" in found.problem
    cluster.refuses = None
    await found.look()
    assert (found.open, found.problem) == (0, "")
