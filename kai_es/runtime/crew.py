"""Runs the parts of a process together: one ends, all end; a stop drains them in order."""

import asyncio
import logging
from collections.abc import Iterable, Sequence

from kai_es.runtime.part import STOP_S, Part

logger = logging.getLogger(__name__)


class PartEndedError(Exception):
    """A part ended without being told to."""


async def run_crew(parts: Sequence[Part], stop: asyncio.Event) -> None:
    """Run until `stop` is set, then stop the parts one after another, in the given order.

    Raises:
        PartEndedError: a part ended by itself.
        Exception: what a part raised; the others are cancelled.
    """
    tasks = {part.name: asyncio.create_task(_run(part), name=part.name) for part in parts}
    stopping = asyncio.create_task(stop.wait())
    try:
        done, _ = await asyncio.wait(
            (*tasks.values(), stopping), return_when=asyncio.FIRST_COMPLETED
        )
        for task in done - {stopping}:
            task.result()
            raise PartEndedError(f"{task.get_name()} ended without being told to")
        for group in _in_order(parts):
            await asyncio.gather(*(_stop(part, tasks[part.name]) for part in group))
    finally:
        stopping.cancel()
        await _end(tasks.values())
        await asyncio.gather(*tasks.values(), stopping, return_exceptions=True)


def _in_order(parts: Sequence[Part]) -> list[list[Part]]:
    groups: list[list[Part]] = []
    for part in parts:
        if part.beside and groups:
            groups[-1].append(part)
        else:
            groups.append([part])
    return groups


async def _run(part: Part) -> None:
    await part.run()


async def _stop(part: Part, task: asyncio.Task[None]) -> None:
    if part.stop is None:
        task.cancel()
    else:
        part.stop()
    done, _ = await asyncio.wait((task,), timeout=STOP_S)
    if not done:
        logger.warning("part does not stop, cancelled", extra={"part": part.name})
        await _end((task,))
    if not task.cancelled():
        task.result()


async def _end(tasks: Iterable[asyncio.Task[None]]) -> None:
    """Cancel tasks until they have ended: what a library makes of a cancellation, nobody knows.

    A process of which one part goes on after the others ended would be half dead for ever.
    """
    left = {task for task in tasks if not task.done()}
    while left:
        for task in left:
            task.cancel()
        _, left = await asyncio.wait(left, timeout=STOP_S)
        for task in left:
            logger.warning("part does not end, cancelled again", extra={"part": task.get_name()})
