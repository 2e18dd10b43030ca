"""Where two decisions part: the first step that differs, in words."""

from collections.abc import Mapping, Sequence

from kai_es.events.decisions import Bind, CycleDecision, Evict, Op, Pipeline


def first_difference(recorded: CycleDecision, found: CycleDecision) -> str:
    """The first step at which two decisions differ, "" = they are equal.

    Steps are those in which a cycle decides: operations in commit order, then what was cut, then
    reasons, marks and fair shares.
    """
    for step in (
        _of_ops(recorded.ops, found.ops),
        _of_value("resume", recorded.resume, found.resume),
        _of_maps("reasons of pod group", recorded.reasons, found.reasons),
        _of_maps("marks of pod group", _by_uid(recorded), _by_uid(found)),
        _of_maps("fair share of queue", _by_queue(recorded), _by_queue(found)),
    ):
        if step:
            return step
    return "" if recorded == found else "marks or fair shares stand in another order"


def _of_ops(recorded: Sequence[Op], found: Sequence[Op]) -> str:
    for n, (one, other) in enumerate(zip(recorded, found, strict=False)):
        if one != other:
            return f"op {n}: recorded {_op(one)}, found {_op(other)}{_fields(one, other)}"
    n = min(len(recorded), len(found))
    if len(recorded) > n:
        return f"op {n}: recorded {_op(recorded[n])}, found nothing"
    if len(found) > n:
        return f"op {n}: recorded nothing, found {_op(found[n])}"
    return ""


def _op(op: Op) -> str:
    match op:
        case Bind():
            return f"bind {op.namespace}/{op.pod} to {op.node} ({op.action})"
        case Pipeline():
            return f"pipeline {op.namespace}/{op.pod} to {op.node} ({op.action})"
        case Evict():
            return f"evict {op.namespace}/{op.pod} from {op.node} ({op.action})"


def _fields(one: Op, other: Op) -> str:
    """Fields that differ where the words do not show it."""
    if type(one) is not type(other) or _op(one) != _op(other):
        return ""
    names = [n for n in one.__struct_fields__ if getattr(one, n) != getattr(other, n)]
    parts = [f"{n} {getattr(one, n)!r} against {getattr(other, n)!r}" for n in names]
    return f": {'; '.join(parts)}"


def _of_maps(what: str, recorded: Mapping[str, object], found: Mapping[str, object]) -> str:
    for key in sorted(recorded.keys() | found.keys()):
        step = _of_value(f"{what} {key}", recorded.get(key), found.get(key))
        if step:
            return step
    return ""


def _of_value(what: str, recorded: object, found: object) -> str:
    if recorded == found:
        return ""
    return f"{what}: recorded {_text(recorded)}, found {_text(found)}"


def _text(value: object) -> str:
    return "nothing" if value in (None, "") else str(value)


def _by_uid(decision: CycleDecision) -> dict[str, object]:
    return {mark.group_uid: mark for mark in decision.marks}


def _by_queue(decision: CycleDecision) -> dict[str, object]:
    return {share.queue: share for share in decision.fair_shares}
