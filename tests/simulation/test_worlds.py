"""Deterministic simulation: a world of its own for every seed (`tests/worlds`).

A failing seed reproduces from its number: `python -m tests.worlds SEED`.
"""

import os
import subprocess
import sys

import pytest

from tests.worlds.failure import WorldError
from tests.worlds.world import run_seed

SEEDS = range(50)
MANY = range(50, 2_050)
AT_ONCE = 20

FOUND = (123,)
"""Seeds beyond those that have found something that no world of them shows."""

RICH = 4
"""A seed with shards, shared devices, evictions and many mishaps."""


@pytest.mark.parametrize("seed", [*SEEDS, *FOUND])
def test_world_keeps_the_invariants(seed):
    figures = run_seed(seed)
    assert figures.n_binds > 0
    assert figures.n_cycles > 0


@pytest.mark.long
@pytest.mark.timeout(1_800)
@pytest.mark.parametrize("first", MANY[::AT_ONCE])
def test_many_worlds_keep_the_invariants(first):
    """2,000 seeds in portions; whatever fails is named by its seed."""
    failed = []
    for seed in range(first, min(first + AT_ONCE, MANY.stop)):
        try:
            run_seed(seed)
        except WorldError as exc:
            failed.append(str(exc))
        except Exception as exc:  # noqa: BLE001 - the world itself broke; its seed must be told
            failed.append(f"seed {seed}: {exc!r}")
    assert not failed, "\n".join(failed)


def test_seed_decides_everything():
    """Same seed, other process, other order of hashes: byte for byte the same log."""
    lines = []
    for hash_seed in ("1", "2"):
        ended = subprocess.run(
            [sys.executable, "-m", "tests.worlds", str(RICH), "--digests"],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            timeout=100,
            check=True,
        )
        lines.append(ended.stdout)
    assert lines[0] == lines[1]
