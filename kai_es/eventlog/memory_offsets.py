"""Consumers' marks in memory, for as long as the store of the log lives."""

from collections.abc import Mapping

from kai_es.ports.eventlog import Mark


class MemoryOffsets:
    """Offsets for tests and simulation."""

    def __init__(self) -> None:
        self._marks: dict[tuple[str, str], dict[int, Mark]] = {}

    async def load(self, consumer: str, topic: str) -> Mapping[int, Mark]:
        """See the port."""
        return dict(self._marks.get((consumer, topic), {}))

    async def store(self, consumer: str, topic: str, marks: Mapping[int, Mark]) -> None:
        """See the port."""
        self._marks.setdefault((consumer, topic), {}).update(marks)
