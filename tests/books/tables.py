"""The usage tables as dicts: what a store makes of `UsageRows`, without SQL."""

import itertools
from typing import NamedTuple

from projectors.facts import BOOKED
from projectors.usage import Stored

OPEN = 2**62


class Interval(NamedTuple):
    start: int
    end: int
    start_offset: int
    end_offset: int | None
    uncertain: int
    value: object


class Tables:
    """One dict per table: (key, start, start offset) -> Interval."""

    NAMES = ("allocations", "requests", "capacities", "nodes", "queues")

    def __init__(self):
        self.tables = {name: {} for name in self.NAMES}

    def write(self, rows):
        for name, changes in zip(self.NAMES, rows, strict=True):
            table = self.tables[name]
            for row in changes.closed:
                (at,) = (k for k, i in table.items() if k[0] == row.key and i.end == OPEN)
                old = table[at]
                assert old.start == row.start_ms, row
                assert row.value == old.value, row
                table[at] = old._replace(
                    end=row.end_ms,
                    end_offset=row.end_offset,
                    uncertain=old.uncertain | row.uncertain,
                )
            for row in changes.opened:
                assert (row.key, row.start_ms, row.start_offset) not in table, row
                table[row.key, row.start_ms, row.start_offset] = Interval(
                    start=row.start_ms,
                    end=OPEN if row.end_ms is None else row.end_ms,
                    start_offset=row.start_offset,
                    end_offset=row.end_offset,
                    uncertain=row.uncertain,
                    value=row.value,
                )

    def stored(self):
        return Stored(
            *(
                {k: (i.start, i.start_offset) for (k, *_), i in table.items() if i.end == OPEN}
                for table in self.tables.values()
            )
        )

    def rewind(self, offset):
        for table in self.tables.values():
            for key, row in list(table.items()):
                if row.start_offset > offset:
                    del table[key]
                elif row.end_offset is not None and row.end_offset > offset:
                    table[key] = row._replace(
                        end=OPEN, end_offset=None, uncertain=row.uncertain & 1
                    )

    def check(self):
        """Intervals of a key never overlap or end before they start; nobody waits and runs."""
        for table in self.tables.values():
            last = {}
            for (key, *_), row in sorted(table.items()):
                assert row.end >= row.start, (key, row)
                assert row.start >= last.get(key, 0), (key, row)
                last[key] = row.end
        spans = {}
        for name in ("allocations", "requests"):
            for (key, *_), row in self.tables[name].items():
                spans.setdefault(key, []).append((row.start, row.end))
        for key, found in spans.items():
            found.sort()
            for (_, end), (start, _) in itertools.pairwise(found):
                assert start >= end, (key, found)

    def held(self, until):
        """amount × ms by (pod uid, node, resource, queue path) up to a time."""
        return self._sum("allocations", until, lambda key, v: (key, v.node, v.belongs.queue_path))

    def waited(self, until):
        return self._sum("requests", until, lambda key, v: (key, v.belongs.queue_path))

    def offered(self, until):
        return self._sum("capacities", until, lambda key, v: (key, v.state))

    def _sum(self, name, until, group):
        sums = {}
        for (key, *_), row in self.tables[name].items():
            ms = min(row.end, until) - row.start
            for resource, amount in zip(BOOKED, row.value.amounts, strict=True):
                if amount and ms:
                    where = (*group(key, row.value), resource)
                    sums[where] = sums.get(where, 0) + amount * ms
        return sums
