"""Cases of the controllers: statuses of pod groups and queues, binder, reservations, scaling."""

from collections.abc import Mapping
from typing import Any

from kai_es.scheduler import flags as rules
from tests.conformance.controller_ops import all_ops
from tests.conformance.diff import first_difference

OPS, EXACT = all_ops()


def flags_of(case: Mapping[str, Any]) -> rules.Flags:
    return rules.NONE


def check(case: Mapping[str, Any], flags: rules.Flags) -> str | None:
    run = OPS.get(case["op"])
    if run is None:
        return f"no runner for op {case['op']!r}"
    got, want = run(case["input"], flags), case["expect"]
    found = first_difference(got, want)
    if found is None and case["op"] in EXACT:
        return _unexpected(got, want, "expect")
    return found


def _unexpected(got: Any, want: Any, at: str) -> str | None:
    """What is in a result and not in what a case expects."""
    if not isinstance(got, Mapping):
        return None
    for key, value in got.items():
        other = want.get(key)
        if value and other is None:
            return f"{at}: unexpected {key} = {value!r}"
        found = _unexpected(value, other, f"{at}.{key}") if isinstance(other, Mapping) else None
        if found:
            return found
    return None
