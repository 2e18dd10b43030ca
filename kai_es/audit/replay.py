"""Deciding again what was decided, from the log alone: with the same code, or with a change.

From the nearest checkpoint at or before the first cycle's offset, or from the beginning, the world
is rolled forward; at each cycle's offset `turn` runs with the recorded inputs. Equal digests mean:
the same decision, byte for byte.
"""

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import NamedTuple, TypeAlias

from kai_es.audit.cycles import Recorded
from kai_es.audit.difference import first_difference
from kai_es.audit.errors import NotReplayableError
from kai_es.cycle.turn import Decide, turn, whole_decision
from kai_es.events.decisions import Cycle, CycleDecision
from kai_es.kube.objects import ShardConfig
from kai_es.ports.eventlog import ReadableLog
from kai_es.ports.stores import CheckpointStore
from kai_es.reader.restore import HistoryGoneError, nearest_world, reaches_back
from kai_es.reader.roll import roll
from kai_es.scheduler import decide as real_decide
from kai_es.snapshot.reigns import Introduced
from kai_es.snapshot.world import World

Change: TypeAlias = Callable[[ShardConfig], ShardConfig]


class Replayed(NamedTuple):
    """A cycle decided again.

    recorded:   as in the log.
    found:      as decided now.
    difference: first step that differs, "" = identical.
    decision:   what was found, with all its reasons.
    """

    recorded: Cycle
    found: Cycle
    difference: str
    decision: CycleDecision

    @property
    def is_identical(self) -> bool:
        """Whether the digests agree."""
        return self.difference == ""


async def replay(
    log: ReadableLog,
    cycles: Sequence[Recorded],
    *,
    checkpoints: CheckpointStore | None = None,
    decide: Decide = real_decide,
    change: Change | None = None,
) -> AsyncIterator[Replayed]:
    """Decide cycles again, in the order of what they saw.

    Args:
        log: that holds them.
        cycles: from `recorded_cycles`.
        checkpoints: where to start from, None = only from the beginning.
        decide: the decision function.
        change: of the configuration, for a what-if; then only decisions are compared.

    Raises:
        NotReplayableError: the range is no longer there.
    """
    by_offset = _by_offset(cycles)
    if not by_offset:
        return
    world = await _world_before(log, checkpoints, min(by_offset), cycles)
    last = max(by_offset)
    for cycle in by_offset.get(world.offset, ()):
        yield decided_again(world, cycle, decide=decide, change=change)
    async for offset, _, _ in roll(log, world, until=last):
        for cycle in by_offset.get(offset, ()):
            yield decided_again(world, cycle, decide=decide, change=change)
    if world.offset < last:
        raise NotReplayableError(
            f"the log ends at snapshot offset {world.offset}, a cycle saw {last}"
        )


def decided_again(
    world: World, recorded: Cycle, *, decide: Decide = real_decide, change: Change | None = None
) -> Replayed:
    """Decide one cycle on the world that it saw."""
    assert world.offset == recorded.offset, f"at {world.offset}, the cycle saw {recorded.offset}"
    held = world.reigns.reasons.get(recorded.shard, {})
    config = world.snapshot.config(recorded.shard)
    if config is None:
        difference = f"configuration: shard {recorded.shard} has none at offset {world.offset}"
        return Replayed(recorded, recorded, difference, CycleDecision())
    changed = config if change is None else change(config)
    found = turn(world, changed, recorded.inputs, epoch=recorded.epoch, decide=decide)
    decision = whole_decision(found, held)
    difference = _difference(recorded, found, held, is_what_if=change is not None)
    return Replayed(recorded, found, difference, decision)


def _difference(
    recorded: Cycle, found: Cycle, held: Mapping[str, Introduced], *, is_what_if: bool
) -> str:
    if found.digest == recorded.digest:
        return ""
    if not is_what_if and found.config_digest != recorded.config_digest:
        return f"configuration: recorded {recorded.config_digest}, found {found.config_digest}"
    unknown = sorted(uid for uid in recorded.reasons_same if uid not in held)
    if unknown:
        return f"reasons of pod group {unknown[0]}: recorded as known, but none held before"
    step = first_difference(whole_decision(recorded, held), whole_decision(found, held))
    if step or is_what_if:
        return step
    return f"digest: recorded {recorded.digest}, found {found.digest} of an equal decision"


def _by_offset(cycles: Sequence[Recorded]) -> dict[int, list[Cycle]]:
    found: dict[int, list[Cycle]] = {}
    for entry in cycles:
        found.setdefault(entry.cycle.offset, []).append(entry.cycle)
    return found


async def _world_before(
    log: ReadableLog,
    checkpoints: CheckpointStore | None,
    offset: int,
    cycles: Sequence[Recorded],
) -> World:
    try:
        return await nearest_world(log, checkpoints, at_most=offset)
    except HistoryGoneError as exc:
        wanted = _named(min(cycles, key=lambda entry: entry.cycle.offset).cycle)
        first = await _first_replayable(log, checkpoints, cycles)
        raise NotReplayableError(
            f"what cycle {wanted} saw is no longer in the log; the first replayable cycle is "
            f"{first}"
        ) from exc


async def _first_replayable(
    log: ReadableLog, checkpoints: CheckpointStore | None, cycles: Sequence[Recorded]
) -> str:
    """Name of the first cycle that lies at or after a state to start from."""
    if await reaches_back(log):
        heads = [-1]
    elif checkpoints is not None:
        heads = [head.offset for head in await checkpoints.heads()]
    else:
        heads = []
    start = min(heads, default=None)
    if start is None:
        return "none"
    found = [entry.cycle for entry in cycles if entry.cycle.offset >= start]
    return _named(found[0]) if found else f"the first one that saw offset {start}"


def _named(cycle: Cycle) -> str:
    return f"{cycle.cycle} of shard {cycle.shard}"
