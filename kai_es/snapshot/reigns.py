"""Reigns and cycles of every shard: only the latest leader's, densely numbered."""

import msgspec

from kai_es.events.decisions import Cycle, Gate, GateChange, Reason, Reign, ReignEnd, Verdict
from kai_es.snapshot.errors import BrokenHistoryError

NEVER_GATED = Gate(verdict=Verdict.CLOSED, reasons=("no-cycle-yet",))


class Introduced(msgspec.Struct, frozen=True, array_like=True):
    """Reasons of one pod group, and the cycle that introduced them."""

    cycle: int
    reasons: tuple[Reason, ...]


class Shard(msgspec.Struct, kw_only=True, omit_defaults=True, tag="shard"):
    """What the log says of one scheduler shard.

    epoch:      of the latest Reign; `is_reigning` False after its ReignEnd.
    next_cycle: number that the next cycle must have.
    now_ms, input_offset, digest, resume: of the last cycle; 0, −1, "" before the first.
    gate:       verdict last recorded.
    """

    name: str
    epoch: int
    is_reigning: bool = True
    next_cycle: int = 1
    now_ms: int = 0
    input_offset: int = -1
    digest: str = ""
    resume: str = ""
    gate: Gate = NEVER_GATED


class Reigns:
    """Shards by name, and the reasons that hold per shard and pod group."""

    __slots__ = ("reasons", "shards")

    def __init__(self) -> None:
        self.shards: dict[str, Shard] = {}
        self.reasons: dict[str, dict[str, Introduced]] = {}

    def last_cycle(self, shard: str) -> int:
        """Number of the last cycle folded, 0 = none."""
        known = self.shards.get(shard)
        return known.next_cycle - 1 if known is not None else 0

    def fold_reign(self, row: Reign) -> None:
        """A leader starts.

        Raises:
            BrokenHistoryError: its epoch is not above the last, or its cycles would not be dense.
        """
        known = self.shards.get(row.shard)
        epoch, next_cycle = (known.epoch, known.next_cycle) if known is not None else (0, 1)
        if row.epoch <= epoch or row.first_cycle != next_cycle:
            raise BrokenHistoryError(
                f"shard {row.shard}: reign {row.epoch} from cycle {row.first_cycle}, expected an "
                f"epoch above {epoch} and cycle {next_cycle}"
            )
        if known is None:
            self.shards[row.shard] = Shard(name=row.shard, epoch=row.epoch)
            self.reasons[row.shard] = {}
        else:
            known.epoch, known.is_reigning = row.epoch, True

    def fold_end(self, row: ReignEnd) -> None:
        """A leader stops by itself.

        Raises:
            BrokenHistoryError: it does not reign.
        """
        self._reigning(row.shard, row.epoch, "end of reign").is_reigning = False

    def fold_gate(self, row: GateChange) -> None:
        """The verdict changed between cycles.

        Raises:
            BrokenHistoryError: its writer does not reign.
        """
        self._reigning(row.shard, row.epoch, "gate change").gate = row.gate

    def fold_cycle(self, row: Cycle) -> None:
        """A cycle ran.

        Raises:
            BrokenHistoryError: its epoch is not the latest reign's, its number not the next, or it
                refers to reasons that do not hold.
        """
        shard = self._reigning(row.shard, row.epoch, f"cycle {row.cycle}")
        if row.cycle != shard.next_cycle:
            raise BrokenHistoryError(
                f"shard {row.shard}: cycle {row.cycle} follows {shard.next_cycle - 1}"
            )
        if row.inputs.now_ms < shard.now_ms:
            raise BrokenHistoryError(
                f"shard {row.shard}: cycle {row.cycle} at {row.inputs.now_ms} ms, the one before "
                f"at {shard.now_ms} ms"
            )
        self.reasons[row.shard] = self._reasons(row)
        shard.next_cycle = row.cycle + 1
        shard.now_ms = row.inputs.now_ms
        shard.input_offset = row.offset
        shard.digest = row.digest
        shard.resume = row.decision.resume
        shard.gate = row.inputs.gate

    def _reigning(self, shard: str, epoch: int, what: str) -> Shard:
        known = self.shards.get(shard)
        if known is None or not known.is_reigning or known.epoch != epoch:
            latest = known.epoch if known is not None and known.is_reigning else "nobody"
            raise BrokenHistoryError(f"shard {shard}: {what} of epoch {epoch}, but {latest} reigns")
        return known

    def _reasons(self, row: Cycle) -> dict[str, Introduced]:
        """All reasons that hold after a cycle: those it introduced and those it refers to."""
        before = self.reasons[row.shard]
        now = {uid: Introduced(row.cycle, r) for uid, r in row.decision.reasons.items()}
        for uid, cycle in row.reasons_same.items():
            held = before.get(uid)
            if held is None or held.cycle != cycle:
                raise BrokenHistoryError(
                    f"shard {row.shard}: cycle {row.cycle} refers to reasons of pod group {uid} "
                    f"from cycle {cycle}, which do not hold"
                )
            now[uid] = held
        return now
