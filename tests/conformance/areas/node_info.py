"""Cases of nodes and tasks: accounts, requests, device sharing, filters, scores, NUMA, DRA."""

import importlib
import importlib.util
from collections.abc import Mapping
from types import ModuleType
from typing import Any

from kai_es.scheduler import flags as rules
from tests.conformance.diff import first_difference

OPS = "tests.conformance.node_info_ops"

Case = Mapping[str, Any]


def runner_of(case: Case) -> ModuleType | None:
    """The module of a case's file, which is the second part of its id."""
    name = f"{OPS}.{case['id'].split('.')[1]}"
    return importlib.import_module(name) if importlib.util.find_spec(name) else None


def flags_of(case: Case) -> rules.Flags:
    flags: Mapping[str, rules.Flags] = getattr(runner_of(case), "FLAGS", {})
    return flags.get(case["op"], rules.NONE)


def check(case: Case, flags: rules.Flags) -> str | None:
    runner = runner_of(case)
    run = None if runner is None else runner.OPS.get(case["op"])
    if run is None:
        return f"no runner for op {case['op']!r} of {case['id'].split('.')[1]}"
    got = run(case["input"], flags)
    compare = getattr(runner, "compare", None)
    return first_difference(got, case["expect"]) if compare is None else compare(case, got)
