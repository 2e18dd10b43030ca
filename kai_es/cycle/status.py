"""What health and metrics show of a scheduler."""

from dataclasses import dataclass

from kai_es.events.decisions import Gate
from kai_es.ports.eventlog import JOINS
from kai_es.snapshot.reigns import NEVER_GATED


@dataclass(slots=True)
class SchedulerStatus:
    """Counters since the start of the process, and where it stands.

    state:   standby | taking-over | leading | stopped.
    trouble: why it waits, "" = it does not.
    gate:    the last verdict.
    config_problem: why the configuration cannot be used, "" = it can.
    cycle:   number of the last cycle published, 0 = none by this process.
    took_ms: of the last decision.
    """

    state: str = "standby"
    trouble: str = JOINS
    epoch: int = 0
    gate: Gate = NEVER_GATED
    config_problem: str = ""
    cycle: int = 0
    n_cycles: int = 0
    n_binds: int = 0
    n_evicts: int = 0
    n_gate_changes: int = 0
    took_ms: float = 0.0
