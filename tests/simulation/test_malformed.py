"""Malformed objects and a damaged row: a visible reason, a parked version or a clear stop.

The rest goes on: a well-formed job runs beside them all, and one that comes after them, too.
"""

import asyncio
import json
import sqlite3
import subprocess
import sys

import pytest

from kai_es.eventlog.sqlite import SqliteLog
from kai_es.events.catalogue import OBJECTS
from kai_es.events.objects import ObjectSeen
from kai_es.kube.labels import GROUP_STAMP
from kai_es.runtime.instance import Instance
from kai_es.simulate import workload
from tests.histories.logs import out
from tests.platform.process import SAYS_S, Parts
from tests.simulation.api_client import GROUPS, PODS

DAMAGED = 65
"""Exit code of a process whose log cannot be read on."""


class Site:
    """An instance with all four services as one process, and the CLI on it."""

    def __init__(self, root, api, kubeconfig):
        self.api = api
        self.instance = Instance(root).create()
        self.kubeconfig = kubeconfig
        self.parts = None

    def start(self):
        names = ["informer", "snapshot", "scheduler", "binder"]
        self.parts = Parts(self.instance.root, names, kubeconfig=self.kubeconfig)

    def cli(self, *argv):
        """Exit code, stdout and stderr of a command."""
        argv = [sys.executable, "-m", "kai_es.cli", *argv, "--data", str(self.instance.root)]
        ended = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)
        return ended.returncode, ended.stdout, ended.stderr

    def group(self, name, queue):
        """A pod group; the stamp of its pods."""
        raw = workload.pod_group(
            name, namespace=self.api.namespace, queue_name=queue, min_member=1, priority_class=""
        )
        del raw["spec"]["priorityClassName"]
        meta = self.api.ok("POST", GROUPS, raw)["metadata"]
        return raw, f"{meta['uid']}/{meta['generation']}"

    def job(self, name, queue, requests):
        """A group of one pod."""
        raw, stamp = self.group(name, queue)
        raw["spec"]["priorityClassName"] = ""
        pod = workload.pod(name, raw, requests, run_s=None, annotations={GROUP_STAMP: stamp})
        del pod["spec"]["priorityClassName"]
        return self.api.ok("POST", PODS, pod)

    async def until_bound(self, name):
        async with asyncio.timeout(SAYS_S):
            while not self.api.ok("GET", f"{PODS}/{name}")["spec"].get("nodeName"):
                assert self.parts.process.poll() is None, self.parts.log.read_text()[-3000:]
                await asyncio.sleep(0.1)

    async def until_explained(self, kind, name, *words):
        """Wait until the first line of an object's story has these words."""
        shown = ""
        try:
            async with asyncio.timeout(SAYS_S):
                while not all(word in shown for word in words):
                    shown = self.cli("explain", kind, name)[1].partition("\n")[0]
                    await asyncio.sleep(0.2)
        except TimeoutError:
            raise AssertionError(f"want {words}, explained is {shown!r}") from None

    async def until_parked(self, *names):
        """What is parked, by name, once all of these are."""
        async with asyncio.timeout(SAYS_S):
            while True:
                rows = json.loads(self.cli("deadletter", "list", "-o", "json")[1])
                found = {row["name"]: row for row in rows}
                if set(names) <= set(found):
                    return found
                await asyncio.sleep(0.2)


@pytest.fixture
def site(tmp_path, api, simulated):
    site = Site(tmp_path / "instance", api, str(simulated.kubeconfig))
    node = workload.node(f"{api.namespace}-node", workload.NodeShape(4, "T4", 0, 32_000, 65_536))
    api.ok("POST", "/api/v1/nodes", node)
    for queue in queues(api.namespace):
        api.ok("POST", "/apis/scheduling.run.ai/v2/queues", queue)
    site.start()
    yield site
    site.parts.stop()


