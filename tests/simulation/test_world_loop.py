"""A world that ends while one of its processes stands still leaves nothing behind."""

import asyncio
import contextvars

from tests.worlds.links import Life
from tests.worlds.loop import PROCESS, run_world


def test_what_stands_still_at_the_end_is_cancelled_too():
    tasks, cleaned = [], []

    async def work():
        try:
            await asyncio.sleep(1_000)
        finally:
            cleaned.append(True)

    async def world():
        life = Life("p-1", 1, None)
        context = contextvars.Context()
        context.run(PROCESS.set, life)
        tasks.append(context.run(asyncio.get_running_loop().create_task, work()))
        await asyncio.sleep(0)
        life.is_paused = True
        await asyncio.sleep(1)

    run_world(world())
    assert [task.done() for task in tasks] == [True]
    assert cleaned == [True]
