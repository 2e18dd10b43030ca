"""The cycles of a log that the user means, or what there is instead."""

from collections.abc import Sequence

from kai_es.audit.cycles import Recorded, recorded_cycles
from kai_es.cli.exits import UsageError
from kai_es.ports.eventlog import ReadableLog
from kai_es.ports.reports import ShardCycles


async def meant(
    log: ReadableLog, *, shard: str | None, first: int | None = None, last: int | None = None
) -> Sequence[Recorded]:
    """Cycles of a shard (None = of all) with numbers from `first` to `last`, at least one.

    Raises:
        UsageError: there is none; says which there are.
    """
    found = await recorded_cycles(log, shard=shard, first=first, last=last)
    if found:
        return found
    there = _shards(await recorded_cycles(log))
    if not there:
        raise UsageError("no cycle is in the log yet: the part scheduler writes them")
    own = there if shard is None else [cycles for cycles in there if cycles.shard == shard]
    if not own:
        raise no_such_shard(str(shard), there)
    kept = ", ".join(f"{c.first} to {c.last} of shard {c.shard}" for c in own)
    raise UsageError(f"no cycle {_range(first, last)} in the log: it holds {kept}")


def no_such_shard(shard: str, there: Sequence[ShardCycles]) -> UsageError:
    """The error for a shard that has no cycles."""
    if not there:
        return UsageError(
            f"--shard {shard}: no shard has cycles yet, the part scheduler writes them"
        )
    return UsageError(
        f"--shard {shard}: it has no cycles; those that have: "
        f"{', '.join(cycles.shard for cycles in there)}"
    )


def _shards(cycles: Sequence[Recorded]) -> list[ShardCycles]:
    numbers: dict[str, list[int]] = {}
    for recorded in cycles:
        numbers.setdefault(recorded.cycle.shard, []).append(recorded.cycle.cycle)
    return [ShardCycles(shard, min(n), max(n)) for shard, n in sorted(numbers.items())]


def _range(first: int | None, last: int | None) -> str:
    if first == last:
        return str(first)
    return f"from {first} on" if last is None else f"from {first} to {last}"
