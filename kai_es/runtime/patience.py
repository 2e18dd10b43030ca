"""How long to wait for something to change."""

from dataclasses import dataclass
from typing import Final

STALLED_S: Final = 120.0
"""Without any change for so long, and nobody at work on one, nothing is going to happen."""
GIVEN_UP_S: Final = 1800.0
"""Whoever is still at work without any result; a cycle of the largest traces takes minutes on a
machine that is busy with other things."""
WORKS_SHARE: Final = 0.1
"""Of one CPU: the parts take 3 % when there is nothing to do, and a cycle all that it can get."""


@dataclass(slots=True)
class Patience:
    """Is over when nothing changes any more. A slow machine is not the same as standing still."""

    since_s: float
    state: str = ""
    cpu_s: float = 0.0

    def is_over(self, state: str, *, now_s: float, cpu_s: float) -> bool:
        """Whether it makes no sense to wait on.

        Args:
            state: whatever counts as a change when it differs.
            now_s: monotonic.
            cpu_s: that those who could change it have used so far.
        """
        if state != self.state:
            self.state, self.since_s, self.cpu_s = state, now_s, cpu_s
            return False
        quiet_s = now_s - self.since_s
        if quiet_s <= STALLED_S:
            return False
        return cpu_s - self.cpu_s < WORKS_SHARE * quiet_s or quiet_s > GIVEN_UP_S
