"""A dump that is written and read again is decided as before."""

import dataclasses
import json
import zipfile
from pathlib import Path

import pytest

from kai_es.events.decisions import CycleInputs
from kai_es.kube.labels import NODE_POOL_LABEL
from kai_es.scheduler.config import Config, PluginOption
from kai_es.scheduler.config_dump import configuration_dump, params_dump
from kai_es.scheduler.config_file import config_of
from kai_es.scheduler.decide import decide
from kai_es.scheduler.dump import dump_of
from kai_es.scheduler.snapshot_file import KINDS, load_dump
from kai_es.scheduler.solve.budget import SearchBudgets

DATA = Path(__file__).parents[1] / "conformance" / "data" / "differential"


def decided(loaded):
    inputs = CycleInputs(shard="s", cycle=1, now_ms=loaded.now_ms)
    return decide(loaded.snapshot, loaded.config.shard("s"), inputs)


@pytest.mark.parametrize("name", ["topology-00009", "preempt-00007", "fraction-00013"])
def test_a_dump_of_a_dump_is_decided_alike(name):
    with zipfile.ZipFile(DATA / f"{name}.snapshot.zip") as archive:
        first = json.loads(archive.read("snapshot.json"))
    loaded = load_dump(first)
    keys = {kind: key for key, kind in KINDS}
    again = dump_of(
        loaded.config, loaded.snapshot, lambda kind: first["rawObjects"].get(keys[kind]) or ()
    )
    second = load_dump(json.loads(json.dumps(again)))
    assert second.config == loaded.config
    assert decided(second).ops == decided(loaded).ops


@pytest.mark.parametrize(
    "config",
    [
        Config(withheld=()),
        Config(
            withheld=(),
            actions=("allocate",),
            plugins=(PluginOption(name="nodeplacement", arguments={"gpu": "spread"}),),
            queue_depth={"allocate": 3},
            budgets=SearchBudgets(max_action={"reclaim": 90_000}, max_job=0, min_job=250),
            node_pool_key=NODE_POOL_LABEL,
            node_pool_value="a",
            restrict_nodes=True,
            schedule_csi_storage=True,
            use_scheduling_signatures=False,
            usage_params={"halfLifePeriod": "10m"},
        ),
    ],
    ids=["default", "changed"],
)
def test_a_configuration_comes_back(config):
    again = config_of(configuration_dump(config), params_dump(config))
    assert dataclasses.replace(again, withheld=()) == config
