"""Cases of topologies: trees of domains, which of them may take a job, in which order."""

from collections.abc import Mapping
from typing import Any

from kai_es.scheduler import flags as rules
from tests.conformance.diff import first_difference
from tests.conformance.topology_ops import Run, choices, trees

OPS: dict[str, Run] = {**trees.OPS, **choices.OPS}

FLAGS: dict[str, rules.Flags] = {}
"""Flags that all cases of an op need (docs/differences.md)."""


def flags_of(case: Mapping[str, Any]) -> rules.Flags:
    return FLAGS.get(case["op"], rules.NONE)


def check(case: Mapping[str, Any], flags: rules.Flags) -> str | None:
    run = OPS.get(case["op"])
    if run is None:
        return f"no runner for op {case['op']!r}"
    return first_difference(run(case["input"], flags), _sorted(case["expect"]))


def _sorted(value: Any) -> Any:
    """Lists that compare as sets, in the order in which the runners give them."""
    if not isinstance(value, dict):
        return value
    found = {key: _sorted(one) for key, one in value.items()}
    for key in ("validNodes", "nodes", "firstNodeSet"):
        if isinstance(found.get(key), list):
            found[key] = sorted(found[key])
    if isinstance(found.get("children"), list) and "nodes" in found:
        found["children"] = sorted(found["children"])
    if isinstance(found.get("domains"), list) and found["domains"] and "id" in found["domains"][0]:
        found["domains"] = sorted(found["domains"], key=lambda domain: domain["id"])
    return found
