"""The binder as a process against the API server as a process: kills, lost answers, lost servers.

After each: every request has one final result, no pod is bound twice, results and pods agree.
"""

import asyncio
import random
import time
from collections import Counter
from pathlib import Path

import pytest

from kai_es.eventlog.sqlite import SqliteLog
from kai_es.events.catalogue import BIND_REQUESTS, BIND_RESULTS
from kai_es.events.codec import decode, pack, unpack
from kai_es.events.requests import (
    BindRequested,
    Bound,
    Evicted,
    EvictRequested,
    Refused,
    is_final,
    request_id,
)
from kai_es.ports.eventlog import Out
from kai_es.simulate.cluster import ClusterProcess
from tests.simulation.api_client import PODS, Api, a_pod
from tests.simulation.parts import Part

NODES = 8
SETTLE_S = 40.0
LATE_MS = 1_000  # what begins in time may end later


class World:
    """A cluster with nodes, a log, a binder, and a scheduler that only gives orders."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.cluster = ClusterProcess(folder / "cluster", "--no-kubelet").start()
        self.api = Api(str(self.cluster.kubeconfig), "ns", lambda: None)
        self.api.ok("POST", "/api/v1/namespaces", {"metadata": {"name": "ns"}})
        self.nodes = [
            self.api.ok("POST", "/api/v1/nodes", {"metadata": {"name": f"n{n}"}})["metadata"]
            for n in range(NODES)
        ]
        self.binder = Part("binder", self.cluster.kubeconfig, folder / "log.db")
        self.requests: dict[str, BindRequested | EvictRequested] = {}
        self.cycle = 0

    def close(self):
        self.binder.kill()
        self.api.close()
        self.cluster.stop()

    def pods(self, count):
        made = len(self.requests)
        return [self.api.ok("POST", PODS, a_pod(f"p{made + n}"))["metadata"] for n in range(count)]

    def bind(self, pods, *, seconds=120.0):
        """Order pods onto nodes, as one cycle does."""
        self._order(pods, BindRequested, seconds=seconds)

    def evict(self, pods, *, seconds=30.0):
        self._order(pods, EvictRequested, seconds=seconds, action="reclaim")

    def _order(self, pods, kind, *, seconds, **more):
        self.cycle += 1
        not_after_ms = int((time.time() + seconds) * 1000)
        outs = []
        for n, pod in enumerate(pods):
            number = n % NODES
            request = kind(
                request_id=request_id(shard="s", cycle=self.cycle, pod_uid=pod["uid"]),
                shard="s",
                cycle=self.cycle,
                epoch=1,
                namespace="ns",
                pod=pod["name"],
                pod_uid=pod["uid"],
                pod_rv=int(pod["resourceVersion"]),
                node=self.nodes[number]["name"],
                node_uid=self.nodes[number]["uid"],
                group_uid="g",
                not_after_ms=not_after_ms,
                **more,
            )
            self.requests[request.request_id] = request
            envelope = pack(
                request,
                topic=BIND_REQUESTS,
                record_id=request.request_id,
                event_time=0,
                ingest_time=0,
                producer="test",
            )
            outs.append(Out(BIND_REQUESTS, pod["uid"], number, envelope))
        asyncio.run(self._append(outs))

    async def _append(self, outs):
        log = SqliteLog(self.folder / "log.db")
        await log.append(await log.take_over("scheduler-s"), outs)
        await log.close()

    def results(self):
        return asyncio.run(self._results())

    async def _results(self):
        log = SqliteLog(self.folder / "log.db")
        found = []
        for partition, start in sorted((await log.begin(BIND_RESULTS)).items()):
            async for entries in log.read(BIND_RESULTS, partition, start, follow=False):
                found += [unpack(decode(entry.value)) for entry in entries]
        await log.close()
        return found

    def settled(self):
        """Wait until every request has its final result, then check all that must hold."""
        deadline = time.monotonic() + SETTLE_S
        while True:
            self.binder.restart_if_ended()
            finals = [r for r in self.results() if is_final(r)]
            if {r.request_id for r in finals} == self.requests.keys():
                break
            open_ = self.requests.keys() - {r.request_id for r in finals}
            assert time.monotonic() < deadline, f"{len(open_)} open: {sorted(open_)[:3]}"
            time.sleep(0.05)
        counts = Counter(r.request_id for r in finals)
        assert set(counts.values()) == {1}, "one final result each"
        done = [row for row in self.cluster.ledger() if 200 <= row.status < 300]
        bindings = [row for row in done if row.subresource == "binding"]
        accepted = Counter(row.uid for row in bindings)
        last = {r.pod_uid: r.not_after_ms for r in self.requests.values()}
        for row in bindings:
            assert row.time_ms <= last[row.uid] + LATE_MS, "none without a request or too late"
        assert set(accepted.values()) <= {1}, "no pod is bound twice"
        live = {p["metadata"]["uid"]: p for p in self.api.ok("GET", PODS)["items"]}
        bound = {r.pod_uid: r.node for r in finals if isinstance(r, Bound)}
        assert bound.keys() == accepted.keys()
        for uid, node in bound.items():
            if uid in live:
                assert live[uid]["spec"]["nodeName"] == node
        return {r.request_id: r for r in finals}


@pytest.fixture
def world(tmp_path):
    world = World(tmp_path)
    yield world
    world.close()


def test_binds_and_evictions(world):
    world.binder.start()
    pods = world.pods(40)
    world.bind(pods)
    assert {type(r) for r in world.settled().values()} == {Bound}
    world.evict(world.api.ok("GET", f"{PODS}/{pod['name']}")["metadata"] for pod in pods[:10])
    results = world.settled()
    assert sum(isinstance(r, Evicted) for r in results.values()) == 10
    gone = [p for p in world.api.ok("GET", PODS)["items"] if p["metadata"].get("deletionTimestamp")]
    assert len(gone) == 10
    notes = gone[0]["metadata"]["annotations"]
    bound_by = f"s/1/{gone[0]['metadata']['uid']}"
    assert notes == {"received-resource-type": "Regular", "kai.scheduler/bound-request": bound_by}


def test_stale_orders_change_nothing(world):
    """Pods that were recreated, deleted, bound by others, changed, or that come too late."""
    pods = world.pods(5)
    recreated, deleted, taken, changed, late = pods
    for pod in (recreated, deleted):
        world.api.ok("DELETE", f"{PODS}/{pod['name']}", {"gracePeriodSeconds": 0})
    world.api.ok("POST", PODS, a_pod(recreated["name"]))
    binding = {"metadata": {"name": taken["name"]}, "target": {"kind": "Node", "name": "n7"}}
    world.api.ok("POST", f"{PODS}/{taken['name']}/binding", binding)
    world.api.patch(f"{PODS}/{changed['name']}", {"metadata": {"labels": {"a": "b"}}})
    world.bind([recreated, deleted, changed])
    world.bind([taken, late], seconds=-1)
    world.binder.start()
    deadline = time.monotonic() + SETTLE_S
    while len(finals := [r for r in world.results() if is_final(r)]) < 5:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    codes = {r.pod_uid: getattr(r, "code", "bound") for r in finals}
    assert codes == {
        recreated["uid"]: "pod-gone",
        deleted["uid"]: "pod-gone",
        taken["uid"]: "bound-elsewhere",
        changed["uid"]: "bound",
        late["uid"]: "expired",
    }
    fresh = world.api.ok("GET", f"{PODS}/{recreated['name']}")
    assert "nodeName" not in fresh["spec"]
    closed = world.api.ok("GET", f"{PODS}/{late['name']}")["metadata"]["annotations"]
    assert closed["kai.scheduler/closed-request"] == f"s/2/{late['uid']}"


def test_answers_that_get_lost(world):
    rules = [
        {"action": action, "client": "kai-es", "verb": verb, "probability": 0.12}
        for action in ("lose", "close")
        for verb in ("create", "delete", "get", "patch")
    ]
    world.api.ok("PUT", "/simulate/faults", {"seed": 2, "rules": rules})
    world.binder.start()
    world.bind(world.pods(60))
    world.bind(world.pods(10), seconds=-1)
    results = world.settled()
    assert Counter(type(r) for r in results.values()) == {Bound: 60, Refused: 10}


def test_kills_of_binder_and_server(world):
    mishaps(world, seed=1, rounds=4, pods=60)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(3))
def test_many_kills(world, seed):
    mishaps(world, seed=seed, rounds=20, pods=100)


def mishaps(world, *, seed, rounds, pods):
    """Binds, evictions and late orders while binder and server are killed in the midst of them."""
    chance = random.Random(seed)
    world.binder.start()
    for _ in range(rounds):
        made = world.pods(pods)
        world.bind(made[: pods // 2])
        world.bind(made[pods // 2 : -5])
        world.bind(made[-5:], seconds=0.3)
        time.sleep(chance.random() * 0.3)
        what = chance.choice(["binder", "server", "both"])
        if what in ("binder", "both"):
            world.binder.kill()
        if what in ("server", "both"):
            world.cluster.kill()
            time.sleep(chance.random() * 0.3)
            world.cluster.start()
        if what in ("binder", "both"):
            world.binder.start()
        if chance.random() < 0.5:
            world.settled()
            bound = [p for p in world.api.ok("GET", PODS)["items"] if p["spec"].get("nodeName")]
            world.evict([pod["metadata"] for pod in chance.sample(bound, 5)])
    world.settled()
