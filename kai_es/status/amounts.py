"""Resource amounts of statuses: exact, in millionths of a unit, by Kubernetes' own names."""

from collections.abc import Mapping
from typing import Any, Final

from kai_es.kube.labels import CPU, GPU, MEMORY
from kai_es.kube.quantity import parse_quantity
from kai_es.scheduler.fairness.vectors import Vector

MICRO: Final = 1_000_000
"""One whole core, byte or device."""

Amounts = Mapping[str, int]
"""Name -> amount in millionths; a name that is not there is 0, and 0 is not there."""

_DECIMAL: Final = ("", "k", "M", "G", "T", "P", "E")
_BINARY: Final = ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")


def count(total: dict[str, int], more: Amounts, times: int = 1) -> None:
    """Add `more` so many times; −1 takes it away."""
    for name, amount in more.items():
        now = total.get(name, 0) + times * amount
        if now:
            total[name] = now
        else:
            total.pop(name, None)


def fair_vector(amounts: Amounts) -> Vector:
    """CPU (milli), memory (bytes) and devices (millionths), as they are divided."""
    cpu, memory = amounts.get(CPU, 0), amounts.get(MEMORY, 0)
    devices = sum(amount for name, amount in amounts.items() if name.endswith(GPU))
    return cpu * 1000 // MICRO, memory // MICRO, devices


def quantities(amounts: Amounts) -> dict[str, str]:
    """As a status has them, by name."""
    return {name: quantity(amounts[name]) for name in sorted(amounts) if amounts[name]}


def quantity(amount: int) -> str:
    """The shortest exact quantity of an amount.

    Examples: 500m cores, 2Gi, 128G. Sums lose the suffix that their parts were written with.
    """
    whole, rest = divmod(amount, MICRO)
    if rest:
        return f"{amount // 1000}m" if amount % 1000 == 0 else f"{amount}u"
    return min(_scaled(whole, 1000, _DECIMAL), _scaled(whole, 1024, _BINARY), key=len)


def amounts_of(raw: Mapping[str, Any], *, what: str) -> dict[str, int]:
    """Quantities of a status as amounts, below a millionth rounded up.

    Raises:
        InvalidObjectError: not a quantity.
    """
    found: dict[str, int] = {}
    for name, value in raw.items():
        exact = parse_quantity(value, what=what, field=name) * MICRO
        count(found, {name: -((-exact.numerator) // exact.denominator)})
    return found


def _scaled(whole: int, base: int, suffixes: tuple[str, ...]) -> str:
    at = 0
    while whole and whole % base == 0 and at + 1 < len(suffixes):
        whole //= base
        at += 1
    return f"{whole}{suffixes[at]}"
