"""An event loop in virtual time on which a process can stand still."""

import asyncio
import contextvars
import functools
import gc
import heapq

from kai_es.simulate.virtual import VirtualLoop

PROCESS = contextvars.ContextVar("PROCESS", default=None)
"""The `links.Life` that a task belongs to, None = to no process. Tasks inherit it."""


class _Task(asyncio.Task):
    """Numbered, so that sets of tasks have the same order in every run."""

    numbers = 0

    def __init__(self, *args, **kwargs):
        _Task.numbers += 1
        self._number = _Task.numbers
        super().__init__(*args, **kwargs)

    def __hash__(self):
        return self._number

    def __eq__(self, other):
        return self is other


class _Handle(asyncio.Handle):
    """Does not run while its process stands still."""

    def _run(self):
        life = self._context.get(PROCESS)
        if life is not None and life.is_paused:
            if not life.held:
                self._loop.standing.append(life)
            life.held.append(self)
        else:
            super()._run()


class WorldLoop(VirtualLoop):
    """Steps of tasks whose process is paused wait for it to go on; timers of theirs still run."""

    def __init__(self):
        super().__init__()
        self.standing = []
        self.set_task_factory(lambda loop, coro, **rest: _Task(coro, loop=loop, **rest))

    def call_soon(self, callback, *args, context=None):
        """As asyncio's, without its looks at debugging: half of a world's calls are this one."""
        handle = _Handle(callback, args, self, context)
        self._ready.append(handle)
        return handle

    def call_at(self, when, callback, *args, context=None):
        timer = asyncio.TimerHandle(when, callback, args, self, context)
        heapq.heappush(self._scheduled, timer)
        timer._scheduled = True
        return timer

    def resume(self, life):
        """Let a process go on where it stood."""
        held, life.held = life.held, []
        self._ready.extend(held)

    def resume_all(self):
        """Let all go on: what stands still cannot even be cancelled."""
        standing, self.standing = self.standing, []
        for life in standing:
            life.is_paused = False
            self.resume(life)


def run_world(coroutine):
    """Run to the end; what is left is cancelled until it has ended."""
    _Task.numbers = 0
    loop = WorldLoop()
    _leave_the_rest_alone()
    gc.collect()
    gc.disable()  # so that nothing is finalised by chance
    try:
        return loop.run_until_complete(coroutine)
    finally:
        for _ in range(20):
            left = [task for task in asyncio.all_tasks(loop) if not task.done()]
            if not left:
                break
            for task in left:
                task.cancel()
            loop.resume_all()
            loop.run_until_complete(_rest())
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()
        gc.enable()


@functools.cache
def _leave_the_rest_alone():
    """What was there before the first world is not looked at again for each of them."""
    gc.collect()
    gc.freeze()


async def _rest():
    for _ in range(100):
        await asyncio.sleep(0)
