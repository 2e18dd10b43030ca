"""Run-length encoding of a value over time: from changes of a value to intervals of it.

What the books keep is for how long something was so. `Runs.set` takes "from this moment on the
value of this key is …" and yields intervals [start, end), opened or closed. A value that another
row of the same batch replaces at once leaves none. Two batches may have one time; what began with
the first and ended with the second is an interval without length, so that a rebuild from between
them finds it.
"""

from collections.abc import Iterator, Mapping
from typing import Final, Generic, NamedTuple, TypeVar

UNCERTAIN_START: Final = 1
"""Bit of `uncertain`: the start lies in a gap at a time that no `Alive` covers."""
UNCERTAIN_END: Final = 2

V = TypeVar("V")


class Moment(NamedTuple):
    """When a row counts. `offset`: snapshot offset of its batch."""

    time_ms: int
    offset: int
    uncertain: bool = False


class Opened(NamedTuple, Generic[V]):
    """An interval to be inserted; `end_ms` None = it is still open."""

    key: str
    start_ms: int
    start_offset: int
    end_ms: int | None
    end_offset: int | None
    uncertain: int
    value: V


class Closed(NamedTuple, Generic[V]):
    """A stored open interval ends. `uncertain`: bits to be set in addition.

    value: what held, None = not known (the interval was stored by mistake).
    """

    key: str
    start_ms: int
    end_ms: int
    end_offset: int
    uncertain: int
    value: V | None


class RunRows(NamedTuple, Generic[V]):
    """Changes of one table since the last `take`; `closed` must be applied first."""

    closed: tuple[Closed[V], ...]
    opened: tuple[Opened[V], ...]

    def __len__(self) -> int:
        """Rows to be written."""
        return len(self.closed) + len(self.opened)

    def first_ms(self) -> int | None:
        """Earliest time from which anything is other than before; None = nothing changed."""
        times = [row.end_ms for row in self.closed]
        times += [row.start_ms for row in self.opened]
        return min(times, default=None)


class _Run(Generic[V]):
    __slots__ = ("offset", "start_ms", "stored", "uncertain", "value")

    def __init__(
        self, start_ms: int, offset: int, uncertain: int, value: V, *, stored: bool
    ) -> None:
        self.start_ms = start_ms
        self.offset = offset
        self.uncertain = uncertain
        self.value = value
        self.stored = stored


class Runs(Generic[V]):
    """The open interval of each key, and the changes since the last `take`."""

    def __init__(self) -> None:
        self._open: dict[str, _Run[V]] = {}
        self._fresh: dict[str, None] = {}
        self._closed: list[Closed[V]] = []
        self._done: list[Opened[V]] = []

    def __len__(self) -> int:
        """Changes that `take` would return."""
        return len(self._closed) + len(self._done) + len(self._fresh)

    def set(self, key: str, value: V | None, at: Moment) -> None:
        """From `at` on the value of `key` is this; None = nothing. Times of a key must not fall."""
        run = self._open.get(key)
        if run is None:
            if value is not None:
                self._begin(key, value, at)
            return
        if run.value == value:
            return
        self._end(key, run, at)
        if value is not None:
            self._begin(key, value, at)

    def value(self, key: str) -> V | None:
        """The present value of a key."""
        run = self._open.get(key)
        return run.value if run is not None else None

    def keys(self) -> Iterator[str]:
        """Keys that have a value."""
        return iter(self._open)

    def align(self, stored: Mapping[str, tuple[int, int]], at: Moment) -> None:
        """Make the open intervals those that are stored: key -> (start in ms, start offset).

        A value without a stored interval keeps its own start and will be inserted; a stored
        interval without a value will be closed at `at`.
        """
        for key, (start_ms, offset) in stored.items():
            run = self._open.get(key)
            if run is None:
                self._closed.append(
                    Closed(key, start_ms, max(at.time_ms, start_ms + 1), at.offset, 0, None)
                )
                continue
            run.start_ms, run.offset, run.stored = start_ms, offset, True
            self._fresh.pop(key, None)

    def take(self) -> RunRows[V]:
        """The changes since the last call."""
        opened = self._done
        for key in self._fresh:
            run = self._open[key]
            opened.append(
                Opened(key, run.start_ms, run.offset, None, None, run.uncertain, run.value)
            )
            run.stored = True
        rows = RunRows(tuple(self._closed), tuple(opened))
        self._closed, self._done, self._fresh = [], [], {}
        return rows

    def _begin(self, key: str, value: V, at: Moment) -> None:
        uncertain = UNCERTAIN_START if at.uncertain else 0
        self._open[key] = _Run(at.time_ms, at.offset, uncertain, value, stored=False)
        self._fresh[key] = None

    def _end(self, key: str, run: _Run[V], at: Moment) -> None:
        assert at.time_ms >= run.start_ms, f"{key}: {at} is before {run.start_ms}"
        del self._open[key]
        self._fresh.pop(key, None)
        uncertain = UNCERTAIN_END if at.uncertain else 0
        if (at.time_ms, at.offset) == (run.start_ms, run.offset):
            assert not run.stored, f"{key}: stored within its batch"
        elif run.stored:
            self._closed.append(
                Closed(key, run.start_ms, at.time_ms, at.offset, uncertain, run.value)
            )
        else:
            self._done.append(
                Opened(
                    key,
                    run.start_ms,
                    run.offset,
                    at.time_ms,
                    at.offset,
                    run.uncertain | uncertain,
                    run.value,
                )
            )
