"""The incarnation of the cluster's history: it rises when etcd was restored from a backup."""

import asyncio


class History:
    """One number for all kinds; whoever waits learns of a rise."""

    def __init__(self, incarnation: int) -> None:
        self.incarnation = incarnation
        self._risen = asyncio.Event()

    def restored(self, incarnation: int) -> None:
        """A restore was found by somebody who worked in `incarnation`.

        Several kinds find the same one; only the first makes the number rise.
        """
        if incarnation != self.incarnation:
            return
        self.incarnation += 1
        self._risen.set()
        self._risen = asyncio.Event()

    async def risen(self, incarnation: int) -> None:
        """Return when the incarnation is not `incarnation` any more."""
        if self.incarnation == incarnation:
            await self._risen.wait()
