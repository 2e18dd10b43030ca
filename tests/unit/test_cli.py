"""What the command line says to options and names that cannot be meant."""

import asyncio
import json
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from kai_es.cli import demo, simulate
from kai_es.cli.exits import BAD_INPUT, DAMAGED, OK, UsageError
from kai_es.cli.main import main
from kai_es.cli.recorded import meant
from kai_es.eventlog.memory import MemoryLog
from kai_es.eventlog.sqlite import SqliteLog
from kai_es.events.catalogue import SNAPSHOT
from kai_es.events.codec import pack
from kai_es.events.objects import ObjectDeleted
from kai_es.ports.eventlog import Out
from kai_es.runtime.database import has_database
from kai_es.runtime.embedded import Stack
from kai_es.runtime.instance import Instance
from kai_es.runtime.settings import ENV_DATABASE, ENV_KAFKA, ENV_PREFIX, Settings
from kai_es.simulate.workload import Sizes, generate
from projectors.batching import batch_envelope
from tests.histories.builders import T0, Writer, a_cycle, a_reign
from tests.histories.virtual import run_virtual

EXPORTED = Path(__file__).parents[1] / "replay/versions/v2/log.kai"


@pytest.mark.parametrize(
    ("line", "text"),
    [
        (
            "run scheduler --config x.yaml",
            "--config does nothing for scheduler: give it to `kai-es run informer`",
        ),
        ("run usage history --mirror-bind-requests", "give it to `kai-es run status`"),
        ("run informer --fake-gpu-nodes", "give it to `kai-es run binder`"),
        (
            "run status --resource-reservation-app-label a",
            "`kai-es run binder` or `kai-es run informer`",
        ),
        ("up --embedded --simulate --kubeconfig x", "leave out --kubeconfig"),
        ("demo --speed 10", "--speed is for a trace: name it with --trace and --nodes-file"),
        ("demo --limit 10", "--limit is for a trace"),
        ("demo --trace t.csv --nodes-file n.csv --jobs 3", "--jobs is for a generated workload"),
        ("demo --trace t.csv --nodes-file n.csv --speed 0", "--speed is '0', want a number above"),
        ("replay --from 9 --to 3", "--from 9 is after --to 3: swap them"),
        ("replay FILE --log X", "--log does nothing for a captured cycle"),
        ("replay FILE --shard a", "--shard does nothing for a captured cycle"),
        ("replay FILE --data X", "--data does nothing for a captured cycle"),
        ("replay --all --log X --kafka b:1", "--kafka does nothing beside --log, which is"),
        ("log verify --log X --data Y", "--data does nothing beside --log"),
        ("capture --cycle 1 -o X --log X --database Y", "--database does nothing beside --log"),
        ("explain pod p --log X --data Y", "--data does nothing beside --log"),
        ("report usage --prefix nope", "--prefix nope does nothing without --kafka"),
        ("cycles --from tomorrow", "'tomorrow' is no time"),
        ("cycles --kafka broker:1", "--kafka broker:1 without --database"),
        ("report usage --kafka broker:1", "--kafka broker:1 without --database"),
    ],
)
def test_an_option_that_would_do_nothing_is_refused(line, text, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("KAI_ES_DATA", str(Instance(tmp_path / "i").create().root))
    assert main(line.split()) == BAD_INPUT
    assert text in capsys.readouterr().err


def test_what_the_environment_says_is_for_whoever_can_use_it(monkeypatch, capsys):
    for variable, value in ((ENV_KAFKA, "b:1"), (ENV_PREFIX, "other"), (ENV_DATABASE, "x")):
        monkeypatch.setenv(variable, value)
    assert main(["replay", str(EXPORTED.with_name("cycle.kai"))]) == OK
    assert main(["explain", "pod", "g1-1-0", "--log", str(EXPORTED)]) == OK
    monkeypatch.delenv(ENV_KAFKA)
    assert main(["log", "verify", "--data", "/nowhere"]) == BAD_INPUT
    assert "no kai-es instance in /nowhere" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["report usage", "cycles"])
def test_a_report_says_that_it_looks_at_no_log(command, capsys):
    where = [
        "--kafka",
        "broker:1",
        "--prefix",
        "nope",
        "--database",
        "postgresql://u@127.0.0.1:1/d",
    ]
    assert main([*command.split(), *where]) == BAD_INPUT
    said = f"kai-es {command.split()[0]}: --kafka and --prefix are not looked at: all comes from"
    assert said in capsys.readouterr().err


