"""One turn: decide, cut to what fits into one record, and write down what was decided. Pure.

The live scheduler, replay and what-if all call `turn`; so the cut is part of the decision.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, TypeAlias

import msgspec

from kai_es.events.decisions import (
    Bind,
    Cycle,
    CycleDecision,
    CycleInputs,
    Evict,
    Op,
    Pipeline,
    Reason,
)
from kai_es.events.digest import config_digest, cycle_digest
from kai_es.kube.objects import ShardConfig
from kai_es.snapshot.reigns import Introduced
from kai_es.snapshot.snapshot import Snapshot
from kai_es.snapshot.world import World
from projectors.cycles import CYCLE_BYTES_MAX

Decide: TypeAlias = Callable[[Snapshot, ShardConfig, CycleInputs], CycleDecision]

OPS_BYTES_MAX: Final = 6 * 1024 * 1024
REASONS_BYTES_MAX: Final = CYCLE_BYTES_MAX - OPS_BYTES_MAX - 256 * 1024
"""Together below `CYCLE_BYTES_MAX`; the rest is for inputs, marks, fair shares and references."""

_encoder: Final = msgspec.msgpack.Encoder(order="deterministic")

Reasons: TypeAlias = dict[str, tuple[Reason, ...]]


def turn(
    world: World, config: ShardConfig, inputs: CycleInputs, *, epoch: int, decide: Decide
) -> Cycle:
    """Decide on the world as it is.

    Args:
        world: not changed.
        config: of the shard.
        inputs: of this cycle.
        epoch: the reign that decides; not in the digest.
        decide: `kai_es.scheduler.decide`, or another one in a what-if.

    Returns:
        The cycle as it is recorded, without timings.
    """
    held = world.reigns.reasons.get(inputs.shard, {})
    decision = fit(decide(world.snapshot, config, inputs), held)
    digest_of_config = config_digest(config)
    return Cycle(
        shard=inputs.shard,
        epoch=epoch,
        cycle=inputs.cycle,
        offset=world.offset,
        config_digest=digest_of_config,
        inputs=inputs,
        decision=msgspec.structs.replace(decision, reasons=_new(decision.reasons, held)),
        reasons_same=_same(decision.reasons, held),
        digest=cycle_digest(digest_of_config, inputs, decision),
    )


def whole_decision(cycle: Cycle, held: Mapping[str, Introduced]) -> CycleDecision:
    """The decision of a recorded cycle with all its reasons.

    Args:
        cycle: as recorded.
        held: reasons that held before it.
    """
    reasons = dict(cycle.decision.reasons)
    reasons |= {uid: held[uid].reasons for uid in cycle.reasons_same}
    return msgspec.structs.replace(cycle.decision, reasons=reasons)


def fit(decision: CycleDecision, held: Mapping[str, Introduced]) -> CycleDecision:
    """A decision small enough for one record.

    Operations over the limit wait for the next cycle, cut between statements: no gang is split, no
    victim is evicted without its beneficiary. Reasons over the limit lose their details.
    """
    ops = _ops_that_fit(decision.ops)
    if len(ops) < len(decision.ops):
        kept = {id(op) for op in ops}
        first = next(op for op in decision.ops if id(op) not in kept)
        resume = decision.resume or (_unit(first) if ops else "")
        decision = msgspec.structs.replace(decision, ops=ops, resume=resume)
    if _size(_new(decision.reasons, held)) > REASONS_BYTES_MAX:
        decision = msgspec.structs.replace(decision, reasons=_shortened(decision.reasons))
    return decision


def _ops_that_fit(ops: Sequence[Op]) -> tuple[Op, ...]:
    if _size(ops) <= OPS_BYTES_MAX:
        return tuple(ops)
    units = _units(ops)
    last = {unit: i for i, unit in enumerate(units)}
    n_bytes, n_whole, reach = 0, 0, -1
    for i, op in enumerate(ops):
        n_bytes += _size(op)
        if n_bytes > OPS_BYTES_MAX:
            break
        reach = max(reach, last[units[i]])
        if reach == i:
            n_whole = i + 1
    if n_whole:
        return tuple(ops[:n_whole])
    # The first unit is too large for any cycle; it must not keep the others waiting.
    return _ops_that_fit([op for op, unit in zip(ops, units, strict=True) if unit != units[0]])


def _units(ops: Sequence[Op]) -> list[str]:
    """For each operation the unit that must not be parted: everything on behalf of one group."""
    units = []
    unit = ""
    for op in ops:
        # A moved victim is placed again within the statement that moved it.
        unit = unit if isinstance(op, Pipeline) and op.moved and unit else _unit(op)
        units.append(unit)
    return units


def _unit(op: Op) -> str:
    """Uid of the pod group on whose behalf an operation is."""
    return op.beneficiary or op.group_uid if isinstance(op, Evict) else op.group_uid


def _shortened(reasons: Reasons) -> Reasons:
    """Only the dominant reason of each group, without its parts; at worst only the first groups."""
    found: Reasons = {}
    n_bytes = 0
    for uid, why in sorted(reasons.items()):
        short = tuple(msgspec.structs.replace(reason, parts=(), fix="") for reason in why[:1])
        n_bytes += _size((uid, short))
        if n_bytes > REASONS_BYTES_MAX:
            break
        found[uid] = short
    return found


def _new(reasons: Reasons, held: Mapping[str, Introduced]) -> Reasons:
    return {uid: why for uid, why in reasons.items() if not _holds(uid, why, held)}


def _same(reasons: Reasons, held: Mapping[str, Introduced]) -> dict[str, int]:
    return {uid: held[uid].cycle for uid, why in reasons.items() if _holds(uid, why, held)}


def _holds(uid: str, why: tuple[Reason, ...], held: Mapping[str, Introduced]) -> bool:
    known = held.get(uid)
    return known is not None and known.reasons == why


def _size(value: object) -> int:
    return len(_encoder.encode(value))


def requests_in(cycle: Cycle) -> Iterator[Bind | Evict]:
    """The operations that somebody has to execute."""
    for op in cycle.decision.ops:
        if not isinstance(op, Pipeline):
            yield op
