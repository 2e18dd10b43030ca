"""Whether a server can be used: asked all the time, whatever the parts are doing.

A part that starts while the log is away would end and start again for ever, and say nothing
between; one that has nothing to write would not notice that its database is gone. So parts start
once the log was seen in order, and `/readyz` says what is wrong until then and later.
"""

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Final

from sqlalchemy import Engine

from kai_es.events.catalogue import TOPICS
from kai_es.ports.clock import Clock
from kai_es.ports.errors import UnavailableError
from kai_es.ports.eventlog import ReadableLog
from kai_es.storage.look import look

LOOK_S: Final = 5.0
LOG_S: Final = 1.0
"""The log is asked for one topic at a time."""

AGAIN_S: Final = 1.0
"""While something is wrong, so that work goes on soon after it is mended."""

NAME_S: Final = 1.0
"""A client tries for several seconds before it says that its server is away."""

ANSWER_S: Final = 5.0
"""A database that is stopped accepts connections and says nothing."""

Ask = Callable[[], Coroutine[Any, Any, None]]
"""Raises UnavailableError, which says what is wrong; any other error ends the process."""


class Health:
    """Asks a server again and again.

    trouble: what it said last, "" = it is in order.

    Args:
        ask: the question.
        clock: for waiting.
        every_s: between questions while it is in order.
        unreachable: tells quickly if there is no server, "" = there is. It is asked only about a
            server that does not answer, so it can name a fault and not make one.
    """

    def __init__(
        self,
        ask: Ask,
        clock: Clock,
        *,
        every_s: float = LOOK_S,
        unreachable: Callable[[], Awaitable[str]] | None = None,
    ) -> None:
        self.trouble = "not looked at yet"
        self._ask = ask
        self._clock = clock
        self._every_s = every_s
        self._unreachable = unreachable

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
            await self._clock.sleep(AGAIN_S if await self._look() else self._every_s)

    async def _look(self) -> str:
        asking = asyncio.ensure_future(self._ask())
        try:
            done, _ = await asyncio.wait((asking,), timeout=NAME_S)
            named = "" if done else await self._named()
            if named and not asking.done():
                self.trouble = named
            await asking
        except UnavailableError as exc:
            self.trouble = await self._named() or str(exc)
        else:
            self.trouble = ""
        finally:
            asking.cancel()
        return self.trouble

    async def _named(self) -> str:
        return "" if self._unreachable is None else await self._unreachable()


def asks_log(log: ReadableLog) -> Ask:
    """Asks for topics' beginnings, which every partition's leader must answer.

    For all of them at first and after trouble; then for one after the other.
    """
    turns = itertools.cycle(TOPICS)
    due = list(TOPICS)

    async def ask() -> None:
        nonlocal due
        asked, due = due, list(TOPICS)
        for topic in asked:
            await log.begin(topic)
        due = [next(turns)]

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
