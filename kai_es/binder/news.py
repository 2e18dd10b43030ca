"""What happens to pods that matter for shared GPUs, as the log shows it."""

import asyncio
import logging
import random
from collections.abc import Callable, Sequence
from typing import Final

from kai_es.events.catalogue import OBJECTS
from kai_es.events.codec import decode, unpack
from kai_es.events.envelope import PoisonError
from kai_es.events.objects import ObjectSeen
from kai_es.ports.backoff import Backoff
from kai_es.ports.clock import Clock
from kai_es.ports.errors import GoneError, UnavailableError
from kai_es.ports.eventlog import Entry, Position, ReadableLog

PREFIX: Final = "Pod/"
ENDED: Final = ("Succeeded", "Failed")
BACKOFF_S: Final = (0.1, 5.0)

logger = logging.getLogger(__name__)


class PodNews:
    """Follows the topic `objects` while there are pods that matter.

    Args:
        moved: is called with the node of a pod that has changed, and whether it has ended or may
            have; of one that has ended nothing is told any more.
    """

    def __init__(
        self,
        eventlog: ReadableLog,
        clock: Clock,
        rng: random.Random,
        moved: Callable[[str, bool], None],
    ) -> None:
        self._eventlog = eventlog
        self._clock = clock
        self._rng = rng
        self._moved = moved
        self._node_of: dict[str, str] = {}
        self._any = asyncio.Event()

    def watch(self, uid: str, node: str) -> None:
        """Tell of this pod; one that has ended before is found by the next look."""
        self._node_of[uid] = node
        self._any.set()

    async def run(self) -> None:
        """Follow for ever, from the first watched pod on."""
        await self._any.wait()
        ends = await self._ends()
        self._missed()
        async with asyncio.TaskGroup() as tasks:
            for partition, end in sorted(ends.items()):
                tasks.create_task(self._follow(partition, end), name=f"news-{partition}")

    async def _ends(self) -> dict[int, Position]:
        backoff = Backoff(*BACKOFF_S, self._rng)
        while True:
            try:
                return dict(await self._eventlog.end(OBJECTS))
            except UnavailableError:
                await self._clock.sleep(backoff.next_s())

    async def _follow(self, partition: int, start: Position) -> None:
        backoff = Backoff(*BACKOFF_S, self._rng)
        while True:
            try:
                async for entries in self._eventlog.read(OBJECTS, partition, start, follow=True):
                    if entries:
                        self._look(entries)
                        start = Position(entries[-1].position + 1)
                    backoff.reset()
            except UnavailableError:
                await self._clock.sleep(backoff.next_s())
            except GoneError:
                start = (await self._ends())[partition]
                self._missed()

    def _missed(self) -> None:
        """Something may have happened that is not read."""
        for node in sorted(set(self._node_of.values())):
            self._moved(node, True)

    def _look(self, entries: Sequence[Entry]) -> None:
        for entry in entries:
            uid = entry.key.removeprefix(PREFIX)
            node = self._node_of.get(uid)
            if node is not None:
                has_ended = _has_ended(entry)
                if has_ended:
                    del self._node_of[uid]
                self._moved(node, has_ended)


def _has_ended(entry: Entry) -> bool:
    """Whether a record of a pod says that it has ended; one that says nothing may."""
    if entry.value is None:
        return True
    try:
        record = unpack(decode(entry.value))
    except PoisonError as exc:
        logger.warning("unreadable", extra={"key": entry.key, "problem": str(exc)})
        return True
    if not isinstance(record, ObjectSeen):
        return True
    return (record.object.get("status") or {}).get("phase") in ENDED
