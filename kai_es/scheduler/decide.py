"""One whole cycle: `open_session`, the configured actions, `close`."""

from kai_es.events.decisions import CycleDecision, CycleInputs, Reason
from kai_es.kube.objects import ShardConfig
from kai_es.scheduler.actions import ACTIONS
from kai_es.scheduler.columns.columns import Columns
from kai_es.scheduler.columns.lens import Lens
from kai_es.scheduler.config import Config, parse_settings
from kai_es.scheduler.flags import GROUPS_BY_NAME, SCHEDULER_IGNORED
from kai_es.scheduler.framework.session import Session
from kai_es.scheduler.framework.waiting import why_waiting
from kai_es.scheduler.hooks import SessionHooks
from kai_es.scheduler.plugins import open_plugins
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

    Raises:
        ConfigError: the settings make no sense.
    """
    session = open_session(snapshot, parse_settings(config.settings), inputs, hooks)
    for action in session.config.actions:
        run_action(session, action)
    return close(session)


def columns_of(snapshot: Snapshot, lens: Lens) -> Columns:
    """The columns of a shard, which follow the snapshot from then on."""
    for follower in snapshot.followers:
        if isinstance(follower, Columns) and follower.lens == lens:
            return follower
    return Columns(snapshot, lens)


def open_session(
    snapshot: Snapshot, config: Config, inputs: CycleInputs, hooks: SessionHooks | None = None
) -> Session:
    """Columns brought up to date, and a session on them with all plugins registered."""
    lens = config.lens(
        groups_by_name=GROUPS_BY_NAME in inputs.flags,
        foreign_pods=SCHEDULER_IGNORED in inputs.flags,
    )
    columns = columns_of(snapshot, lens)
    columns.refresh(inputs.now_ms)
    session = Session(columns, config, inputs, hooks or SessionHooks())
    open_plugins(session)
    return session


def run_action(session: Session, action: str) -> None:
    """Run one action to its end."""
    run = ACTIONS.get(action)
    if run is not None:
        run(session)


def close(session: Session) -> CycleDecision:
    """What the session decided."""
    ledger = session.ledger
    return CycleDecision(
        ops=tuple(ledger.ops),
        reasons=_reasons(session),
        marks=ledger.changed_marks(),
        resume=ledger.resume,
        fair_shares=() if session.shares is None else session.shares.shares(),
    )


def _reasons(session: Session) -> dict[str, tuple[Reason, ...]]:
    """Reasons by group uid of every job with a pod that was not placed."""
    found: dict[str, tuple[Reason, ...]] = {}
    for job in sorted(session.columns.waiting.values(), key=lambda job: job.uid):
        reasons = why_waiting(session, job)
        if reasons:
            found[job.uid] = reasons
    return found
