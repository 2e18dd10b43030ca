"""Every scheduler case that can run, and the differential cases, within the bounds of the issue."""

import json

import pytest

from kai_es.cli.decide import decide_file
from kai_es.scheduler import flags
from tests.conformance.__main__ import DATA, difference
from tests.conformance.areas import differential, scheduler

FILES = sorted((DATA / "scheduler").rglob("*.json"))


@pytest.mark.parametrize("compat", [False, True], ids=["default", "compat"])
@pytest.mark.parametrize("path", FILES, ids=lambda p: f"{p.parent.name}/{p.stem}")
def test_case_file(path, compat):
    rules = flags.ALL if compat else flags.NONE
    cases = [case for case in json.loads(path.read_text()) if not scheduler.waiting(case)]
    found = {case["id"]: difference(scheduler, case, rules) for case in cases}
    assert {name: text for name, text in found.items() if text is not None} == {}


def test_differential():
    """The bounds hold for the whole (`python -m tests.conformance differential` names cases)."""
    tally = differential.Tally()
    for path in sorted((DATA / "differential").glob("*.decision.json")):
        name = path.name.removesuffix(".decision.json")
        got = decide_file(path.with_name(f"{name}.snapshot.zip"), compat=True)
        differential.compare(json.loads(path.read_text()), got, tally)
    assert tally.equal["statuses"] >= 0.995 * tally.all["statuses"], str(tally)
    assert tally.equal["nodes"] >= 0.98 * tally.all["nodes"], str(tally)
    assert tally.equal["devices"] >= 0.98 * tally.all["devices"], str(tally)
    assert tally.equal["shares"] == tally.all["shares"], str(tally)
