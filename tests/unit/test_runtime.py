import asyncio
import contextlib
import math
import os
import subprocess
import sys
import threading
import time
from types import SimpleNamespace

import pytest
from prometheus_client import REGISTRY

from kai_es.cli import up
from kai_es.eventlog.kafka_client import Worker
from kai_es.ports.errors import ConfigError
from kai_es.runtime.configuration import shard_configs
from kai_es.runtime.crew import PartEndedError, run_crew
from kai_es.runtime.instance import Instance
from kai_es.runtime.metrics import PartsCollector
from kai_es.runtime.part import Part
from kai_es.runtime.parts import NAMES, made
from kai_es.runtime.settings import Settings, default_data
from kai_es.runtime.supervise import Child, Supervisor
from tests.histories.virtual import run_virtual

KUBECONFIG = """
apiVersion: v1
kind: Config
current-context: c
contexts: [{name: c, context: {cluster: c, user: u}}]
clusters: [{name: c, cluster: {server: "http://127.0.0.1:1"}}]
users: [{name: u, user: {token: t}}]
"""


def kubeconfig(folder):
    (folder / "kubeconfig").write_text(KUBECONFIG)
    return str(folder / "kubeconfig")


def test_an_instance_is_made_once_and_found_again(tmp_path):
    root = tmp_path / "data"
    Instance(root).create()
    assert Instance(root).create().check().log == root / "log.db"


def test_a_folder_with_something_else_is_refused(tmp_path):
    (tmp_path / "thesis.tex").touch()
    with pytest.raises(ConfigError, match="not empty"):
        Instance(tmp_path).create()


def test_no_instance_names_the_fix(tmp_path):
    with pytest.raises(ConfigError, match="kai-es demo"):
        Instance(tmp_path).check()


@pytest.mark.parametrize(
    ("marker", "text"), [('{"format": 99}', "upgrade"), ("{", "damaged"), ("[]", "damaged")]
)
def test_a_newer_or_damaged_instance_is_refused(tmp_path, marker, text):
    (tmp_path / "kai-es.json").write_text(marker)
    with pytest.raises(ConfigError, match=text):
        Instance(tmp_path).check()


def test_an_instance_has_one_supervisor(tmp_path):
    instance = Instance(tmp_path / "data").create()
    with instance.hold(), pytest.raises(ConfigError, match=f"in use by process {os.getpid()}"):
        instance.hold()
    instance.hold().close()


def test_the_default_folder_follows_the_environment():
    assert str(default_data({"KAI_ES_DATA": "/x"})) == "/x"
    assert str(default_data({"XDG_DATA_HOME": "/d", "HOME": "/h"})) == "/d/kai-es/default"
    assert str(default_data({"HOME": "/h"})) == "/h/.local/share/kai-es/default"


def test_a_configuration_file_is_resolved_with_all_defaults(tmp_path):
    path = tmp_path / "config.yaml"
    path.write_text("actions: allocate, reclaim\n")
    (raw,) = shard_configs(Settings(data=tmp_path, config=str(path)))
    assert raw["metadata"]["name"] == "default"
    assert raw["settings"]["actions"] == ["allocate", "reclaim"]
    assert raw["settings"]["staleness_grace_ms"] == 60_000


@pytest.mark.parametrize("text", ["actions: alocate\n", "actions: [\n", "nonsense: 1\n"])
def test_a_wrong_configuration_names_file_and_problem(tmp_path, text):
    path = tmp_path / "config.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=r"--config .*config\.yaml: "):
        shard_configs(Settings(data=tmp_path, config=str(path)))


def test_a_missing_configuration_file_is_named(tmp_path):
    with pytest.raises(ConfigError, match="No such file"):
        shard_configs(Settings(data=tmp_path, config=str(tmp_path / "none.yaml")))


