"""One whole cycle: `open_session`, the configured actions, `close`."""

from kai_es.events.decisions import CycleDecision, CycleInputs
from kai_es.kube.objects import ShardConfig
from kai_es.scheduler.hooks import SessionHooks
from kai_es.snapshot.snapshot import Snapshot


def decide(
    snapshot: Snapshot,
    config: ShardConfig,
    inputs: CycleInputs,
    hooks: SessionHooks | None = None,
) -> CycleDecision:
    """What to do with the rows of `snapshot` under `config`.

    Deterministic: equal rows, configuration and inputs give an equal decision, in whatever order
    the rows arrived (architecture §4).

    Args:
        snapshot: the live rows; not changed.
        config: the shard's configuration with every default resolved.
        inputs: clock, usage, gate and rule flags of this cycle.
        hooks: test-only options.

    Returns:
        Operations in commit order, reasons, marks and fair shares.
    """
    del snapshot, config, inputs, hooks
    return CycleDecision()
