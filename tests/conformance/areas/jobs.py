"""Cases of jobs: trees, gangs, selections, orders, texts, filters, budgets, trial changes."""

from collections.abc import Mapping
from typing import Any

from kai_es.scheduler import flags as rules
from tests.conformance.diff import exact_map, first_difference
from tests.conformance.job_ops import Run, conditions, searches, selections, texts, trees, trials

OPS: dict[str, Run] = {
    **trees.OPS,
    **selections.OPS,
    **searches.OPS,
    **texts.OPS,
    **trials.OPS,
    **conditions.OPS,
}

FLAGS: dict[str, rules.Flags] = {
    "stale": frozenset({rules.STALE_EVERY_POD_SET}),
    "trialChanges": frozenset({rules.DISPLACED_COUNTS}),
}
"""Flags that all cases of an op need (docs/differences.md)."""


def flags_of(case: Mapping[str, Any]) -> rules.Flags:
    return FLAGS.get(case["op"], rules.NONE)


def check(case: Mapping[str, Any], flags: rules.Flags) -> str | None:
    run = OPS.get(case["op"])
    if run is None:
        return f"no runner for op {case['op']!r}"
    got, want = run(case["input"], flags), case["expect"]
    if case["op"] == "tasksToEvict" and "tasks" in want:
        want = {**want, "tasks": sorted(want["tasks"])}
    if "events" in want:
        want = {**want, "events": sorted(want["events"])}
    if case["op"] == "trialChanges":
        return trials.difference(got, want)
    if case["op"] == "resourceToAllocate":
        return exact_map(got["resource"], want["resource"], "resource")
    return first_difference(got, want)
