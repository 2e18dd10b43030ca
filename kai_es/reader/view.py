"""A `World` that follows `snapshot`: what every service knows of the log."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Final

from kai_es.events.catalogue import SNAPSHOT
from kai_es.events.snapshot import Batch
from kai_es.ports.clock import Clock
from kai_es.ports.errors import UnavailableError
from kai_es.ports.eventlog import Entry, EventLog, Position
from kai_es.reader.records import batch_of
from kai_es.snapshot.errors import BrokenHistoryError
from kai_es.snapshot.world import Applied, Missed, Rejected, World

RETRY_S: Final = 0.5
"""Between tries while the log is away; adapters wait by themselves before they give up."""

SKEW_SAMPLES: Final = 5
"""A late turn of the loop looks like a skewed clock; of so many samples the smallest counts."""

Listener = Callable[[Applied, Batch], None]


class View:
    """Follows the log until cancelled.

    world:     state at the last batch; do not keep references into it over an await, and take
               `still` to read it from a thread.
    caught_up: set once everything that was there at the start is folded.
    n_retries: times the log was away, for metrics.

    Raises (from `run`): GoneError, CorruptLogError, PoisonError, BrokenHistoryError: nothing that
    waiting would mend.
    """

    def __init__(self, log: EventLog, clock: Clock, world: World | None = None) -> None:
        self.world = world or World()
        self.caught_up = asyncio.Event()
        self.n_retries = 0
        self._log = log
        self._clock = clock
        self._lock = asyncio.Lock()
        self._waiters: dict[asyncio.Event, None] = {}  # ordered: woken in the same order always
        self._listeners: list[Listener] = []
        self._skews: deque[int] = deque(maxlen=SKEW_SAMPLES)

    def listen(self, listener: Listener) -> None:
        """Call this after each accepted batch is folded, in order."""
        self._listeners.append(listener)

    async def run(self) -> None:
        """Fold what the log has and what comes."""
        while True:
            try:
                await self._follow(follow=True)
            except UnavailableError:
                self.n_retries += 1
                await self._clock.sleep(RETRY_S)

    async def catch_up(self) -> None:
        """Fold what the log has now, and return; not while `run` runs."""
        await self._follow(follow=False)

    async def passed(self, topic: str, partition: int, position: int) -> None:
        """Return once everything of a source partition below `position` is folded."""
        await self.until(lambda: self.world.chain.cursors.get((topic, partition), -1) >= position)

    async def until(self, condition: Callable[[], bool]) -> None:
        """Return once a condition holds; it is asked after every batch."""
        woken = asyncio.Event()
        self._waiters[woken] = None
        try:
            while not condition():
                await woken.wait()
                woken.clear()
        finally:
            self._waiters.pop(woken, None)

    @asynccontextmanager
    async def still(self) -> AsyncIterator[World]:
        """The world, which nothing changes meanwhile."""
        async with self._lock:
            yield self.world

    def skew_ms(self) -> int:
        """How far this clock is from the log's, ms; 0 while there is nothing to tell by."""
        return min(self._skews, key=abs, default=0)

    def age_ms(self) -> int:
        """How old the last folded batch is, ms; `Alive` brings one every two seconds."""
        return max(self._clock.now_ms() - self.world.time, 0)

    # -- private

    async def _follow(self, *, follow: bool) -> None:
        while await self._fold_from(self.world.offset + 1, follow=follow):
            pass

    async def _fold_from(self, start: int, *, follow: bool) -> bool:
        """Fold from an offset on; True = a batch was missed, go back for it."""
        async for chunk in self._log.read(SNAPSHOT, 0, Position(start), follow=follow):
            if not chunk:
                self.caught_up.set()
            for entry in chunk:
                if await self._fold(entry, is_fresh=self.caught_up.is_set() and len(chunk) == 1):
                    continue
                if self.world.offset + 1 == start:
                    raise BrokenHistoryError(
                        f"{SNAPSHOT} {entry.position}: the batches that lead there from offset "
                        f"{start - 1} are not in the log"
                    )
                return True
        return False

    async def _fold(self, entry: Entry, *, is_fresh: bool) -> bool:
        """Fold one record; False = a batch was missed."""
        batch = batch_of(entry)
        async with self._lock:
            outcome = self.world.apply(int(entry.position), batch)
        match outcome:
            case Missed():
                return False
            case Applied():
                if is_fresh:
                    self._skews.append(self._clock.now_ms() - batch.time)
                for listener in self._listeners:
                    listener(outcome, batch)
                for waiter in self._waiters:
                    waiter.set()
            case Rejected():
                pass
        if not is_fresh:
            await self._clock.sleep(0)  # let others run while there is much to fold
        return True
