"""Options of a session that no configuration can express; for conformance runs only."""

from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass(slots=True)
class SessionHooks:
    """What the reference's fakes can inject and observe.

    skip_plugins:   plugins left out of the configured list.
    victim_invariant_error: text with which one more victim-invariant test fails for every pod.
    on_solver_start: called with the group uid each time reclaim hands a job to the solver.
    """

    skip_plugins: frozenset[str] = frozenset()
    victim_invariant_error: str = ""
    on_solver_start: Callable[[str], None] | None = None
    counters: dict[str, int] = field(default_factory=dict)
