"""What is known of pod groups beyond their objects: marks, back-off, stamps of their pods."""

from collections.abc import Container
from typing import Final

import msgspec

from kai_es.events.decisions import Cycle, GroupMark, Reason
from kai_es.events.requests import AttemptFailed
from kai_es.kube.objects import Pod, PodGroup
from kai_es.snapshot.effective import GroupState

BACKOFF_FIRST_MS: Final = 5_000
BACKOFF_MAX_MS: Final = 10 * 60 * 1000
BACKOFF_STEPS: Final = 8
"""5 s · 2^7 = 640 s is the first step above the maximum; more failures make no difference."""

GROUP_NOT_SEEN: Final = "group-not-seen"
"""Why a group is held: its pods were grouped under a generation whose row is still to come."""


class Mark(msgspec.Struct, frozen=True, kw_only=True, tag="mark"):
    """Marks of a group by a cycle of ours; the latest cycle counts."""

    mark: GroupMark
    decided_ms: int
    shard: str
    cycle: int
    time_ms: int

    def order(self) -> tuple[int, str, int]:
        """Key by which marks of one group follow each other."""
        return (self.decided_ms, self.shard, self.cycle)


class Backoff(msgspec.Struct, frozen=True, kw_only=True):
    """Failed binds of a pod group for one reason.

    cycles: (shard, cycle) of the requests that failed, the newest `BACKOFF_STEPS` of them, sorted:
            all failures of one gang in one cycle are one step.
    not_before_ms: until then the group is left out.
    """

    cycles: tuple[tuple[int, str], ...]
    not_before_ms: int

    @property
    def attempts(self) -> int:
        """Steps taken, at most `BACKOFF_STEPS`."""
        return len(self.cycles)


def backoff_ms(attempts: int) -> int:
    """How long to leave a group alone after so many cycles with failures."""
    return min(BACKOFF_FIRST_MS << (attempts - 1), BACKOFF_MAX_MS)


class Standings:
    """Marks, back-off and stamps by pod-group uid. Groups need not be there (yet)."""

    __slots__ = ("backoff", "marks", "stamps")

    def __init__(self) -> None:
        self.marks: dict[str, Mark] = {}
        self.backoff: dict[str, dict[str, Backoff]] = {}
        self.stamps: dict[str, dict[int, int]] = {}

    def fold_mark(self, mark: GroupMark, *, cycle: Cycle, time_ms: int) -> bool:
        """Fold one mark of a cycle; returns whether it counts."""
        new = Mark(
            mark=mark,
            decided_ms=cycle.inputs.now_ms,
            shard=cycle.shard,
            cycle=cycle.cycle,
            time_ms=time_ms,
        )
        known = self.marks.get(mark.group_uid)
        if known is not None and known.order() >= new.order():
            return False
        self.marks[mark.group_uid] = new
        return True

    def fold_failure(self, result: AttemptFailed, *, shard: str, cycle: int, time_ms: int) -> bool:
        """Fold a final `failed` result; returns whether it is news.

        Args:
            result: with group and reason code.
            shard: of its request, as is `cycle`.
            cycle: all failures of one cycle are one step.
            time_ms: the log's time; an entry that expired `BACKOFF_MAX_MS` ago starts anew.
        """
        entries = self.backoff.setdefault(result.group_uid, {})
        known = entries.get(result.code)
        former: tuple[tuple[int, str], ...] = ()
        not_before = 0
        if known is not None and time_ms <= known.not_before_ms + BACKOFF_MAX_MS:
            former, not_before = known.cycles, known.not_before_ms
        if (cycle, shard) in former:
            return False
        cycles = tuple(sorted({*former, (cycle, shard)}))[-BACKOFF_STEPS:]
        until = time_ms + backoff_ms(len(cycles))
        entries[result.code] = Backoff(cycles=cycles, not_before_ms=max(not_before, until))
        return True

    def stamp(self, pod: Pod, *, count: int) -> bool:
        """Add (+1) or take away (−1) a pod's stamp; returns whether it has one."""
        if not pod.group_uid:
            return False
        generations = self.stamps.setdefault(pod.group_uid, {})
        left = generations.get(pod.group_generation, 0) + count
        assert left >= 0, f"stamp of pod {pod.uid} was never counted"
        if left:
            generations[pod.group_generation] = left
        else:
            del generations[pod.group_generation]
            if not generations:
                del self.stamps[pod.group_uid]
        return True

    def drop(self, group_uid: str) -> None:
        """The group is gone. Stamps stay with their pods."""
        self.marks.pop(group_uid, None)
        self.backoff.pop(group_uid, None)

    def state(self, group: PodGroup) -> GroupState:
        """What a cycle is to know of a group."""
        known = self.marks.get(group.uid)
        mark: GroupMark | PodGroup = known.mark if known is not None else group
        return GroupState(
            stale_since_ms=mark.stale_since_ms,
            last_start_ms=mark.last_start_ms,
            last_eviction_ms=mark.last_eviction_ms,
            room_made_ms=0 if known is None else known.mark.room_made_ms,
            held=self._held(group),
            backoff=tuple(
                (code, entry.not_before_ms, entry.attempts)
                for code, entry in sorted(self.backoff.get(group.uid, {}).items())
            ),
        )

    def sweep(self, *, time_ms: int, keep_ms: int, is_live: Container[str]) -> set[str]:
        """Forget what can have no effect any more; returns uids of groups that changed.

        Args:
            time_ms: the log's time.
            keep_ms: marks of groups without a row are kept that long.
            is_live: uids of groups that have a row.
        """
        changed = set()
        for uid in [u for u in self.marks if u not in is_live]:
            if self.marks[uid].time_ms + keep_ms < time_ms:
                del self.marks[uid]
        for uid, entries in list(self.backoff.items()):
            for code in [c for c, e in entries.items() if _expired(e, time_ms)]:
                del entries[code]
                changed.add(uid)
            if not entries:
                del self.backoff[uid]
        return changed

    def _held(self, group: PodGroup) -> Reason | None:
        stamped = max(self.stamps.get(group.uid, ()), default=0)
        if stamped <= group.generation:
            return None
        return Reason(
            code=GROUP_NOT_SEEN, args={"stamped": stamped, "generation": group.generation}
        )


def _expired(entry: Backoff, time_ms: int) -> bool:
    return entry.not_before_ms + BACKOFF_MAX_MS < time_ms
