"""What the log says of the informers: which kinds are listed, and how fresh everything is."""

from collections.abc import Iterable

from kai_es.events.snapshot import AliveSeen, KindListed


class Liveness:
    """Newest `Listed` per kind and partition, newest `Alive` per partition.

    incarnation: the highest that any row named.
    risen:       offset of the first batch that named it, −1 = none named a lower one.
    """

    __slots__ = (
        "_by_kind",
        "_listed",
        "_served",
        "_watched",
        "alive",
        "incarnation",
        "listed",
        "risen",
    )

    def __init__(self) -> None:
        self.incarnation = 0
        self.risen = -1
        self.listed: dict[tuple[str, int], KindListed] = {}
        self.alive: dict[int, AliveSeen] = {}
        self._by_kind: dict[str, dict[int, KindListed]] = {}
        # Answers as of an incarnation, kept until a row changes them: each batch and each look of
        # the gate asks.
        self._listed: dict[tuple[str, int], frozenset[int]] = {}
        self._served: dict[tuple[str, int], bool] = {}
        self._watched: tuple[int, dict[str, int]] | None = None

    def see(self, incarnation: int, *, offset: int) -> None:
        """A row of a batch names an incarnation."""
        if incarnation > self.incarnation:
            self.risen = offset if self.incarnation else -1
            self.incarnation = incarnation

    def seen_at(self, offset: int) -> int:
        """Incarnation that a reader at an offset knew; of all former ones the last."""
        return self.incarnation if offset >= self.risen else self.incarnation - 1

    def fold_listed(self, row: KindListed) -> None:
        """Fold a `Listed` mark; the highest (incarnation, rv) stays."""
        key = (row.kind, row.partition)
        known = self.listed.get(key)
        if known is None or (known.incarnation, known.rv) <= (row.incarnation, row.rv):
            self.listed[key] = row
            self._by_kind.setdefault(row.kind, {})[row.partition] = row
            self._listed.clear()
            self._served.clear()

    def fold_alive(self, row: AliveSeen) -> None:
        """Fold an `Alive` mark; the latest of the highest incarnation stays."""
        known = self.alive.get(row.partition)
        if known is None or (known.incarnation, known.time) <= (row.incarnation, row.time):
            self.alive[row.partition] = row
            self._watched = None

    def is_listed(self, kind: str, partitions: Iterable[int]) -> bool:
        """Whether all of a kind that exists in this incarnation has been seen."""
        key = (kind, self.incarnation)
        if key not in self._listed:
            rows = self._by_kind.get(kind, {}).values()
            here = (row.partition for row in rows if row.incarnation == self.incarnation)
            self._listed[key] = frozenset(here)
        return self._listed[key].issuperset(partitions)

    def is_served(self, kind: str) -> bool:
        """Whether the API server knows the kind, as far as this incarnation's lists tell."""
        key = (kind, self.incarnation)
        if key not in self._served:
            rows = self._by_kind.get(kind, {}).values()
            here = (row.served for row in rows if row.incarnation == self.incarnation)
            self._served[key] = all(here)
        return self._served[key]

    def alive_ms(self, partitions: Iterable[int]) -> int:
        """Newest `Alive` of the partition that is furthest behind, ms, 0 = one has none."""
        rows = [self.alive.get(partition) for partition in partitions]
        return min((row.time if row is not None else 0 for row in rows), default=0)

    def others(self) -> int:
        """Open bind requests of another scheduler, as last told in this incarnation."""
        rows = [row for row in self.alive.values() if row.incarnation == self.incarnation]
        newest = max((row.time for row in rows), default=0)
        return max((row.others for row in rows if row.time == newest), default=0)

    def watched_ms(self, kind: str) -> int:
        """Last sign of life of a kind's watch, ms, 0 = none in this incarnation."""
        if self._watched is None or self._watched[0] != self.incarnation:
            self._watched = self.incarnation, self._signs()
        return self._watched[1].get(kind, 0)

    def watched_everywhere_ms(self, kind: str) -> int:
        """As `watched_ms`, as told by the partition that is furthest behind."""
        signs = [
            max((mark.seen_ms for mark in row.kinds if mark.kind == kind), default=0)
            for row in self.alive.values()
            if row.incarnation == self.incarnation
        ]
        return min(signs) if len(signs) == len(self.alive) and signs else 0

    def _signs(self) -> dict[str, int]:
        """Last sign of life of every kind in this incarnation, ms."""
        signs: dict[str, int] = {}
        for row in self.alive.values():
            if row.incarnation == self.incarnation:
                for mark in row.kinds:
                    signs[mark.kind] = max(signs.get(mark.kind, 0), mark.seen_ms)
        return signs
