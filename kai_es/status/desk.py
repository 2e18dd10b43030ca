"""Things to be looked at again, each from a moment on and only once."""

import heapq
from collections import Counter
from collections.abc import Iterator
from typing import Final, NamedTuple

DUE_MAX: Final = 500
"""Things handed out at once; others of the process run in between."""


class Key(NamedTuple):
    """What is to be looked at: `Pod`, `PodGroup`, `Queue` with a uid, or work by name."""

    kind: str
    uid: str = ""


class Waiting(NamedTuple):
    """A thing that waits. `since_s`: from when on it has, postponed or not."""

    due_s: float
    since_s: float


class Desk:
    """What is to be done, by key; a later wish for the same changes nothing but may be sooner."""

    def __init__(self) -> None:
        self._waiting: dict[Key, Waiting] = {}
        self._counts: Counter[str] = Counter()
        self._heap: list[tuple[float, Key]] = []

    def __len__(self) -> int:
        return len(self._waiting)

    def n_of(self, kind: str) -> int:
        """Things of a kind that wait."""
        return self._counts[kind]

    def want(self, key: Key, now_s: float, delay_s: float) -> None:
        """Look at it in so many seconds, or sooner if that was wanted before."""
        known = self._waiting.get(key)
        due_s = now_s + delay_s
        if known is not None and known.due_s <= due_s:
            return
        self._put(key, Waiting(due_s, known.since_s if known is not None else now_s))

    def postpone(self, key: Key, waited: Waiting, now_s: float, delay_s: float) -> None:
        """It was handed out and is not ripe: hand it out again in so many seconds."""
        if key not in self._waiting:
            self._put(key, Waiting(now_s + delay_s, waited.since_s))

    def drop(self, key: Key) -> None:
        """It is of no interest any more."""
        if key in self._waiting:
            self._take(key)

    def due(self, now_s: float) -> Iterator[tuple[Key, Waiting]]:
        """Take what is due, the longest due first; at most `DUE_MAX`."""
        for _ in range(DUE_MAX):
            while self._heap and not self._is_current(*self._heap[0]):
                heapq.heappop(self._heap)
            if not self._heap or self._heap[0][0] > now_s:
                return
            _, key = heapq.heappop(self._heap)
            yield key, self._take(key)

    def oldest_s(self, now_s: float) -> float:
        """How long the most overdue thing is overdue."""
        due = min((one.due_s for one in self._waiting.values()), default=now_s)
        return max(now_s - due, 0.0)

    def _take(self, key: Key) -> Waiting:
        self._counts[key.kind] -= 1
        return self._waiting.pop(key)

    def _put(self, key: Key, waiting: Waiting) -> None:
        self._counts[key.kind] += key not in self._waiting
        self._waiting[key] = waiting
        heapq.heappush(self._heap, (waiting.due_s, key))

    def _is_current(self, due_s: float, key: Key) -> bool:
        known = self._waiting.get(key)
        return known is not None and known.due_s == due_s


class Allowance:
    """So many per second on average, and so many at once.

    Spending more than there is leaves a debt, which has to be made up for first.
    """

    def __init__(self, *, per_s: float, burst: float) -> None:
        self._per_s = per_s
        self._burst = burst
        self._left = burst
        self._at_s: float | None = None

    def has(self, now_s: float) -> bool:
        """Whether anything is left."""
        if self._at_s is not None:
            more = (now_s - self._at_s) * self._per_s
            self._left = min(self._left + more, self._burst)
        self._at_s = now_s
        return self._left >= 1

    def spend(self, amount: float) -> None:
        """Take so much."""
        self._left -= amount
