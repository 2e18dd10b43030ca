"""`kai-es deadletter` on an instance whose log has a version that cannot be processed."""

import asyncio
import copy
import json

import pytest

from kai_es.cli.exits import BAD_INPUT, NO, OK
from kai_es.cli.main import main
from kai_es.eventlog.sqlite import SqliteLog
from kai_es.eventlog.sqlite_lease import SqliteLeadership
from kai_es.events.catalogue import OBJECTS
from kai_es.events.objects import ObjectSeen
from kai_es.runtime.clock import SystemClock
from kai_es.runtime.instance import Instance
from streams.snapshot import SnapshotStream
from tests.histories.logs import out, running, until_covered
from tests.simulation.api_client import PODS

POD = {
    "metadata": {"name": "p"},
    "spec": {
        "schedulerName": "kai-scheduler",
        "containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}],
    },
}


class Site:
    """An instance folder, its log, and `kai-es deadletter` on it."""

    def __init__(self, root, api, kubeconfig, capsys):
        self.instance = Instance(root).create()
        self.api = api
        self.kubeconfig = kubeconfig
        self.capsys = capsys

    def run(self, command, *argv):
        where = ["--data", str(self.instance.root), "--kubeconfig", self.kubeconfig]
        code = main(["deadletter", command, *argv, *where])
        return code, self.capsys.readouterr()

    def listed(self):
        code, shown = self.run("list", "-o", "json")
        assert code == OK
        return json.loads(shown.out)

    def park(self, live):
        """The log has the live version with a request that nobody can read."""
        raw = copy.deepcopy(live)
        raw["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "-1"
        meta = live["metadata"]
        record = ObjectSeen(
            kind="Pod",
            uid=meta["uid"],
            namespace=meta["namespace"],
            name=meta["name"],
            rv=int(meta["resourceVersion"]),
            incarnation=1,
            object=raw,
        )

        async def append(log):
            entry = out(record, OBJECTS, f"Pod/{meta['uid']}", at_ms=1)
            await log.append(await log.take_over("test"), [entry])

        self.on_log(append)

    def on_log(self, work):
        """Do something with the log, then fold all of it; the world."""

        async def body():
            log = SqliteLog(self.instance.log)
            stream = SnapshotStream(
                log=log, leadership=SqliteLeadership(log), clock=SystemClock(), holder="s"
            )
            try:
                await work(log)
                async with running(stream.run()):
                    return (await until_covered(log))[0]
            finally:
                await log.close()

        return asyncio.run(body())

    def fold(self):
        async def nothing(log):
            pass

        return self.on_log(nothing)


@pytest.fixture
def site(tmp_path, api, simulated, capsys):
    return Site(tmp_path / "instance", api, str(simulated.kubeconfig), capsys)


@pytest.fixture
def live(site):
    """A pod on the API server whose version in the log is parked."""
    live = site.api.ok("POST", PODS, POD)
    site.park(live)
    return live


def test_show_gives_the_error_and_the_object(site, live):
    (row,) = site.listed()
    assert row["uid"] == live["metadata"]["uid"]
    assert "-1" in row["error"]
    code, shown = site.run("show", "p")
    found = json.loads(shown.out)
    assert code == OK
    assert found["error"] == row["error"]
    assert found["object"]["spec"]["containers"][0]["resources"]["requests"]["cpu"] == "-1"
    assert found["valid_rv"] is None


def test_retry_brings_the_live_object_at_the_same_version(site, live):
    code, shown = site.run("retry", live["metadata"]["uid"])
    assert code == OK, shown.err
    world = site.fold()
    assert site.listed() == []
    assert world.objects.live["Pod"][live["metadata"]["uid"]].obj.spec.requests["cpu"] == 1000


def test_discard_gives_the_version_up_for_good(site, live):
    assert site.run("discard", f"{site.api.namespace}/p")[0] == OK
    site.fold()
    assert site.listed() == []
    site.park(live)  # the same version once more
    assert site.listed() == []


def test_a_retry_that_cannot_help_appends_nothing(site, live):
    code, shown = site.run("retry", "p", "--from-log")
    assert code == NO
    assert "still cannot be processed" in shown.err
    site.api.ok("DELETE", PODS + "/p?gracePeriodSeconds=0")
    code, shown = site.run("retry", "p")
    assert code == NO
    assert "gone from the API server" in shown.err
    other = site.api.ok("POST", PODS, POD)
    code, shown = site.run("retry", "p")
    assert code == NO
    assert f"another object now (uid {other['metadata']['uid']})" in shown.err
    assert len(site.listed()) == 1


def test_a_name_that_is_not_parked_is_bad_input(site, live):
    code, shown = site.run("discard", "q")
    assert code == BAD_INPUT
    assert "'q' is not parked" in shown.err
