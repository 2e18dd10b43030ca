"""How far one partition of requests is done. Pure."""

from typing import NamedTuple

from kai_es.ports.eventlog import Mark, Position


class Recovered(NamedTuple):
    """Where a partition stood when its binder began.

    start:       first request that was read.
    end:         end of the requests.
    results:     first result that was read.
    results_end: end of the results.
    """

    start: Position
    end: Position
    results: Position
    results_end: Position


class Progress:
    """Positions of requests without a final result, oldest first.

    A restart begins at the oldest of them, and needs the results from where they stood when that
    one was first read: all later requests have theirs behind it. For a request that was there when
    this binder began that is where this binder itself began to read results.
    """

    def __init__(self, recovered: Recovered) -> None:
        self._recovered = recovered
        self._results = recovered.results_end
        self._next = recovered.start
        self._open: dict[Position, Position] = {}

    def read(self, position: Position) -> None:
        """A request at `position` was read and is open."""
        self._open[position] = self._results_from(position)
        self._next = Position(position + 1)

    def skipped(self, position: Position) -> None:
        """What stands at `position` needs nothing."""
        self._next = Position(position + 1)

    def published(self, position: Position) -> None:
        """A result stands at `position` of the results."""
        self._results = max(self._results, Position(position + 1))

    def done(self, position: Position) -> None:
        """The request at `position` has its final result."""
        del self._open[position]

    def n_open(self) -> int:
        """Requests without a final result."""
        return len(self._open)

    def mark(self) -> Mark:
        """Where a restart has to begin."""
        for position, results in self._open.items():
            return Mark(position, str(results))
        return Mark(self._next, str(self._results_from(self._next)))

    def _results_from(self, position: Position) -> Position:
        recovered = self._recovered
        return recovered.results if position < recovered.end else self._results
