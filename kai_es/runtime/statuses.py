"""The status writer as a part: first it finds where to take up the history, then it runs."""

from collections.abc import Callable, Iterable

from kai_es.ports.clock import Clock
from kai_es.ports.eventlog import JOINS, EventLog
from kai_es.ports.stores import CheckpointStore
from kai_es.reader import View
from kai_es.runtime.part import Gauges, Part
from kai_es.runtime.scheduling import find_world
from kai_es.status.metrics import QueueMetrics, QueueNow
from kai_es.status.service import StatusWriter


class StatusPart:
    """Runs a status writer from the nearest world.

    Args:
        log: where `snapshot` is.
        clock: for waiting.
        checkpoints: None = there are none.
        make: a view on the world -> the status writer that goes on from there.
    """

    def __init__(
        self,
        log: EventLog,
        clock: Clock,
        *,
        checkpoints: CheckpointStore | None,
        make: Callable[[View], StatusWriter],
    ) -> None:
        self._log = log
        self._clock = clock
        self._checkpoints = checkpoints
        self._make = make
        self._trouble = ""
        self._writer: StatusWriter | None = None

    def part(self) -> Part:
        """For a process."""
        return Part(
            name="status",
            run=self.run,
            ready=self.problems,
            gauges=self._gauges(),
            collectors=[QueueMetrics(self._queues)],
        )

    async def run(self) -> None:
        """Find a history, then write statuses. Raises as `StatusWriter.run`."""
        world = await find_world(self._log, self._checkpoints, self._clock, self._say)
        self._writer = self._make(View(self._log, self._clock, world))
        await self._writer.run()

    def problems(self) -> list[str]:
        """Why it does not do its work."""
        texts = (self._trouble, self._writer.trouble() if self._writer is not None else JOINS)
        return [text for text in texts if text]

    def _say(self, trouble: str) -> None:
        self._trouble = trouble

    def _queues(self) -> Iterable[QueueNow]:
        return self._writer.queues_now() if self._writer is not None else ()

    def _gauges(self) -> Gauges:
        def leading() -> float:
            return float(self._writer is not None and self._writer.leads())

        def lag_s() -> float:
            return self._writer.lag_s() if self._writer is not None else 0.0

        return {
            "leading": ("1 = at work, 0 = standby", leading),
            "lag_seconds": ("How long the most overdue status is overdue", lag_s),
        }
