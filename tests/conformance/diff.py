"""Comparing what came out with what a case expects."""

from collections.abc import Mapping
from typing import Any

TOLERANCE = 1e-9


def first_difference(got: Any, want: Any, at: str = "expect") -> str | None:
    """The first place where `got` is not as `want` says; None = equal.

    Only what a case names is compared. Numbers compare numerically, with a tolerance for those
    that are not whole; in maps an entry of 0, "", an empty list or map equals an absent one.
    """
    if isinstance(want, Mapping):
        return _map_difference(got, want, at)
    if isinstance(want, list):
        if not isinstance(got, list | tuple) or len(got) != len(want):
            return f"{at}: got {got!r}, want {want!r}"
        pairs = enumerate(zip(got, want, strict=True))
        found = (first_difference(mine, other, f"{at}[{n}]") for n, (mine, other) in pairs)
        return next((text for text in found if text), None)
    return None if _same(got, want) else f"{at}: got {got!r}, want {want!r}"


def _map_difference(got: Any, want: Mapping[str, Any], at: str) -> str | None:
    if not isinstance(got, Mapping):
        return f"{at}: got {got!r}, want {dict(want)!r}"
    for key in want:
        mine = got.get(key)
        if mine is None and not want[key]:
            continue
        text = first_difference(mine, want[key], f"{at}.{key}")
        if text:
            return text
    return None


def exact_map(got: Mapping[str, Any], want: Mapping[str, Any], at: str) -> str | None:
    """As `first_difference`, and nothing but zeros may be in `got` that `want` does not name."""
    extra = sorted(key for key, value in got.items() if value and key not in want)
    if extra:
        return f"{at}: unexpected {extra[0]} = {got[extra[0]]!r}"
    return first_difference(got, want, at)


def _same(got: Any, want: Any) -> bool:
    if isinstance(want, bool) or isinstance(got, bool) or want is None or got is None:
        return got is want or (not got and want is None)
    if isinstance(want, int | float) and isinstance(got, int | float):
        if float(want).is_integer():
            return abs(got - want) <= TOLERANCE
        return abs(got - want) <= TOLERANCE
    return bool(got == want)
