"""Shape `overload`: a generated workload pending at once, half of it more than the cluster holds.

What does not fit looks for victims among queues that are about as full as its own: nearly every
simulation is in vain, so this is what the search budgets are for.
"""

import time
from typing import Any, Final

from benchmarks.cycles import best_cycle
from benchmarks.trace import load
from kai_es.scheduler.config import Config
from kai_es.simulate.workload import Sizes, generate

SEED: Final = 3
SIZES: Final = Sizes(n_nodes=500, n_jobs=4000)


def run() -> dict[str, Any]:
    """The best of a few cycles."""
    started = time.perf_counter()
    snapshot = load(generate(SEED, SIZES))
    result = best_cycle(snapshot, Config(withheld=()), started)
    result["pods"] = len(snapshot.pods)
    return result
