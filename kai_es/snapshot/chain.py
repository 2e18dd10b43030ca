"""Which batches of `snapshot` are history: the accept rule, and the cursors it carries."""

import enum
from collections.abc import Mapping
from typing import Protocol

from kai_es.events.snapshot import Cursor
from kai_es.snapshot.errors import BrokenHistoryError

Part = tuple[str, int]
"""A source topic and one of its partitions."""


class Head(Protocol):
    """What the rule looks at; `Batch` and `BatchHead` are heads."""

    @property
    def prev(self) -> int:
        """Offset of the accepted batch that this one continues, −1 at first."""

    @property
    def time(self) -> int:
        """The log's clock, ms."""

    @property
    def cursors(self) -> tuple[Cursor, ...]:
        """Positions of all source partitions that the batch covers."""


class Verdict(enum.Enum):
    """What a reader does with a batch.

    ACCEPT: it continues the history; fold it.
    REJECT: another batch continued the history before; skip it whole and count it.
    MISSED: it continues a batch that this reader has not seen; seek back to the own offset + 1.
    """

    ACCEPT = "accept"
    REJECT = "reject"
    MISSED = "missed"


class Chain:
    """The accepted batches as far as a reader has come.

    offset:  last accepted batch, −1 before the first.
    time:    of that batch, ms.
    cursors: next position per source partition; empty before the first batch.
    n_rejected: batches skipped, for metrics; not part of the state.
    """

    __slots__ = ("cursors", "n_rejected", "offset", "time")

    def __init__(
        self, *, offset: int = -1, time: int = 0, cursors: Mapping[Part, int] | None = None
    ) -> None:
        self.offset = offset
        self.time = time
        self.cursors: dict[Part, int] = dict(cursors or {})
        self.n_rejected = 0

    def judge(self, head: Head) -> Verdict:
        """Whether a batch continues the history. Counts what it rejects."""
        if head.prev == self.offset:
            return Verdict.ACCEPT
        if head.prev < self.offset:
            self.n_rejected += 1
            return Verdict.REJECT
        return Verdict.MISSED

    def accept(self, offset: int, head: Head) -> None:
        """Step to a batch that was judged ACCEPT.

        Raises:
            BrokenHistoryError: cursors do not join, or the time falls.
        """
        assert head.prev == self.offset, f"batch {offset} was not judged"
        assert offset > self.offset, f"batch {offset} after {self.offset}"
        if head.time < self.time:
            raise BrokenHistoryError(
                f"snapshot {offset}: time {head.time} is before {self.time} of batch {self.offset}"
            )
        known = self.cursors
        stops: dict[Part, int] = {}
        for cursor in head.cursors:
            part = (cursor.topic, cursor.partition)
            expected = known.get(part, cursor.start)
            if cursor.start != expected or cursor.stop < cursor.start:
                raise BrokenHistoryError(
                    f"snapshot {offset}: covers {part[0]}/{part[1]} [{cursor.start}, "
                    f"{cursor.stop}), expected from {expected}"
                )
            stops[part] = cursor.stop
        if known and stops.keys() != known.keys():
            other = sorted(stops.keys() ^ known.keys())
            raise BrokenHistoryError(f"snapshot {offset}: other source partitions than {other}")
        self.offset = offset
        self.time = head.time
        self.cursors = stops