async def test_parts_stop_in_their_order():
    stopped = []
    stop = asyncio.Event()

    def part(name):
        asked = asyncio.Event()

        async def run():
            await asked.wait()
            stopped.append(name)

        return Part(name=name, run=run, stop=asked.set)

    asyncio.get_running_loop().call_soon(stop.set)
    await run_crew([part("first"), part("second"), part("third")], stop)
    assert stopped == ["first", "second", "third"]


async def test_parts_that_may_are_stopped_together():
    asked = []
    stop, both = asyncio.Event(), asyncio.Event()

    def ask(name):
        asked.append(name)
        if len(asked) > 1:
            both.set()

    def part(name, **more):
        return Part(name=name, run=both.wait, stop=lambda: ask(name), **more)

    asyncio.get_running_loop().call_soon(stop.set)
    async with asyncio.timeout(5):  # one after another would take 8 s
        await run_crew([part("first"), part("second", beside=True)], stop)
    assert asked == ["first", "second"]


async def test_one_failing_part_ends_the_process():
    cancelled = asyncio.Event()

    async def fails():
        raise OSError("disk gone")

    async def lasts():
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    with pytest.raises(OSError, match="disk gone"):
        await run_crew([Part(name="a", run=fails), Part(name="b", run=lasts)], asyncio.Event())
    assert cancelled.is_set()


async def test_a_part_that_ends_by_itself_is_an_error():
    async def ends():
        return None

    with pytest.raises(PartEndedError, match="a ended"):
        await run_crew([Part(name="a", run=ends)], asyncio.Event())


def test_a_part_that_loses_a_cancellation_is_told_again():
    """One of which a library forgot it led on alone, for ever, and its process did not end."""

    async def fails():
        await asyncio.sleep(1)
        raise ValueError("the first to end")

    async def forgets():
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(math.inf)
        await asyncio.sleep(math.inf)

    async def scenario():
        parts = [Part(name="a", run=fails), Part(name="b", run=forgets)]
        async with asyncio.timeout(60):
            await run_crew(parts, asyncio.Event())

    with pytest.raises(ValueError, match="the first to end"):
        run_virtual(scenario())


@pytest.mark.parametrize("n_turns", range(5))
async def test_a_call_in_a_thread_that_ends_as_it_is_cancelled_ends_cancelled(n_turns):
    """`asyncio.wait_for` gave the result instead, and who had been cancelled went on."""
    worker, gate, ended = Worker("t"), threading.Event(), threading.Event()

    def call():
        gate.wait()
        ended.set()

    calling = asyncio.create_task(worker.run(call, timeout_s=60))
    await asyncio.sleep(0.01)
    gate.set()
    ended.wait()
    time.sleep(0.01)  # the loop is to find the result at its next turn
    for _ in range(n_turns):
        await asyncio.sleep(0)
    worker.stop()
    if calling.cancel():
        with pytest.raises(asyncio.CancelledError):
            await calling


async def test_a_killed_child_comes_back_and_a_stopped_one_does_not(tmp_path):
    supervisor = Supervisor(tmp_path)
    child = Child("sleeper", ["-c", "import sys; print('up', flush=True); sys.stdin.read()"])
    supervisor.start(child)
    first = await _pid(child)
    os.kill(first, 9)
    while child.pid in (None, first):
        await asyncio.sleep(0.01)
    assert child.restarts == 1
    await supervisor.stop("sleeper")
    assert child.pid is None
    assert (tmp_path / "sleeper.log").exists()


async def test_children_end_with_their_supervisor(tmp_path):
    code = (
        "import asyncio, os, pathlib, sys\n"
        "from kai_es.runtime.supervise import Child, Supervisor\n"
        "async def main():\n"
        f"    s = Supervisor(pathlib.Path({str(tmp_path)!r}))\n"
        "    c = Child('c', ['-c', 'import sys; sys.stdin.read()'])\n"
        "    s.start(c)\n"
        "    while c.pid is None: await asyncio.sleep(0.01)\n"
        "    print(c.pid, flush=True)\n"
        "    os.kill(os.getpid(), 9)\n"
        "asyncio.run(main())\n"
    )
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", code, stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    pid = int(await process.stdout.readline())
    await process.wait()
    for _ in range(500):
        if not _runs(pid):
            return
        await asyncio.sleep(0.01)
    raise AssertionError(f"child {pid} outlived its supervisor")


