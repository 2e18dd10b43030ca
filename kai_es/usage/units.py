"""Amounts × milliseconds as the hours people pay for."""

from decimal import ROUND_HALF_EVEN, Decimal, localcontext
from typing import Final

from kai_es.kube.labels import CPU, GPU, GPU_MICRO, MEMORY

HOUR_MS: Final = 3_600_000
DIGITS: Final = 9
"""Decimal places: 1e-9 GPU-hours are 3.6 microseconds of one GPU, the books count milliseconds."""

UNITS: Final = {CPU: "core-hours", MEMORY: "GiB-hours", GPU: "GPU-hours"}
RESOURCES: Final = tuple(UNITS)
"""In the order in which reports show them."""

_BASE: Final = {CPU: 1000, MEMORY: 2**30, GPU: GPU_MICRO}
_STEP: Final = Decimal(1).scaleb(-DIGITS)
_TENTH: Final = Decimal("0.1")


def unit_hours(amount_ms: int, resource: str) -> Decimal:
    """Core-hours, GiB-hours or GPU-hours of a sum of amount × milliseconds.

    Computed in decimal, rounded half to even at `DIGITS` places; 4 GPUs for an hour are 4.0.
    """
    with localcontext() as context:
        context.prec = 60
        exact = Decimal(amount_ms) / (_BASE[resource] * HOUR_MS)
        rounded = exact.quantize(_STEP, rounding=ROUND_HALF_EVEN).normalize()
        return max(rounded, rounded.quantize(_TENTH), key=_places)


def _places(value: Decimal) -> int:
    exponent = value.as_tuple().exponent
    assert isinstance(exponent, int)
    return -exponent
