"""Whether the log can be used: looked at all the time, whatever the parts are doing.

A part that starts while the log is away would end and start again for ever, and say nothing
between. So parts start once the log was seen in order, and `/readyz` says what is wrong until then
and later.
"""

from typing import Final

from kai_es.events.catalogue import TOPICS
from kai_es.ports.clock import Clock
from kai_es.ports.errors import UnavailableError
from kai_es.ports.eventlog import ReadableLog

LOOK_S: Final = 5.0
AGAIN_S: Final = 1.0
"""While something is wrong, so that work goes on soon after it is mended."""


class LogHealth:
    """Asks for every topic's beginning, which every partition's leader must answer.

    trouble: what the log said last, "" = it is in order.
    """

    def __init__(self, log: ReadableLog, clock: Clock) -> None:
        self.trouble = "not looked at yet"
        self._log = log
        self._clock = clock

    async def in_order(self) -> None:
        """Return once the log was seen in order.

        Raises:
            CorruptLogError: waiting mends nothing.
        """
        while await self._look():
            await self._clock.sleep(AGAIN_S)

    async def run(self) -> None:
        """Look until cancelled. Raises as `in_order`."""
        while True:
            await self._clock.sleep(AGAIN_S if await self._look() else LOOK_S)

    async def _look(self) -> str:
        try:
            for topic in TOPICS:
                await self._log.begin(topic)
        except UnavailableError as exc:
            self.trouble = str(exc)
        else:
            self.trouble = ""
        return self.trouble
