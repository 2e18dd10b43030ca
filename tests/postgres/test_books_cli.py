import argparse
import asyncio
import json

import pytest

from kai_es.cli import cycles, rebuild, report
from kai_es.cli.exits import NO, OK, UsageError
from kai_es.eventlog.sqlite import SqliteLog
from kai_es.runtime.database import open_database
from kai_es.runtime.instance import Instance
from kai_es.runtime.settings import Settings
from kai_es.storage.schema import upgrade
from tests.postgres.test_books_kills import a_story, append

pytestmark = pytest.mark.postgres


@pytest.fixture(scope="module")
def instance(tmp_path_factory):
    """An embedded instance whose log has a history and whose books are made, but empty."""
    made = Instance(tmp_path_factory.mktemp("site") / "instance").create()

    async def write():
        log = SqliteLog(made.log)
        try:
            await append(log, a_story(12, seed=3).batches, -1)
        finally:
            await log.close()
        async with open_database(Settings(data=made.root)) as engine:
            await asyncio.to_thread(upgrade, engine)

    asyncio.run(write())
    return made


def run(module, instance, *argv, capsys):
    parser = argparse.ArgumentParser()
    module.add_parser(parser.add_subparsers())
    code = module.run(parser.parse_args([*argv, "--data", str(instance.root)]))
    return code, capsys.readouterr()


def test_rebuild_then_report_then_cycles(instance, capsys):
    outputs = []
    for start in ((), ("--from", "9"), ()):
        for name in ("usage", "history"):
            code, shown = run(rebuild, instance, "rebuild", name, *start, capsys=capsys)
            assert code == OK
            outputs.append(shown.out)
    assert outputs[0].startswith("usage: ")
    assert outputs[:2] == outputs[2:4] == outputs[4:]

    usage = ("report", "usage", "-o", "json", "--from", "7d")
    code, shown = run(report, instance, *usage, capsys=capsys)
    document = json.loads(shown.out)
    assert code == OK
    assert document["by"] == "queue"
    (row,) = (row for row in document["rows"] if row["resource"] == "gpu")
    (cluster,) = (row for row in document["cluster"] if row["resource"] == "gpu")
    assert row["group"] == "q"
    assert 0 < row["allocated"] == cluster["allocated"]
    assert cluster["allocated"] + cluster["idle"] == pytest.approx(cluster["capacity"])

    code, shown = run(cycles, instance, "cycles", "-o", "json", capsys=capsys)
    found = json.loads(shown.out)
    assert code == OK
    assert [line["cycle"] for line in found] == list(range(1, len(found) + 1))
    assert len(found) == 12
    assert all(line["binds"] == 1 for line in found)
    code, shown = run(cycles, instance, "cycles", "--limit", "2", capsys=capsys)
    assert [line.split()[1] for line in shown.out.splitlines()] == ["CYCLE", "11", "12"]
    assert run(cycles, instance, "cycles", "--shard", "default", capsys=capsys)[0] == OK
    with pytest.raises(UsageError, match="--shard foo: it has no cycles; those that have: default"):
        run(cycles, instance, "cycles", "--shard", "foo", capsys=capsys)
    code, shown = run(cycles, instance, "cycles", "-o", "csv", capsys=capsys)
    assert shown.out.splitlines()[0] == ",".join(cycles.COLUMNS)


@pytest.mark.parametrize(
    ("module", "argv", "text"),
    [
        (report, ("report", "usage", "--from", "soon"), "'soon' is no time"),
        (
            report,
            ("report", "usage", "--from", "2026-03-02", "--to", "2026-03-01"),
            "is after --to",
        ),
        (cycles, ("cycles", "--limit", "0"), "--limit is 0"),
        (cycles, ("cycles", "--to", "never"), "'never' is no time"),
        (rebuild, ("rebuild", "usage", "--from", "-7"), "--from is -7"),
    ],
)
def test_bad_input_is_named(instance, capsys, module, argv, text):
    with pytest.raises(UsageError, match=text):
        run(module, instance, *argv, capsys=capsys)


def test_books_that_do_not_add_up_are_a_no(instance, capsys, monkeypatch):
    monkeypatch.setattr(rebuild, "check_identity", lambda engine: "n1 gpu: 1 is not 2")
    code, shown = run(rebuild, instance, "rebuild", "usage", capsys=capsys)
    assert code == NO
    assert "usage identity: n1 gpu: 1 is not 2" in shown.err
