"""The scheduler's shell: take-over, gate, usage, read-your-writes, publish.

In: the `World` of a `View`, decayed usage, a clock. Out: `Reign`, cycles with their requests in one
transaction, `GateChange`. Never: a decision of its own (that is `kai_es.scheduler.decide`), a word
to Kubernetes.
"""

from kai_es.cycle.loop import Setting
from kai_es.cycle.scheduler import Scheduler
from kai_es.cycle.usage import Pace, UsageFeed

__all__ = ["Pace", "Scheduler", "Setting", "UsageFeed"]
