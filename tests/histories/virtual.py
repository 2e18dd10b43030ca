"""Clocks for tests: virtual time, and the machine's own."""

import time

from kai_es.simulate.virtual import START_MS, VirtualClock, VirtualLoop, run_virtual
from tests.histories.builders import T0

__all__ = ["LoopClock", "RealClock", "VirtualLoop", "run_virtual"]

assert START_MS == T0, "stories are told in the time of their builders"

LoopClock = VirtualClock


class RealClock(VirtualClock):
    """The Clock port over the machine's clocks."""

    def now_ms(self):
        return time.time_ns() // 1_000_000 + self.skew_ms

    def monotonic_s(self):
        return time.monotonic()
