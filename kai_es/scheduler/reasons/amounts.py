"""Amounts as people read them.

Reference: pkg/scheduler/api/resource_info (scheduler-core §5.2), fairness §5.
"""

from typing import Final

from kai_es.kube.labels import GPU_MICRO, UNLIMITED

CORE: Final = 1000
GIGABYTE: Final = 10**9

_UNLIMITED_TEXT: Final = "Unlimited"


def humanized(amount: int, unit: int) -> str:
    """An amount in units with at most three decimals, cut, without trailing zeros."""
    if amount >= UNLIMITED:
        return _UNLIMITED_TEXT
    text = f"{amount / unit:.6f}"[:-3]
    return text.rstrip("0").rstrip(".")


def three_digits(amount: int, unit: int) -> str:
    """An amount in units with three significant digits, as Go's %.3g."""
    return f"{amount / unit:.3g}"


def raw_devices(gpu_micro: int) -> str:
    """Devices without any rounding."""
    if gpu_micro % GPU_MICRO == 0:
        return str(gpu_micro // GPU_MICRO)
    return repr(gpu_micro / GPU_MICRO)


def whole_devices(gpu_micro: int) -> str:
    """Devices as a quota shows them: whole ones from 1 on, below two decimals, no bound as 0."""
    if gpu_micro >= UNLIMITED:
        return "0"
    if gpu_micro >= GPU_MICRO:
        return str(gpu_micro // GPU_MICRO)
    hundredths = round(gpu_micro * 100 / GPU_MICRO)
    return f"{hundredths / 100:g}"
