"""Options of a session that no configuration can express; for conformance runs only."""

from dataclasses import dataclass, field


@dataclass(slots=True)
class SessionHooks:
    """What the reference's fakes can inject and observe.

    skip_plugins:   plugins left out of the configured list.
    victim_invariant_error: text with which one more victim-invariant test fails for every pod.
    gpu_memory_default: MiB of the smallest and largest device where no node tells, 0 = none.
    counters: `solver_attempts`: how often reclaim handed a job to the solver; `scenarios`: how many
              were simulated.
    """

    skip_plugins: frozenset[str] = frozenset()
    victim_invariant_error: str = ""
    gpu_memory_default: int = 0
    counters: dict[str, int] = field(default_factory=dict)

    def count(self, what: str) -> None:
        """Something observable happened once more."""
        self.counters[what] = self.counters.get(what, 0) + 1
