"""Informers as a process against the API server as a process: kills, 410s, restores, faults.

After each: what the log folds to has uid and resourceVersion of every live object.
"""

import asyncio
import random
import shutil
import time
from pathlib import Path

import pytest

from kai_es.eventlog.sqlite import SqliteLog
from kai_es.intake.kinds import SOURCES
from kai_es.simulate.cluster import ClusterProcess
from tests.intake_fold import PARTITIONS, Folded, fold
from tests.simulation.api_client import GROUPS, PODS, Api, a_group, a_pod
from tests.simulation.parts import Part

SETTLE_S = 90.0
"""On a busy machine; on a quiet one it takes a second or two."""


class World:
    """A cluster, an informer, a log, and what goes wrong between them."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.cluster = ClusterProcess(
            folder / "cluster", "--bookmark-seconds", "0.5", "--no-kubelet"
        )
        self.cluster.start()
        self.api = Api(str(self.cluster.kubeconfig), "ns", lambda: None)
        self.api.ok("POST", "/api/v1/namespaces", {"metadata": {"name": "ns"}})
        self.informer = Part("informer", self.cluster.kubeconfig, folder / "log.db")
        self.random = random.Random(0)
        self.names: list[str] = []
        self.made = 0

    def close(self):
        self.informer.kill()
        self.api.close()
        self.cluster.stop()

    # -- what users do

    def create(self, count=1):
        for _ in range(count):
            self.made += 1
            name = f"p{self.made}"
            self.api.ok("POST", PODS, a_pod(name))
            self.names.append(name)

    def change(self):
        for name in self.random.sample(self.names, min(3, len(self.names))):
            label = {"metadata": {"labels": {"n": str(self.random.random())}}}
            self.api.patch(f"{PODS}/{name}", label)

    def delete(self):
        for name in self.random.sample(self.names, min(2, len(self.names))):
            self.names.remove(name)
            self.api.ok("DELETE", f"{PODS}/{name}", {"gracePeriodSeconds": 0})

    def work(self):
        self.create(3)
        self.change()
        self.delete()

    # -- what goes wrong

    def compact(self):
        self.api.ok("POST", "/simulate/compact", {})

    def restart_server(self):
        self.cluster.kill()
        self.cluster.start()

    def back_up(self):
        self.cluster.stop()
        shutil.copytree(self.cluster.data, self.folder / "backup")
        self.cluster.start()

    def restore(self):
        """As after a disaster: the state of the backup, and the server starts anew."""
        self.cluster.stop()
        for file in self.cluster.data.glob("apiserver.db*"):
            file.unlink()
        for file in (self.folder / "backup").glob("apiserver.db*"):
            shutil.copy(file, self.cluster.data)
        self.cluster.start()
        self.names = [p["metadata"]["name"] for p in self.api.ok("GET", PODS)["items"]]

    # -- what must hold

    def live(self):
        found = {}
        for source in SOURCES:
            version, plural = source.resource.api_version, source.resource.plural
            root = "/apis/" if "/" in version else "/api/"
            for item in self.api.ok("GET", f"{root}{version}/{plural}")["items"]:
                metadata = item["metadata"]
                found[source.kind, metadata["uid"]] = int(metadata["resourceVersion"])
        return found

    def settled(self) -> Folded:
        """Wait until the log shows what is live and every kind is listed everywhere."""
        deadline = time.monotonic() + SETTLE_S
        while True:
            self.informer.restart_if_ended()
            live, folded = self.live(), asyncio.run(self.folded())
            found = {key: record.rv for key, record in folded.live.items()}
            newest = max((r.incarnation for r in folded.listed.values()), default=0)
            listed = [r for r in folded.listed.values() if r.incarnation == newest]
            if found == live and len(listed) == len(SOURCES) * PARTITIONS:
                assert len(set(folded.ids)) == len(folded.ids), "nothing twice"
                return folded
            assert time.monotonic() < deadline, set(found.items()) ^ set(live.items())
            time.sleep(0.05)

    async def folded(self):
        log = SqliteLog(self.folder / "log.db")
        try:
            return await fold(log)
        finally:
            await log.close()


@pytest.fixture
def world(tmp_path):
    world = World(tmp_path)
    yield world
    world.close()


def test_changes_arrive_and_deletes_while_down_are_found(world):
    world.create(20)
    world.api.ok("POST", GROUPS, a_group("g"))
    world.informer.start()
    world.settled()
    world.work()
    world.settled()
    world.informer.kill()
    world.work()
    world.api.ok("DELETE", GROUPS + "/g")
    world.informer.start()
    folded = world.settled()
    assert {r.incarnation for r in folded.live.values()} == {1}


def test_compaction_in_every_form(world):
    world.create(1200)  # three pages
    world.informer.start()
    for _ in range(30):  # mid-list 410
        world.compact()
        time.sleep(0.01)
    world.settled()
    world.cluster.kill()  # watch 410: nobody hears of what is compacted meanwhile
    world.cluster.start()
    world.work()
    world.compact()
    world.settled()
    world.informer.kill()
    world.delete()
    world.compact()
    world.informer.start()
    world.settled()


def test_api_server_crash_with_and_without_the_informer(world):
    world.create(10)
    world.informer.start()
    world.settled()
    world.restart_server()
    world.work()
    world.settled()
    world.informer.kill()
    world.restart_server()
    world.work()
    world.informer.start()
    world.settled()


def test_restored_etcd_begins_a_new_incarnation(world):
    world.create(10)
    world.informer.start()
    world.settled()
    world.back_up()
    world.work()
    world.delete()
    world.settled()
    world.restore()
    folded = world.settled()
    assert {r.incarnation for r in folded.live.values()} == {2}
    world.informer.kill()
    world.work()
    world.informer.start()
    assert {r.incarnation for r in world.settled().listed.values()} == {2}


def test_faulty_answers(world):
    world.create(10)
    errors = [{"action": "error", "verb": "list", "code": code} for code in (429, 500, 503)]
    breaks = [{"action": "close", "verb": verb} for verb in ("list", "watch")]
    rules = [{**rule, "client": "kai-es", "probability": 0.2} for rule in (*errors, *breaks)]
    world.api.ok("PUT", "/simulate/faults", {"seed": 1, "rules": rules})
    world.informer.start()
    for _ in range(5):
        world.create(2)
        time.sleep(0.1)
        world.api.ok("POST", "/simulate/drop-watches", {})
    world.api.ok("DELETE", "/simulate/faults")
    world.settled()


@pytest.mark.long
@pytest.mark.parametrize("seed", range(3))
def test_random_mishaps(world, seed):
    world.random.seed(seed)
    world.create(30)
    world.informer.start()
    world.settled()
    world.back_up()
    for _ in range(20):
        world.work()
        mishap = world.random.choice(["informer", "server", "both", "compact", "restore", "none"])
        match mishap:
            case "informer" | "both":
                world.informer.kill()
                world.work()
                if mishap == "both":
                    world.restart_server()
                world.informer.start()
            case "server":
                world.restart_server()
            case "compact":
                world.compact()
            case "restore":
                world.restore()
        world.work()
        if world.random.random() < 0.7 or mishap == "restore":
            world.settled()
    world.settled()
