"""Arguments of the plugin `proportion`.

Reference: pkg/scheduler/plugins/proportion/proportion.go (fairness §2.8).
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

K_VALUE: Final = "kValue"
SATURATION_MULTIPLIER: Final = "relcaimerSaturationMultiplier"
"""Spelled like this in every installation."""


@dataclass(frozen=True, slots=True)
class ProportionSettings:
    """How much past usage counts, and how far reclaim must stay below a sibling's saturation."""

    k_value: float = 1.0
    saturation_multiplier: float = 1.0

    @classmethod
    def of(cls, arguments: Mapping[str, str]) -> "ProportionSettings":
        """The settings of a plugin's arguments; what cannot be read is 1."""
        return cls(
            k_value=max(_number(arguments.get(K_VALUE)), 0.0),
            saturation_multiplier=max(_number(arguments.get(SATURATION_MULTIPLIER)), 1.0),
        )


def _number(text: str | None) -> float:
    try:
        value = float(text) if text else 1.0
    except ValueError:
        return 1.0
    return value if math.isfinite(value) else 1.0
