"""Values of CEL that Python does not have, and what is equal to what."""

import re
from collections.abc import Mapping
from fractions import Fraction
from typing import Final, NamedTuple

from kai_es.kube.cel.errors import CelError
from kai_es.kube.errors import InvalidObjectError
from kai_es.kube.quantity import parse_quantity

_SEMVER: Final = re.compile(
    r"(0|[1-9][0-9]{0,9})\.(0|[1-9][0-9]{0,9})\.(0|[1-9][0-9]{0,9})"
    r"(?:-([0-9A-Za-z.-]{1,64}))?(?:\+[0-9A-Za-z.-]{1,64})?"
)
_INT64: Final = 2**63


class Amount(NamedTuple):
    """A Kubernetes quantity."""

    value: Fraction


class Semver(NamedTuple):
    """A semantic version. `key` compares as the standard says; build data is of no account."""

    major: int
    minor: int
    patch: int
    pre: str

    @property
    def key(self) -> tuple[object, ...]:
        """Numbers, then a release after what comes before it."""
        parts = [
            (0, int(part), "") if part.isdigit() else (1, 0, part)
            for part in (self.pre.split(".") if self.pre else ())
        ]
        return (self.major, self.minor, self.patch, not self.pre, parts)


def quantity(text: object) -> Amount:
    """A quantity.

    Raises:
        CelError: it is none.
    """
    try:
        return Amount(parse_quantity(text if isinstance(text, str) else None, what="", field="it"))
    except InvalidObjectError as exc:
        raise CelError(f"{text!r} is no quantity") from exc


def semver(text: object) -> Semver:
    """A semantic version.

    Raises:
        CelError: it is none.
    """
    match = _SEMVER.fullmatch(text) if isinstance(text, str) else None
    if match is None:
        raise CelError(f"{text!r} is no semantic version")
    return Semver(int(match[1]), int(match[2]), int(match[3]), match[4] or "")


def kind_of(value: object) -> str:
    """The name of a value's type."""
    for kind, name in _KINDS:
        if isinstance(value, kind):
            return name
    return "null_type" if value is None else type(value).__name__


_KINDS: Final = (
    (bool, "bool"),
    (int, "int"),
    (float, "double"),
    (str, "string"),
    (Amount, "quantity"),
    (Semver, "semver"),
    (list, "list"),
    (Mapping, "map"),
)
_NUMBERS: Final = ("int", "double")


def equal(one: object, other: object) -> bool:
    """Whether two values are the same; of different types they are not, numbers aside."""
    kind, other_kind = kind_of(one), kind_of(other)
    if kind in _NUMBERS and other_kind in _NUMBERS:
        return one == other
    if kind != other_kind:
        return False
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(equal, one, other))
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return one.keys() == other.keys() and all(equal(one[key], other[key]) for key in one)
    return one == other


def checked(value: float) -> float:
    """A number within the range of its type.

    Raises:
        CelError: it is not.
    """
    if isinstance(value, int) and not -_INT64 <= value < _INT64:
        raise CelError("an integer is out of range")
    return value
