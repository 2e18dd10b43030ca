"""Every case in the tree, by itself and with all rule flags in force."""

import pytest

from kai_es.scheduler import flags
from tests.conformance.__main__ import DATA, area_of, cases_in, difference

AREAS = ("controllers", "fairness", "jobs", "node_info", "topology")


def _all_cases():
    for name in AREAS:
        for case in cases_in([DATA / name]):
            yield pytest.param(name, case, id=case["id"])


@pytest.mark.parametrize("compat", [False, True], ids=["default", "compat"])
@pytest.mark.parametrize(("area", "case"), list(_all_cases()))
def test_case(area, case, compat):
    found = difference(area_of(area), case, flags.ALL if compat else flags.NONE)
    assert found is None, found