@pytest.mark.parametrize("command", ["demo", "log verify", "run scheduler"])
def test_no_folder_is_not_this_one(command, capsys):
    with pytest.raises(SystemExit, match="2"):
        main([*command.split(), "--data", ""])
    assert "argument --data: it is empty: name a folder" in capsys.readouterr().err


@pytest.mark.parametrize(
    "line", ["demo --nodes 0", "demo --jobs -1", "simulate load --nodes x", "demo --limit 0"]
)
def test_an_amount_that_makes_no_sense_names_its_option(line, capsys):
    with pytest.raises(SystemExit, match="2"):
        main(line.split())
    option, amount = line.split()[-2:]
    assert f"argument {option}: '{amount}' is no whole number of 1" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("line", "text"),
    [
        ("replay FILE", "FILE: not a capture: want a file of `kai-es capture"),
        ("replay --all --log FILE", "FILE is no exported log: want a whole file of `kai-es log"),
        ("log verify --log FILE.not", "FILE.not: No such file or directory"),
    ],
)
def test_a_file_that_is_something_else_is_said_to_be_so(line, text, tmp_path, capsys):
    path = tmp_path / "README.md"
    path.write_text("# Read me")
    assert main(line.replace("FILE", str(path)).split()) == BAD_INPUT
    assert text.replace("FILE", str(path)) in capsys.readouterr().err


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("replay FILE", "cycle.kai"),
        ("replay --all --log FILE", "log.kai"),
        ("log verify --log FILE", "log.kai"),
        ("explain pod p --log FILE", "log.kai"),
    ],
)
def test_a_file_that_was_cut_off_is_damaged(line, name, tmp_path, capsys):
    whole = EXPORTED.with_name(name).read_bytes()
    path = tmp_path / name
    path.write_bytes(whole[: len(whole) // 2])
    assert main(line.replace("FILE", str(path)).split()) == DAMAGED
    assert re.search(f"{path}:? (is )?damaged: .* another copy", capsys.readouterr().err)


@pytest.mark.parametrize("command", ["log verify", "log tail", "replay --all --verify"])
def test_a_log_that_holds_nothing_passes_no_audit(command, tmp_path, capsys):
    instance = Instance(tmp_path / "i").create()
    assert main([*command.split(), "--data", str(instance.root)]) == BAD_INPUT
    assert re.search("nothing was ever written to this log|no cycle is in", capsys.readouterr().err)


@pytest.mark.parametrize("command", ["cycles", "log verify", "replay --all"])
def test_commands_that_only_read_take_no_configuration(command):
    with pytest.raises(SystemExit, match="2"):
        main([*command.split(), "--config", "x.yaml"])


def test_the_books_of_a_log_on_kafka_are_not_those_of_a_local_instance(tmp_path):
    instance = Instance(tmp_path / "i").create()
    instance.postgres.mkdir()
    assert has_database(Settings(data=instance.root))
    assert not has_database(Settings(data=instance.root, kafka="broker:1"))


async def test_parts_of_an_instance_work_on_its_own_log_whatever_the_environment_says(
    tmp_path, monkeypatch
):
    monkeypatch.setenv(ENV_KAFKA, "broker:1")
    instance = Instance(tmp_path / "i").create()
    stack = Stack(instance, Settings(data=instance.root), SimpleNamespace())
    started = []
    monkeypatch.setattr(stack.supervisor, "start", started.append)
    stack.start_parts(["snapshot"], listen="127.0.0.1:0")
    assert started[0].env[ENV_KAFKA] == ""


@pytest.mark.parametrize(
    ("asked", "text"),
    [
        ({"shard": "default", "first": 9, "last": 9}, "no cycle 9 .* 1 to 3 of shard default"),
        ({"shard": "default", "first": 7}, "no cycle from 7 on .* 1 to 3 of shard default"),
        ({"shard": "foo", "first": 2, "last": 2}, "--shard foo: .* those that have: default"),
    ],
)
def test_cycles_that_are_not_there_name_those_that_are(asked, text):
    async def scenario():
        log, writer = MemoryLog(), Writer()
        for rows in ((a_reign(),), (a_cycle(1),), (a_cycle(2),), (a_cycle(3),)):
            _, batch = writer.batch(*rows)
            await log.append_one(SNAPSHOT, "", batch_envelope(batch, ingest_ms=T0, producer="test"))
        assert [found.cycle.cycle for found in await meant(log, shard="default", first=2)] == [2, 3]
        await meant(log, **asked)

    with pytest.raises(UsageError, match=text):
        run_virtual(scenario())


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ("--cycle 0", "no cycle 0 in the log: it holds 1 to 37 of shard default"),
        ("--cycle -3", "no cycle -3 in the log: it holds"),
        ("--cycle 99999", "no cycle 99999 in the log: it holds"),
        ("--cycle 1 --shard foo", "--shard foo: it has no cycles; those that have: default"),
        ("--shard default", "--shard says whose --cycle is meant"),
        (
            "--at 2020-01-01",
            "was there at that time: it came at 2023-11-14T22:13:21.309Z; give a later --at",
        ),
        ("--at=", "'' is no time: write it as"),
        ("--at 2h", "'2h' is no time: write it as"),
    ],
)
def test_a_story_up_to_what_is_not_there_is_refused(options, text, capsys):
    argv = ["explain", "pod", "g1-1-0", "--log", str(EXPORTED), *options.split(" ")]
    assert main(argv) == BAD_INPUT
    assert text in capsys.readouterr().err


