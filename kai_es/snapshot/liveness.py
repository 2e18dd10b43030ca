"""What the log says of the informers: which kinds are listed, and how fresh everything is."""

from collections.abc import Iterable

from kai_es.events.snapshot import AliveSeen, KindListed


class Liveness:
    """Newest `Listed` per kind and partition, newest `Alive` per partition.

    incarnation: the highest that any row named.
    """

    __slots__ = ("alive", "incarnation", "listed")

    def __init__(self) -> None:
        self.incarnation = 0
        self.listed: dict[tuple[str, int], KindListed] = {}
        self.alive: dict[int, AliveSeen] = {}

    def fold_listed(self, row: KindListed) -> None:
        """Fold a `Listed` mark; the highest (incarnation, rv) stays."""
        key = (row.kind, row.partition)
        known = self.listed.get(key)
        if known is None or (known.incarnation, known.rv) <= (row.incarnation, row.rv):
            self.listed[key] = row

    def fold_alive(self, row: AliveSeen) -> None:
        """Fold an `Alive` mark; the latest of the highest incarnation stays."""
        known = self.alive.get(row.partition)
        if known is None or (known.incarnation, known.time) <= (row.incarnation, row.time):
            self.alive[row.partition] = row

    def is_listed(self, kind: str, partitions: Iterable[int]) -> bool:
        """Whether all of a kind that exists in this incarnation has been seen."""
        rows = (self.listed.get((kind, partition)) for partition in partitions)
        return all(row is not None and row.incarnation == self.incarnation for row in rows)

    def is_served(self, kind: str) -> bool:
        """Whether the API server knows the kind, as far as this incarnation's lists tell."""
        rows = (row for row in self.listed.values() if row.kind == kind)
        return all(row.served for row in rows if row.incarnation == self.incarnation)

    def alive_ms(self, partitions: Iterable[int]) -> int:
        """Newest `Alive` of the partition that is furthest behind, ms, 0 = one has none."""
        rows = [self.alive.get(partition) for partition in partitions]
        return min((row.time if row is not None else 0 for row in rows), default=0)

    def watched_ms(self, kind: str) -> int:
        """Last sign of life of a kind's watch, ms, 0 = none in this incarnation."""
        return max(
            (
                mark.seen_ms
                for row in self.alive.values()
                if row.incarnation == self.incarnation
                for mark in row.kinds
                if mark.kind == kind
            ),
            default=0,
        )
