"""The functions of CEL that selectors can call, by name and receiver."""

from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import Final, Protocol

from kai_es.kube.cel.errors import CelError
from kai_es.kube.cel.regex import regex
from kai_es.kube.cel.values import Amount, Semver, checked, kind_of, quantity, semver


class Meter(Protocol):
    """Whoever counts the work."""

    def spend(self, steps: int) -> None:
        """So much more work; raises CelError when it is too much."""


Arguments = Sequence[object]
Function = Callable[[Meter, Arguments], object]


def call(meter: Meter, name: str, arguments: Arguments) -> object:
    """The value of a function; a method's receiver is its first argument.

    Raises:
        CelError: there is no such function for these arguments.
    """
    kinds = tuple(map(kind_of, arguments))
    function = _FUNCTIONS.get((name, *kinds))
    if function is None:
        raise CelError(f"there is no function {name}({', '.join(kinds)})")
    return function(meter, arguments)


def _order(one: object, other: object) -> int:
    left, right = (x.key if isinstance(x, Semver) else x for x in (one, other))
    return int(left > right) - int(left < right)  # type: ignore[operator]


def _matches(meter: Meter, arguments: Arguments) -> bool:
    text, pattern = map(str, arguments)
    compiled = regex(pattern)
    meter.spend(1 + len(text) * compiled.n_states // _STATES_PER_STEP)
    return compiled.found_in(text)


_STATES_PER_STEP: Final = 10
"""States of a pattern that are followed in the time of one step of evaluation, about."""


def _substring(meter: Meter, arguments: Arguments) -> str:
    text, start = str(arguments[0]), int(arguments[1])  # type: ignore[call-overload]
    end = int(arguments[2]) if len(arguments) > 2 else len(text)  # type: ignore[call-overload]
    if not 0 <= start <= end <= len(text):
        raise CelError(f"substring {start}:{end} of {len(text)} characters")
    return text[start:end]


def _integer(value: object) -> int:
    if isinstance(value, float):
        if not -(2.0**63) < value < 2.0**63:
            raise CelError("a number is out of range")
        return int(value)
    try:
        return int(checked(int(str(value))))
    except ValueError as exc:
        raise CelError(f"{value!r} is no integer") from exc


def _double(value: object) -> float:
    try:
        return float(value)  # type: ignore[arg-type]
    except ValueError as exc:
        raise CelError(f"{value!r} is no number") from exc


def _whole(value: object) -> int:
    assert isinstance(value, Amount)
    if value.value.denominator != 1:
        raise CelError("the quantity is no integer")
    return int(checked(int(value.value)))


def _total(one: object, other: object, sign: int) -> Amount:
    assert isinstance(one, Amount)
    more = other.value if isinstance(other, Amount) else Fraction(str(other))
    return Amount(one.value + sign * more)


def _is(parse: Callable[[object], object]) -> Function:
    def test(_meter: Meter, arguments: Arguments) -> bool:
        try:
            parse(arguments[0])
        except CelError:
            return False
        return True

    return test


def _pure(function: Callable[..., object]) -> Function:
    return lambda _meter, arguments: function(*arguments)


def _lower(text: str) -> str:
    return "".join(c.lower() if c.isascii() else c for c in text)


def _upper(text: str) -> str:
    return "".join(c.upper() if c.isascii() else c for c in text)


_FUNCTIONS: Final[Mapping[tuple[str, ...], Function]] = {
    ("size", "string"): _pure(len),
    ("size", "list"): _pure(len),
    ("size", "map"): _pure(len),
    ("contains", "string", "string"): _pure(lambda text, part: part in text),
    ("startsWith", "string", "string"): _pure(str.startswith),
    ("endsWith", "string", "string"): _pure(str.endswith),
    ("matches", "string", "string"): _matches,
    ("lowerAscii", "string"): _pure(_lower),
    ("upperAscii", "string"): _pure(_upper),
    ("trim", "string"): _pure(str.strip),
    ("indexOf", "string", "string"): _pure(str.find),
    ("lastIndexOf", "string", "string"): _pure(str.rfind),
    ("charAt", "string", "int"): lambda meter, a: _substring(meter, (a[0], a[1], a[1] + 1)),  # type: ignore[operator]
    ("substring", "string", "int"): _substring,
    ("substring", "string", "int", "int"): _substring,
    ("split", "string", "string"): _pure(lambda text, by: text.split(by) if by else list(text)),
    ("int", "int"): _pure(lambda value: value),
    ("int", "double"): _pure(_integer),
    ("int", "string"): _pure(_integer),
    ("double", "int"): _pure(_double),
    ("double", "double"): _pure(_double),
    ("double", "string"): _pure(_double),
    ("string", "string"): _pure(lambda value: value),
    ("string", "int"): _pure(str),
    ("string", "bool"): _pure(lambda value: "true" if value else "false"),
    ("quantity", "string"): _pure(quantity),
    ("isQuantity", "string"): _is(quantity),
    ("semver", "string"): _pure(semver),
    ("isSemver", "string"): _is(semver),
    ("major", "semver"): _pure(lambda value: value.major),
    ("minor", "semver"): _pure(lambda value: value.minor),
    ("patch", "semver"): _pure(lambda value: value.patch),
    ("asInteger", "quantity"): _pure(_whole),
    ("isInteger", "quantity"): _pure(lambda value: value.value.denominator == 1),
    ("asApproximateFloat", "quantity"): _pure(lambda value: float(value.value)),
    ("sign", "quantity"): _pure(lambda value: (value.value > 0) - (value.value < 0)),
    ("add", "quantity", "quantity"): _pure(lambda one, other: _total(one, other, 1)),
    ("add", "quantity", "int"): _pure(lambda one, other: _total(one, other, 1)),
    ("sub", "quantity", "quantity"): _pure(lambda one, other: _total(one, other, -1)),
    ("sub", "quantity", "int"): _pure(lambda one, other: _total(one, other, -1)),
    **{
        (name, kind, kind): _pure(test)
        for kind in ("quantity", "semver")
        for name, test in (
            ("compareTo", _order),
            ("isGreaterThan", lambda one, other: _order(one, other) > 0),
            ("isLessThan", lambda one, other: _order(one, other) < 0),
        )
    },
}