def queues(prefix):
    """A good one, and two that are each other's parents."""
    return [
        workload.queue(f"{prefix}-good"),
        workload.queue(f"{prefix}-egg", parent=f"{prefix}-hen"),
        workload.queue(f"{prefix}-hen", parent=f"{prefix}-egg"),
    ]


async def of_an_unknown_version(site):
    """The log has a pod group of a version that this release does not know."""
    raw = {
        "apiVersion": "scheduling.run.ai/v9",
        "kind": "PodGroup",
        "metadata": {"name": "future", "namespace": "ns", "uid": "future", "resourceVersion": "1"},
        "spec": {},
    }
    record = ObjectSeen(
        kind="PodGroup",
        uid="future",
        namespace="ns",
        name="future",
        rv=1,
        incarnation=1,
        object=raw,
    )
    log = SqliteLog(site.instance.log)
    try:
        epoch = await log.take_over("stranger")
        await log.append(epoch, [out(record, OBJECTS, "PodGroup/future", at_ms=1)])
    finally:
        await log.close()


@pytest.mark.timeout(600)
async def test_malformed_objects_are_visible_and_the_rest_goes_on(site):
    good = f"{site.api.namespace}-good"
    await site.parts.ready()
    site.job("before", good, {"cpu": "1"})
    site.job("lost", f"{site.api.namespace}-nowhere", {"cpu": "1"})
    site.job("circular", f"{site.api.namespace}-egg", {"cpu": "1"})
    site.job("plain", good, {})
    negative = site.job("negative", good, {"cpu": "-1"})
    await of_an_unknown_version(site)
    site.job("after", good, {"cpu": "1"})
    for name in ("before", "plain", "after"):
        await site.until_bound(name)
    parked = await site.until_parked("negative", "future")
    assert "-1" in parked["negative"]["error"]
    assert parked["negative"]["uid"] == negative["metadata"]["uid"]
    assert "scheduling.run.ai/v9" in parked["future"]["error"]
    space = site.api.namespace
    await site.until_explained(
        "podgroup", "lost", f"no-queue: Queue {space}-nowhere does not exist."
    )
    await site.until_explained(
        "pod", "circular", f"queue-cycle: Queue {space}-egg is its own ancestor"
    )
    await site.until_explained("pod", "negative", "a version cannot be read", "'-1'")
    await site.parts.ready()
    code, shown, error = site.cli("log", "verify")
    assert (code, error) == (0, ""), shown + error


@pytest.mark.timeout(600)
async def test_damaged_row_stops_readers_and_is_named(site):
    await site.parts.ready()
    site.job("before", f"{site.api.namespace}-good", {"cpu": "1"})
    await site.until_bound("before")
    site.parts.stop()
    topic, partition, position = damage(site.instance.log)
    where = f"{topic}/{partition}"
    for command in (("log", "verify"), ("explain", "pod", "before")):
        code, _, error = site.cli(*command)
        assert code != 0, command
        assert where in error, error
        assert str(position) in error, error
        assert "checksum" in error, error
        assert "Traceback" not in error, error
    site.start()
    assert await asyncio.to_thread(site.parts.process.wait, SAYS_S) == DAMAGED
    assert site.parts.told(where), site.parts.log.read_text()[-2000:]
    assert not site.parts.told("Traceback")


def damage(path):
    """Flip a bit in a row in the middle of `snapshot`; topic, partition and position."""
    with sqlite3.connect(path) as file:
        rows = file.execute(
            "SELECT e.id, e.value, p.topic, p.partition FROM entry e JOIN part p"
            " ON p.tp = e.id >> 40 WHERE p.topic = 'snapshot' ORDER BY e.id"
        ).fetchall()
        number, value, topic, partition = rows[len(rows) // 2]
        value = bytes([*value[:-1], value[-1] ^ 1])
        file.execute("UPDATE entry SET value = ? WHERE id = ?", (value, number))
    file.close()
    return topic, partition, number & (1 << 40) - 1
