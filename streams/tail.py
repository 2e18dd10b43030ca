"""Where `snapshot` stands: followed by the leader to confirm, by a standby to be ready."""

import asyncio
from typing import Final

from kai_es.events.catalogue import SNAPSHOT
from kai_es.ports.clock import Clock
from kai_es.ports.errors import UnavailableError
from kai_es.ports.eventlog import Entry, EventLog, Position
from kai_es.reader.last import last_chain
from kai_es.reader.records import head_of
from kai_es.snapshot.chain import Chain, Verdict
from kai_es.snapshot.errors import BrokenHistoryError

RETRY_S: Final = 0.5
"""Between tries while the log is away."""


class Tail:
    """The accept rule, run over everything that is written to `snapshot`.

    chain:       the last accepted batch.
    accepted_id: id of its record.
    """

    def __init__(self, log: EventLog, clock: Clock) -> None:
        self.chain = Chain()
        self.accepted_id = ""
        self.n_retries = 0
        self._log = log
        self._clock = clock
        self._next = -1
        self._moved = asyncio.Condition()

    async def run(self) -> None:
        """Find the end of the history, then follow it until cancelled.

        Raises:
            BrokenHistoryError, PoisonError, CorruptLogError, GoneError: waiting mends nothing.
        """
        while True:
            try:
                if self._next < 0:
                    self.chain = await last_chain(self._log)
                    begin = (await self._log.begin(SNAPSHOT))[0]
                    await self._step(max(self.chain.offset + 1, int(begin)))
                async for chunk in self._log.read(SNAPSHOT, 0, Position(self._next), follow=True):
                    for entry in chunk:
                        self._judge(entry)
                    if chunk:
                        await self._step(int(chunk[-1].position) + 1)
            except UnavailableError:
                self.n_retries += 1
                await self._clock.sleep(RETRY_S)

    async def reached(self, position: int) -> None:
        """Return once everything below a position was read."""
        async with self._moved:
            await self._moved.wait_for(lambda: self._next >= position)

    async def _step(self, position: int) -> None:
        async with self._moved:
            self._next = position
            self._moved.notify_all()

    def _judge(self, entry: Entry) -> None:
        record = head_of(entry)
        match self.chain.judge(record.head):
            case Verdict.ACCEPT:
                self.chain.accept(record.offset, record.head)
                self.accepted_id = record.id
            case Verdict.MISSED:
                raise BrokenHistoryError(
                    f"{SNAPSHOT} {record.offset} continues {record.head.prev}, but the last "
                    f"accepted batch is {self.chain.offset}"
                )
            case Verdict.REJECT:
                pass
