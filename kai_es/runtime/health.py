"""Whether a server can be used: asked all the time, whatever the parts are doing.

A part that starts while the log is away would end and start again for ever, and say nothing
between; one that has nothing to write would not notice that its database is gone. So parts start
once the log was seen in order, and `/readyz` says what is wrong until then and later.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from sqlalchemy import Engine

from kai_es.events.catalogue import TOPICS
from kai_es.ports.clock import Clock
from kai_es.ports.errors import UnavailableError
from kai_es.ports.eventlog import ReadableLog
from kai_es.storage.look import look

LOOK_S: Final = 5.0
AGAIN_S: Final = 1.0
"""While something is wrong, so that work goes on soon after it is mended."""

ANSWER_S: Final = 5.0
"""A database that is stopped accepts connections and says nothing."""

Ask = Callable[[], Awaitable[None]]
"""Raises UnavailableError, which says what is wrong; any other error ends the process."""


class Health:
    """Asks a server again and again.

    trouble: what it said last, "" = it is in order.
    """

    def __init__(self, ask: Ask, clock: Clock) -> None:
        self.trouble = "not looked at yet"
        self._ask = ask
        self._clock = clock

    async def in_order(self) -> None:
        """Return once the server was seen in order.

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
            await self._ask()
        except UnavailableError as exc:
            self.trouble = str(exc)
        else:
            self.trouble = ""
        return self.trouble


def asks_log(log: ReadableLog) -> Ask:
    """Asks for every topic's beginning, which every partition's leader must answer."""

    async def ask() -> None:
        for topic in TOPICS:
            await log.begin(topic)

    return ask


def asks_database(engine: Engine) -> Ask:
    """Asks whether the books could be written now; one question at a time, if it hangs."""
    asking: list[asyncio.Future[None]] = []

    async def ask() -> None:
        if not asking:
            asking.append(asyncio.ensure_future(asyncio.to_thread(look, engine)))
        done, _ = await asyncio.wait(asking, timeout=ANSWER_S)
        if not done:
            raise UnavailableError(
                f"looking at the database: no answer in {ANSWER_S:.0f} s; it or its machine hangs"
            )
        asking.pop().result()

    return ask
