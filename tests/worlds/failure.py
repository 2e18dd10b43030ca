"""What went wrong in a world."""

import asyncio

from kai_es.simulate.virtual import START_MS


class WorldError(AssertionError):
    """An invariant does not hold; the text names the seed."""


class Failures:
    """Collects; the first one ends the world."""

    def __init__(self, seed):
        self.seed = seed
        self.texts = []
        self.first = asyncio.get_running_loop().create_future()

    def violated(self, invariant, text):
        now_s = asyncio.get_running_loop().time()
        self.texts.append(f"invariant {invariant} at {now_s:.3f} s: {text}")
        if not self.first.done():
            self.first.set_result(None)

    def check(self):
        if self.texts:
            rest = f" (and {len(self.texts) - 1} more)" if len(self.texts) > 1 else ""
            raise WorldError(
                f"seed {self.seed}: {self.texts[0]}{rest}\n"
                f"again with: python -m tests.worlds {self.seed}"
            )


def seconds(time_ms):
    """Seconds since the world began."""
    return (time_ms - START_MS) / 1000
