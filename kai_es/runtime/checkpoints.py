"""Checkpoints whose database is opened when somebody asks for one."""

from collections.abc import Awaitable, Callable, Sequence

from kai_es.ports.stores import CheckpointHead, CheckpointStore, StoredCheckpoint


class LazyCheckpoints(CheckpointStore):
    """A store that is opened at the first question, so that who does not ask need not wait for it.

    Args:
        opening: opens the store; asked again after it has failed.
    """

    def __init__(self, opening: Callable[[], Awaitable[CheckpointStore]]) -> None:
        self._open = opening
        self._store: CheckpointStore | None = None

    async def _opened(self) -> CheckpointStore:
        if self._store is None:
            self._store = await self._open()
        return self._store

    async def put(self, checkpoint: StoredCheckpoint) -> None:
        """See the port."""
        await (await self._opened()).put(checkpoint)

    async def newest(self, at_most: int | None = None) -> StoredCheckpoint | None:
        """See the port."""
        return await (await self._opened()).newest(at_most)

    async def heads(self) -> Sequence[CheckpointHead]:
        """See the port."""
        return await (await self._opened()).heads()
