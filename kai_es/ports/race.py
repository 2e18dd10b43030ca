"""Several coroutines of which the first to end decides."""

import asyncio
from collections.abc import Coroutine
from typing import Any


async def race(*coroutines: Coroutine[Any, Any, Any]) -> int:
    """Run all until the first ends, then cancel the others and wait for them.

    Returns:
        Index of the one that ended; of several the first.

    Raises:
        The exception of the one that ended, if it has one.
    """
    tasks = [asyncio.ensure_future(coroutine) for coroutine in coroutines]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        ended = [task for task in tasks if task.done()]
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    for task in ended:
        task.result()
    return tasks.index(ended[0])
