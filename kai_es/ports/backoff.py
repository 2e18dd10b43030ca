"""How long to wait before trying something again."""

import random
from typing import Final

FACTOR: Final = 2.0
JITTER: Final = 0.25  # of the delay, so that clients of one server do not come back together


class Backoff:
    """Doubling delays with jitter, from `first_s` up to `most_s`.

    rng: where the jitter comes from; a simulation passes a seeded one.
    """

    def __init__(self, first_s: float, most_s: float, rng: random.Random | None = None) -> None:
        self._first_s = first_s
        self._most_s = most_s
        self._next_s = first_s
        self._rng = rng or random.Random()

    def next_s(self, *, at_least_s: float = 0.0) -> float:
        """The delay before the next try; `at_least_s`: what the server asked for."""
        delay = self._next_s
        self._next_s = min(delay * FACTOR, self._most_s)
        return max(delay * (1 - JITTER * self._rng.random()), at_least_s)

    def reset(self) -> None:
        """It worked."""
        self._next_s = self._first_s
