"""Minimum run time: how long a job that has started may not be taken from.

Reference: pkg/scheduler/plugins/minruntime/*.go (fairness §8).
"""

import enum
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Final, TypeAlias

Path: TypeAlias = Sequence[int]
"""Queue rows upwards: a queue, its parent, … its root."""


class ResolveMethod(enum.Enum):
    """Whose reclaim run time holds for a victim (argument `reclaimResolveMethod`)."""

    LCA = "lca"
    QUEUE = "queue"

    @classmethod
    def of(cls, text: str) -> "ResolveMethod":
        """The method of an argument; anything unknown is `lca`."""
        return cls.QUEUE if text.strip().lower() == cls.QUEUE.value else cls.LCA


@dataclass(frozen=True, slots=True, kw_only=True)
class RunTimes:
    """Minimum run times of a shard, ms.

    preempt, reclaim: by queue row, None = not set there.
    default_preempt, default_reclaim: where no queue says anything.
    """

    preempt: Sequence[int | None]
    reclaim: Sequence[int | None]
    default_preempt: int = 0
    default_reclaim: int = 0
    method: ResolveMethod = ResolveMethod.LCA

    def of_preempt(self, victim: Path) -> int:
        """What protects the jobs of a queue from preemption."""
        return _first(self.preempt, victim, self.default_preempt)

    def of_reclaim(self, reclaimer: Path, victim: Path) -> int:
        """What protects the jobs of a queue from a reclaimer of another.

        By `queue` it is the value nearest to the victim. By `lca` it starts one step below the
        last common ancestor, on the victim's side; between trees only the victim's root counts.
        """
        if self.method is ResolveMethod.QUEUE:
            return _first(self.reclaim, victim, self.default_reclaim)
        if not reclaimer or not victim:
            return self.default_reclaim
        common = 0
        for mine, other in zip(reversed(reclaimer), reversed(victim), strict=False):
            if mine != other:
                break
            common += 1
        start = max(len(victim) - common - 1, 0)
        return _first(self.reclaim, victim[start:], self.default_reclaim)


def _first(values: Sequence[int | None], path: Path, default: int) -> int:
    for row in path:
        value = values[row]
        if value is not None:
            return value
    return default


def is_protected(*, last_start_ms: int, min_runtime_ms: int, now_ms: int) -> bool:
    """Whether a job has not run long enough yet; one that was never marked started is not.

    Args:
        last_start_ms: mark of the job, 0 = none.
        min_runtime_ms: resolved by `RunTimes`.
        now_ms: time of the cycle.
    """
    return last_start_ms > 0 and now_ms < last_start_ms + min_runtime_ms


def may_be_victim(*, protected: bool, elastic: bool) -> bool:
    """Whether a job may be looked at as a victim; an elastic one may give up its surplus."""
    return elastic or not protected


def keeps_minimum(
    evicted: Mapping[str, int], used: Mapping[str, int], min_available: Mapping[str, int]
) -> bool:
    """Whether a protected job keeps its minimum in every pod set that a scenario takes from.

    Args:
        evicted: tasks that the scenario takes, by pod set.
        used: active-used tasks, releasing and pipelined ones included.
        min_available: by pod set.
    """
    return all(
        min_available.get(name, 0) <= used.get(name, 0) - taken for name, taken in evicted.items()
    )


# -- durations of plugin arguments

_ARGUMENT: Final = re.compile(r"(?:(?:[0-9]*\.)?[0-9]+(?:w|d|h|ms|m|s|us|µs|μs|ns))+")
_PART: Final = re.compile(r"((?:[0-9]*\.)?[0-9]+)(w|d|h|ms|m|s|us|µs|μs|ns)")
_UNIT_MS: Final = {
    "w": Fraction(7 * 86_400_000),
    "d": Fraction(86_400_000),
    "h": Fraction(3_600_000),
    "m": Fraction(60_000),
    "s": Fraction(1000),
    "ms": Fraction(1),
    "us": Fraction(1, 1000),
    "µs": Fraction(1, 1000),
    "μs": Fraction(1, 1000),
    "ns": Fraction(1, 10**6),
}
_MAX_LEN: Final = 64  # a longer text is no duration anybody means


def argument_ms(text: str | None) -> int:
    """Milliseconds of a plugin argument such as `5w4d12h`; 0 if negative or no duration."""
    if not text or len(text) > _MAX_LEN or _ARGUMENT.fullmatch(text) is None:
        return 0
    total = sum((Fraction(n) * _UNIT_MS[unit] for n, unit in _PART.findall(text)), Fraction(0))
    return -(-total.numerator // total.denominator)
