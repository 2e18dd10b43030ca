"""Kubernetes quantities as integers.

Amounts enter kai-es here and nowhere else. Every function names its unit and its rounding: what a
node offers is rounded down, what a pod asks for is rounded up.
"""

import re
from fractions import Fraction
from functools import lru_cache
from typing import Final

from kai_es.kube.errors import InvalidObjectError

_SUFFIX: Final = {
    "": Fraction(1),
    "n": Fraction(1, 10**9),
    "u": Fraction(1, 10**6),
    "m": Fraction(1, 1000),
    "k": Fraction(1000),
    "M": Fraction(10**6),
    "G": Fraction(10**9),
    "T": Fraction(10**12),
    "P": Fraction(10**15),
    "E": Fraction(10**18),
    "Ki": Fraction(2**10),
    "Mi": Fraction(2**20),
    "Gi": Fraction(2**30),
    "Ti": Fraction(2**40),
    "Pi": Fraction(2**50),
    "Ei": Fraction(2**60),
}
_QUANTITY: Final = re.compile(
    r"([+-]?)([0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:([eE][+-]?[0-9]{1,3})|([numkMGTPE]|[KMGTPE]i)?)"
)
_MAX_LEN: Final = 64  # a longer text is no quantity anybody means; bounds the work of exponents
_CACHED: Final = 32_768  # distinct texts of a large cluster; an entry is some 200 bytes
AMOUNT_MAX: Final = 2**61 - 1  # the next value means "unlimited"


def parse_quantity(value: object, *, what: str, field: str) -> Fraction:
    """The exact value of a quantity as Kubernetes writes it (`"500m"`, `"8Gi"`, `2`, `"1e3"`).

    Raises:
        InvalidObjectError: not a quantity.
    """
    number = None
    if isinstance(value, str | int | float) and not isinstance(value, bool):
        number = _exact(value if isinstance(value, str) else _number_text(value))
    if number is None:
        raise InvalidObjectError(what, f"{field} is {value!r}, want a quantity such as 500m or 8Gi")
    return number


def request_ceil(value: object, *, scale: int, what: str, field: str) -> int:
    """A requested amount times `scale`, rounded up.

    Raises:
        InvalidObjectError: not a quantity, negative, or too large to be added up.
    """
    amount = _cached_ceil(value, scale) if type(value) is str else None
    if amount is None:
        exact = parse_quantity(value, what=what, field=field) * scale
        amount = -((-exact.numerator) // exact.denominator)
    return _bounded(amount, value, what=what, field=field)


def capacity_floor(value: object, *, scale: int, what: str, field: str) -> int:
    """An offered amount times `scale`, rounded down.

    Raises:
        InvalidObjectError: not a quantity, negative, or too large to be added up.
    """
    amount = _cached_floor(value, scale) if type(value) is str else None
    if amount is None:
        exact = parse_quantity(value, what=what, field=field) * scale
        amount = exact.numerator // exact.denominator
    return _bounded(amount, value, what=what, field=field)


@lru_cache(maxsize=_CACHED)
def _cached_ceil(text: str, scale: int) -> int | None:
    exact = _exact(text)
    return None if exact is None else -((-exact.numerator * scale) // exact.denominator)


@lru_cache(maxsize=_CACHED)
def _cached_floor(text: str, scale: int) -> int | None:
    exact = _exact(text)
    return None if exact is None else exact.numerator * scale // exact.denominator


def _number_text(value: float) -> str:
    """A JSON number as text; an integer of absurd length (Python refuses to print it) as none."""
    if isinstance(value, int) and value.bit_length() > _MAX_LEN * 4:
        return ""
    return str(value)


def _exact(text: str) -> Fraction | None:
    match = _QUANTITY.fullmatch(text) if len(text) <= _MAX_LEN else None
    if match is None:
        return None
    sign, digits, exponent, suffix = match.groups()
    number = Fraction(digits)
    if exponent:
        number *= Fraction(10) ** int(exponent[1:])
    elif suffix:
        number *= _SUFFIX[suffix]
    return -number if sign == "-" else number


def _bounded(amount: int, value: object, *, what: str, field: str) -> int:
    if amount < 0:
        raise InvalidObjectError(what, f"{field} is {value!r}, want an amount of 0 or more")
    if amount > AMOUNT_MAX:
        raise InvalidObjectError(what, f"{field} is {value!r}, want less than 2^61 base units")
    return amount


def saturating_add(one: int, other: int) -> int:
    """A sum that stops at the largest 64-bit integer (counts of devices in foreign objects)."""
    return min(one + other, 2**63 - 1)
