"""Invariants 19 and 20: the books add up, and they say what really happened."""

from itertools import pairwise

from kai_es.snapshot.observed import observed_ms
from projectors.facts import BOOKED

BUCKET_MS = 10_000
"""Worlds last a minute or two: several buckets each."""


def identity(books, until_ms):
    """What is wrong with allocated + idle + down = capacity × time + over, "" = nothing.

    Allocated and capacity × time are counted interval by interval; idle, down and over come from a
    sweep over the segments in which nothing changes. Per node, resource and bucket.
    """
    capacities = _by_node(books.tables["capacities"], lambda key, value: key)
    allocations = _by_node(books.tables["allocations"], lambda key, value: value.node)
    for node, capacity in sorted(capacities.items()):
        held = allocations.get(node, [])
        low = min(start for start, _, _ in capacity) // BUCKET_MS * BUCKET_MS
        for start in range(low, until_ms, BUCKET_MS):
            end = min(start + BUCKET_MS, until_ms)
            cut = _cut(capacity, start, end), _cut(held, start, end)
            for number, resource in enumerate(BOOKED):
                text = _bucket(*cut, number)
                if text:
                    return f"{node} {resource} [{start}, {end}): {text}"
    return ""


def _by_node(table, node_of):
    found = {}
    for (key, *_), row in table.items():
        found.setdefault(node_of(key, row.value), []).append((row.start, row.end, row.value))
    return found


def _cut(spans, start, end):
    cut = [(max(s, start), min(t, end), value) for s, t, value in spans]
    return [(s, t, value) for s, t, value in cut if t > s]


def _bucket(capacity, held, number):
    counted = sum((t - s) * value.amounts[number] for s, t, value in capacity)
    allocated = 0
    for s, t, value in held:
        for cs, ct, offered in capacity:
            if offered.state != "down":
                allocated += max(min(t, ct) - max(s, cs), 0) * value.amounts[number]
    idle = down = over = swept = 0
    points = sorted({p for s, t, _ in (*capacity, *held) for p in (s, t)})
    for s, t in pairwise(points):
        offers = [value for cs, ct, value in capacity if cs <= s < ct]
        if not offers:
            continue
        if len(offers) > 1:
            return f"{len(offers)} capacities at once at {s}"
        amount, state = offers[0].amounts[number], offers[0].state
        used = sum(value.amounts[number] for hs, ht, value in held if hs <= s < ht)
        free = max(amount - used, 0) * (t - s)
        if state == "down":
            down += amount * (t - s)
            continue
        swept += used * (t - s)
        over += max(used - amount, 0) * (t - s)
        idle, down = (idle + free, down) if state == "up" else (idle, down + free)
    if allocated != swept or allocated + idle + down != counted + over:
        return (
            f"allocated {allocated} (swept {swept}) + idle {idle} + down {down} is not "
            f"capacity x time {counted} + over {over}"
        )
    return ""


class TrueUse:
    """Who held what, from the API server's own changes and the time at which the log shows them.

    A pod holds its node from the batch that shows the version in which it was bound, or a later
    one, to the batch that shows the one in which it ended, or a later one. The books must say
    exactly that, though they never saw the API server.
    """

    def __init__(self):
        self.bound = {}
        self.ended = {}
        self._starts = {}
        self._ends = {}

    def bound_at(self, uid, rv):
        """The API server has bound a pod with this version."""
        self.bound.setdefault(uid, rv)

    def ended_at(self, uid, rv):
        """The API server shows the pod as ended, or no more, from this version on."""
        self.ended.setdefault(uid, rv)

    def shown(self, uid, rv, *, prev_ms, batch, origin):
        """The log shows a version of a pod."""
        at = observed_ms(prev_time=prev_ms, time=batch.time, ingest_ms=origin.ingest_ms)
        if uid in self.bound and rv >= self.bound[uid]:
            self._starts.setdefault(uid, at)
        if uid in self.ended and rv >= self.ended[uid]:
            self._ends.setdefault(uid, at)

    def differences(self, books):
        """Pods of which the books tell another story, by uid, in words."""
        booked = {}
        for (uid, *_), row in books.tables["allocations"].items():
            start, end = booked.get(uid, (row.start, row.end))
            booked[uid] = min(start, row.start), max(end, row.end)
        for uid, start in sorted(self._starts.items()):
            end = self._ends.get(uid)
            if end is not None and end > start and booked.get(uid) != (start, end):
                yield f"pod {uid} held its node [{start}, {end}) ms, booked is {booked.get(uid)}"
        for uid in sorted(booked.keys() - self._starts.keys()):
            yield f"pod {uid} is booked, but was never bound"
