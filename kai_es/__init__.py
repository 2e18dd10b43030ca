"""Event-sourced scheduling of AI workloads on GPU clusters.

Every input and every decision is a record in one ordered, durable log; the decision function is
deterministic, so each past cycle can be replayed bit for bit. `ARCHITECTURE.md` has the map.
"""

__version__ = "0.1.0"
