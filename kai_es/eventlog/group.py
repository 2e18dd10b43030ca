"""Group commit: works that come while one commit runs share the next one."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, Generic, TypeVar

W = TypeVar("W")
R = TypeVar("R")

GROUP_MAX: Final = 64
"""Works that share one commit; more would make the first ones wait for long."""


class GroupCommit(Generic[W, R]):
    """Hands works to `commit`, many at a time, one commit after another.

    Args:
        commit: one outcome per work, in order; an exception instead of a result fails its work.
    """

    def __init__(self, commit: Callable[[Sequence[W]], Awaitable[Sequence[R | Exception]]]) -> None:
        self._commit = commit
        self._waiting: deque[tuple[W, asyncio.Future[R]]] = deque()
        self._running: asyncio.Task[None] | None = None

    async def do(self, work: W) -> R:
        """The work's result. A caller that is cancelled does not know whether it was done."""
        done: asyncio.Future[R] = asyncio.get_running_loop().create_future()
        self._waiting.append((work, done))
        if self._running is None or self._running.done():
            self._running = asyncio.create_task(self._drain(), name="log-commits")
        return await done

    async def idle(self) -> None:
        """Return when no work waits or runs."""
        if self._running is not None:
            await asyncio.shield(self._running)

    async def _drain(self) -> None:
        while self._waiting:
            group = [self._waiting.popleft() for _ in range(min(GROUP_MAX, len(self._waiting)))]
            outcomes = await self._commit([work for work, _ in group])
            for (_, done), outcome in zip(group, outcomes, strict=True):
                if done.done():
                    continue  # its caller was cancelled
                if isinstance(outcome, Exception):
                    done.set_exception(outcome)
                else:
                    done.set_result(outcome)
