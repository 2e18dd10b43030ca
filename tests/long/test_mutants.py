"""Each mistake of `tests/worlds/mutants.py` is seen by a world."""

import pytest

from tests.worlds.mutants import MUTANTS, verdict


@pytest.mark.long
@pytest.mark.timeout(1_800)
@pytest.mark.parametrize("name", MUTANTS)
def test_a_mistake_is_seen(name):
    seed, _ = verdict(name)
    assert seed is not None, f"no world sees {name}"