def test_a_demo_replaces_the_last_ones_data_and_nobody_elses(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("KAI_ES_DATA", str(tmp_path / "i"))
    instance = Instance(tmp_path / "i").create()
    instance.log.touch()
    assert main(["demo"]) == BAD_INPUT
    assert "has the log of a real cluster: name a folder with --data" in capsys.readouterr().err
    assert instance.log.exists()
    instance.cluster.mkdir()
    demo._clear(instance.root)
    assert not instance.root.exists()


@pytest.mark.parametrize("command", ["up --embedded --simulate", "demo"])
def test_a_file_in_the_place_of_the_folder_is_named(command, tmp_path, capsys):
    path = tmp_path / "README.md"
    path.touch()
    assert main([*command.split(), "--data", str(path)]) == BAD_INPUT
    assert f"--data {path}: File exists; name an empty folder" in capsys.readouterr().err


def test_a_load_says_how_far_it_is():
    work = generate(0, Sizes(n_nodes=2, n_jobs=3))
    loader = SimpleNamespace(n_groups=1, n_pods=2)
    assert "created 1 of 3 jobs, which come within" in simulate._line(loader, work)
    assert f"2 of {work.n_pods} pods" in simulate._line(loader, work)


def test_the_tail_of_a_topic_is_its_last_records_in_order_of_time(tmp_path, monkeypatch, capsys):
    instance = Instance(tmp_path / "i").create()
    monkeypatch.setenv("KAI_ES_DATA", str(instance.root))

    async def write():
        log = SqliteLog(instance.log)
        epoch = await log.take_over("test")
        for n in range(9):
            gone = ObjectDeleted(
                kind="Pod", uid=f"{n % 5}", namespace="ns", name="p", rv=n, incarnation=0
            )
            times = {"event_time": T0 + n, "ingest_time": T0}
            record = pack(gone, topic="objects", record_id=f"{n}", producer="test", **times)
            await log.append(epoch, [Out("objects", f"Pod/{n % 5}", None, record)])
        await log.close()

    asyncio.run(write())

    def tail(*options):
        assert main(["log", "tail", "objects", *options]) == 0
        return [json.loads(line) for line in capsys.readouterr().out.splitlines()]

    lines = tail()
    assert [line["id"] for line in lines] == [str(n) for n in range(9)]
    assert len({line["partition"] for line in lines}) > 1
    assert [line["id"] for line in tail("-n", "3")] == ["6", "7", "8"]
    assert tail("-n", "0") == []


def test_a_log_without_cycles_says_who_writes_them():
    with pytest.raises(UsageError, match="the part scheduler writes them"):
        asyncio.run(meant(MemoryLog(), shard=None))


def test_a_command_loads_no_other(tmp_path):
    """A look at cycles must not wait for the simulators to be imported."""
    code = (
        "import sys; from kai_es.cli.main import main; code = main(sys.argv[1:]);"
        "print(code, [name for name in sys.modules if name in "
        "('kai_es.cli.demo', 'kai_es.cli.simulate', 'kai_es.simulate.cluster')])"
    )
    argv = [sys.executable, "-c", code, "cycles", "--data", str(tmp_path / "none")]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.splitlines()[-1] == "2 []"
