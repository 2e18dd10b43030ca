"""How far one partition of requests is done. Pure."""

from kai_es.ports.eventlog import Mark, Position


class Progress:
    """Positions of requests without a final result, oldest first.

    A restart begins at the oldest of them, and needs the results from where they stood when that
    one was read: all later requests have theirs behind it.

    Args:
        start: where reading begins.
        results: end of the results at that time.
    """

    def __init__(self, start: Position, results: Position) -> None:
        self.results = results
        self._next = start
        self._open: dict[Position, Position] = {}

    def read(self, position: Position) -> None:
        """A request at `position` was read and is open."""
        self._open[position] = self.results
        self._next = Position(position + 1)

    def skipped(self, position: Position) -> None:
        """What stands at `position` needs nothing."""
        self._next = Position(position + 1)

    def published(self, position: Position) -> None:
        """A result stands at `position` of the results."""
        self.results = max(self.results, Position(position + 1))

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
        return Mark(self._next, str(self.results))