def _runs(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


async def _pid(child):
    while child.pid is None:
        await asyncio.sleep(0.01)
    return child.pid


async def test_every_part_has_gauges_that_no_other_metric_of_the_process_has(tmp_path):
    settings = Settings(
        data=Instance(tmp_path / "i").create().root,
        database="postgresql://nobody@127.0.0.1:1/none",
        kubeconfig=kubeconfig(tmp_path),
    )
    async with made(NAMES, settings) as (parts, _):
        collector = PartsCollector(parts)
        REGISTRY.register(collector)
        REGISTRY.unregister(collector)


LINGERING = """
import asyncio, threading
from kai_es.runtime.stopping import no_lingering

async def stubborn():
    while True:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            pass

async def main():
    task = asyncio.create_task(stubborn())  # kept: nobody else does, and it would be collected
    await asyncio.sleep(0)
    with no_lingering(75, seconds=0.1) as ending:
        %s

asyncio.run(main())
"""


@pytest.mark.parametrize(
    ("body", "code"), [('raise ValueError("failed")', 75), ("ending.code = 65", 65)]
)
def test_a_process_whose_tasks_refuse_to_end_ends(body, code):
    ended = subprocess.run(
        [sys.executable, "-c", LINGERING % body], capture_output=True, timeout=60, check=False
    )
    assert ended.returncode == code
    assert b"ended by force" in ended.stderr


STUCK = """
import asyncio, time
from kai_es.runtime.stopping import end_in_time, no_lingering

async def main():
    stop = asyncio.Event()
    with no_lingering(75) as ending:
        deadline = asyncio.create_task(end_in_time(stop, ending, seconds=0.1))
        stop.set()
        await asyncio.sleep(0.01)
        time.sleep(60)  # as a library that waits for a server

asyncio.run(main())
"""


def test_a_process_that_was_told_to_stop_ends_in_time():
    ended = subprocess.run(
        [sys.executable, "-c", STUCK], capture_output=True, timeout=30, check=False
    )
    assert ended.returncode == 0
    assert b"ended by force" in ended.stderr


TELLING = """
import asyncio, os, signal
from kai_es.runtime.stacks import tell_on_signal

async def waiting_for_godot():
    await asyncio.Event().wait()

async def main():
    tell_on_signal()
    task = asyncio.create_task(waiting_for_godot())
    await asyncio.sleep(0)
    os.kill(os.getpid(), signal.SIGUSR1)
    await asyncio.sleep(0.1)

asyncio.run(main())
"""


def test_a_process_tells_what_it_is_doing():
    ended = subprocess.run(
        [sys.executable, "-c", TELLING], capture_output=True, timeout=60, check=True, text=True
    )
    assert "Current thread" in ended.stderr
    assert "in waiting_for_godot" in ended.stderr


def test_a_file_is_no_instance(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match="no kai-es instance"):
        Instance(tmp_path / "file").check()


async def test_up_ends_with_the_words_of_a_part_whose_settings_are_wrong(tmp_path, monkeypatch):
    monkeypatch.setattr(up, "LOOK_S", 0.01)
    (tmp_path / "parts.log").write_text("starting\nkubeconfig nowhere: check the file\n")
    child = SimpleNamespace(name="parts", last_exit=2, longest_s=60.0)
    stack = SimpleNamespace(
        supervisor=SimpleNamespace(children=[child]), instance=SimpleNamespace(logs=tmp_path)
    )
    watching = asyncio.create_task(up.watch(stack))
    await asyncio.sleep(0.05)
    assert not watching.done(), "it has worked with its settings before"
    child.longest_s = 3.0
    with pytest.raises(ConfigError, match="parts cannot start: kubeconfig nowhere"):
        await watching
