"""Inputs on which the reference answers now so, now so: we give one answer, and a sound one."""

import json
import random
import zipfile

import pytest

from kai_es.scheduler import flags
from kai_es.scheduler.decide import close, open_session, run_action
from kai_es.scheduler.digest import decision_digest
from kai_es.scheduler.snapshot_file import load_dump
from tests.conformance.__main__ import DATA
from tests.scheduler_world import World
from tests.scheduler_world.invariants import violations

FOLDER = DATA / "differential"
NAMES = (FOLDER / "several-answers.txt").read_text().split()


def dump_of(name):
    with zipfile.ZipFile(FOLDER / f"{name}.snapshot.zip") as file:
        return json.loads(file.read(file.namelist()[0]))


def decided(dump, rules):
    """Digest of the answer, and what is wrong with it."""
    loaded = load_dump(dump)
    inputs = World().inputs(rules, now_ms=loaded.now_ms)
    session = open_session(loaded.snapshot, loaded.config, inputs)
    for action in loaded.config.actions:
        run_action(session, action)
    decision = close(session)
    digest = decision_digest(loaded.config.shard("s"), inputs, decision)
    return digest, violations(session, decision)


def shuffled(dump, seed):
    rng = random.Random(seed)
    raw = {
        kind: rng.sample(rows, len(rows)) if isinstance(rows, list) else rows
        for kind, rows in dump["rawObjects"].items()
    }
    return {**dump, "rawObjects": dict(rng.sample(sorted(raw.items()), len(raw)))}


@pytest.mark.parametrize("rules", [flags.NONE, flags.ALL], ids=["default", "compat"])
@pytest.mark.parametrize("name", NAMES)
def test_one_sound_answer(name, rules):
    dump = dump_of(name)
    digest, wrong = decided(dump, rules)
    assert wrong == []
    for seed in range(2):
        assert decided(shuffled(dump, seed), rules)[0] == digest


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("rules", [flags.NONE, flags.ALL], ids=["default", "compat"])
def test_every_input_has_a_sound_answer(rules):
    names = sorted(path.name.split(".")[0] for path in FOLDER.glob("*.snapshot.zip"))
    found = {name: decided(dump_of(name), rules)[1] for name in names}
    assert {name: wrong for name, wrong in found.items() if wrong} == {}
