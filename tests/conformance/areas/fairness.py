"""Cases of fairness: division, queue order, capacity, reclaim, minimum run time, queue walk."""

from collections.abc import Mapping
from typing import Any

from kai_es.scheduler import flags as rules
from tests.conformance.diff import first_difference
from tests.conformance.fairness_ops import Run, capacity, queues, reclaims, runtimes, walks

FILES: dict[str, Mapping[str, Run]] = {
    "resource_division": queues.DIVISION,
    "resource_share": queues.SHARES,
    "queue_order": {"": queues.order},
    "proportion": queues.PROPORTION,
    "capacity_policy": capacity.OPS,
    "reclaim_strategies": reclaims.STRATEGIES,
    "reclaimable": reclaims.RECLAIMABLE,
    "minruntime": runtimes.OPS,
    "job_order_by_queue": {"": walks.job_order},
}
"""Runners by file (second part of an id) and op."""

FLAGS: dict[str, rules.Flags] = {}
"""Flags that all cases of a file need (docs/differences.md)."""


def flags_of(case: Mapping[str, Any]) -> rules.Flags:
    return FLAGS.get(_file(case), rules.NONE)


def _file(case: Mapping[str, Any]) -> str:
    return case["id"].split(".")[1]


def check(case: Mapping[str, Any], flags: rules.Flags) -> str | None:
    run = FILES.get(_file(case), {}).get(case.get("op") or "")
    if run is None:
        return f"no runner for op {case.get('op')!r} of {_file(case)}"
    got, want = run(case["input"], flags), dict(case["expect"])
    for key in UNORDERED & want.keys():
        got[key], want[key] = sorted(got[key], key=_rank), sorted(want[key], key=_rank)
    return first_difference(got, want)


UNORDERED = frozenset({"groups", "popsUnordered"})
"""Lists that compare as multisets."""


def _rank(value: Any) -> str:
    """An order of bundles and names; bundles may name their zeros or not."""
    if isinstance(value, dict):
        value = sorted((key, float(n)) for key, n in value.items() if n)
    return repr(value)
