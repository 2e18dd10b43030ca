"""What a cycle does, one action after the other on one session.

In: a session. Out: committed operations in its ledger. Actions never import each other.
"""

from collections.abc import Callable, Mapping
from typing import Final

from kai_es.scheduler.actions import (
    allocate,
    consolidation,
    preempt,
    reclaim,
    stalegangeviction,
)
from kai_es.scheduler.framework.session import Session

ACTIONS: Final[Mapping[str, Callable[[Session], None]]] = {
    allocate.NAME: allocate.run,
    consolidation.NAME: consolidation.run,
    reclaim.NAME: reclaim.run,
    preempt.NAME: preempt.run,
    stalegangeviction.NAME: stalegangeviction.run,
}
