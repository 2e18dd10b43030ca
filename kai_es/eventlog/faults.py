"""What a broker is allowed to do and seldom does, on purpose and from a seed.

Readers and writers of the log must live with all of it; tests hand `LogFaults` to the memory or
the SQLite adapter and see whether they do.
"""

import enum
import random
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from kai_es.ports.errors import FencedError

Part = TypeVar("Part", bound=Hashable)


@dataclass(frozen=True, slots=True, kw_only=True)
class LogFaults:
    """How often what goes wrong. Rates are 0..1, times in milliseconds.

    gap_rate, gap_max: positions without a record (aborted records, markers) before a record and
        after a transaction, and how many at once.
    lag_rate, lag_ms_max: a partition of a transaction becomes visible late; every partition is
        drawn for itself.
    hold_rate, hold_ms: a whole transaction stays open that long; what others append behind it
        waits too.
    unknown_rate: an `append_one` ends in UnavailableError; then, in equal parts, the record is
        missing, there, or there twice.
    fenced_rate: an `append` is stored and yet ends in FencedError, its outcome being unknown.
    """

    seed: int
    gap_rate: float = 0.2
    gap_max: int = 3
    lag_rate: float = 0.3
    lag_ms_max: int = 30
    hold_rate: float = 0.05
    hold_ms: int = 150
    unknown_rate: float = 0.0
    fenced_rate: float = 0.0


class Fate(enum.Enum):
    """What becomes of an `append_one`; the value is how often its record is stored."""

    ACKNOWLEDGED = -1
    MISSING = 0
    THERE = 1
    TWICE = 2

    def copies(self) -> int:
        """How often the record is stored."""
        return abs(self.value)


class FaultPlan:
    """Draws what goes wrong next. Without faults nothing ever does."""

    def __init__(self, faults: LogFaults | None) -> None:
        self._faults = faults
        self._random = random.Random(0 if faults is None else faults.seed)

    @property
    def active(self) -> bool:
        """Whether anything can go wrong, so that readers must look at held positions."""
        return self._faults is not None

    def gap(self) -> int:
        """Positions to leave out here."""
        if self._faults is None or self._random.random() >= self._faults.gap_rate:
            return 0
        return self._random.randint(1, self._faults.gap_max)

    def delays_ms(self, parts: Sequence[Part]) -> Mapping[Part, int]:
        """Delay until each partition of a transaction is visible; partitions without are absent."""
        if self._faults is None:
            return {}
        held = self._random.random() < self._faults.hold_rate
        delays: dict[Part, int] = {}
        for part in parts:
            lags = self._random.random() < self._faults.lag_rate
            lag = self._random.randint(1, self._faults.lag_ms_max) if lags else 0
            if held or lag:
                delays[part] = lag + (self._faults.hold_ms if held else 0)
        return delays

    def fate(self) -> Fate:
        """What becomes of this `append_one`."""
        if self._faults is None or self._random.random() >= self._faults.unknown_rate:
            return Fate.ACKNOWLEDGED
        return self._random.choice((Fate.MISSING, Fate.THERE, Fate.TWICE))

    def lose_answer(self, producer_id: str) -> None:
        """Raise FencedError when the answer to this `append`, already stored, gets lost."""
        if self._faults is not None and self._random.random() < self._faults.fenced_rate:
            raise FencedError(f"{producer_id}: outcome of an append unknown (injected)")
