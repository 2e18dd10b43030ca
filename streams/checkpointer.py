"""Takes checkpoints while the log is folded, and trims the log behind proven ones."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final

from kai_es.events.catalogue import SNAPSHOT
from kai_es.events.snapshot import Batch
from kai_es.ports.clock import Clock
from kai_es.ports.errors import UnavailableError
from kai_es.ports.eventlog import EventLog, Position
from kai_es.ports.stores import CheckpointStore, DivergedError, StoredCheckpoint
from kai_es.reader import read_batches
from kai_es.reader.restore import stored
from kai_es.snapshot import checkpoint
from kai_es.snapshot.world import World
from projectors.checkpoint import REPLAY_HORIZON_MS, Cadence, Mark, Trim, trim_of

logger = logging.getLogger(__name__)

Offload = Callable[[Callable[[World], StoredCheckpoint], World], Awaitable[StoredCheckpoint]]

RETRY_S: Final = 5.0
TRIM_EVERY_S: Final = 3600.0
"""Trimming costs a refold of one checkpoint's worth of rows; the log grows slowly."""


class Checkpointer:
    """Inserts a checkpoint when one is due.

    Args:
        store: where checkpoints go.
        log: what is trimmed.
        clock: for waiting.
        cadence: when one is due.
        horizon_ms: how much of the log must stay, by the log's time.
        offload: runs a slow pure function beside the event loop.
    """

    def __init__(
        self,
        store: CheckpointStore,
        log: EventLog,
        clock: Clock,
        *,
        cadence: Cadence | None = None,
        horizon_ms: int = REPLAY_HORIZON_MS,
        offload: Offload = asyncio.to_thread,
    ) -> None:
        self._not_taken = self._not_trimmed = ""
        self.n_taken = self.n_diverged = 0
        self.trimmed_to = -1
        self._store = store
        self._log = log
        self._clock = clock
        self._cadence = cadence or Cadence()
        self._horizon_ms = horizon_ms
        self._offload = offload
        self._not_before_s = 0.0
        self._trim_at_s = 0.0
        self._trimming: asyncio.Task[None] | None = None

    @property
    def trouble(self) -> str:
        """Why the last checkpoint was not taken or the log not trimmed, "" = it was."""
        return self._not_taken or self._not_trimmed

    def opened(self, world: World) -> None:
        """The fold starts from this world, which is a checkpoint or the beginning."""
        if world.offset >= 0:
            self._cadence.taken(world.time)

    async def applied(self, world: World, batch: Batch) -> None:
        """A batch was folded; nothing else is until this returns."""
        self._cadence.folded(time_ms=batch.time, n_rows=len(batch.rows))
        if self._cadence.is_due(batch.time) and self._clock.monotonic_s() >= self._not_before_s:
            await self.take(world)

    async def take(self, world: World) -> None:
        """Insert a checkpoint of the world now; if the store is away, it is tried again later."""
        taken = await self._offload(stored, world)
        try:
            await self._store.put(taken)
        except UnavailableError as exc:
            self._not_taken = str(exc)
            self._not_before_s = self._clock.monotonic_s() + RETRY_S
            return
        except DivergedError as exc:
            self._not_taken = self._alarm(exc)
        else:
            self._not_taken = ""
            self.n_taken += 1
        self._cadence.taken(world.time)

    async def idle(self, world: World, *, needed: int) -> None:
        """There is time: see whether the log can be trimmed. Returns at once."""
        if self._trimming is not None and self._trimming.done():
            finished, self._trimming = self._trimming, None
            finished.result()
        now_s = self._clock.monotonic_s()
        if self._trimming is None and now_s >= self._trim_at_s and world.offset >= 0:
            self._trim_at_s = now_s + TRIM_EVERY_S
            trimming = self.trim(now_ms=world.time, needed=needed)
            self._trimming = asyncio.ensure_future(trimming)

    async def close(self) -> None:
        """Stop what runs beside."""
        if self._trimming is not None:
            self._trimming.cancel()
            await asyncio.gather(self._trimming, return_exceptions=True)
            self._trimming = None
        self._not_taken = self._not_trimmed = ""

    async def trim(self, *, now_ms: int, needed: int) -> None:
        """Trim the log up to the newest proven checkpoint older than the horizon.

        Args:
            now_ms: the log's time.
            needed: lowest offset that a projection still stands at.
        """
        try:
            heads = await self._store.heads()
            begin = int((await self._log.begin(SNAPSHOT))[0])
            found = trim_of(
                [Mark(head.offset, head.time_ms) for head in heads],
                begin=begin,
                now_ms=now_ms,
                needed=needed,
                horizon_ms=self._horizon_ms,
            )
            if found is not None and await self._is_proven(found):
                await self._log.trim(SNAPSHOT, 0, Position(found.base.offset + 1))
                self.trimmed_to = found.base.offset
        except UnavailableError as exc:
            self._not_trimmed = str(exc)
            self._trim_at_s = self._clock.monotonic_s() + RETRY_S
        except DivergedError as exc:
            self._not_trimmed = self._alarm(exc)
        else:
            self._not_trimmed = ""

    async def _is_proven(self, trim: Trim) -> bool:
        """Reload the base, fold on to the next checkpoint, compare digests."""
        base = await self._store.newest(trim.base.offset)
        proof = next((h for h in await self._store.heads() if h.offset == trim.proof.offset), None)
        if base is None or proof is None or base.head.offset != trim.base.offset:
            return False
        world = checkpoint.decode(base.payload)
        async for offset, batch in read_batches(self._log, start=world.offset + 1):
            world.apply(offset, batch)
            await self._clock.sleep(0)
            if world.offset >= proof.offset:
                break
        found = checkpoint.digest(world)
        if world.offset != proof.offset or found != proof.digest:
            raise DivergedError(
                f"checkpoint {trim.base.offset} folds on to digest {found} at offset "
                f"{world.offset}, stored at {proof.offset} is {proof.digest}; the log is kept"
            )
        return True

    def _alarm(self, exc: DivergedError) -> str:
        self.n_diverged += 1
        logger.error("checkpoints diverge", extra={"problem": str(exc)})
        return str(exc)
