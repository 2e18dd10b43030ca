"""The one writer of `bindresults`: results in, transactions out."""

import asyncio
import random
from collections import deque
from typing import Final, NamedTuple

import msgspec

from kai_es.binder import metrics
from kai_es.events.catalogue import BIND_RESULTS
from kai_es.events.codec import pack
from kai_es.events.requests import AttemptFailed, Refused, Result
from kai_es.ports.backoff import Backoff
from kai_es.ports.clock import Clock
from kai_es.ports.errors import UnavailableError
from kai_es.ports.eventlog import Epoch, EventLog, Lease, Out, Position, check_lease

BATCH: Final = 500


class _Item(NamedTuple):
    partition: int
    result: Result
    cause: str
    at_ms: int
    durable: asyncio.Future[Position]


class Results:
    """Appends results, as many at once as have gathered; each `put` returns when its is durable."""

    def __init__(
        self,
        eventlog: EventLog,
        *,
        epoch: Epoch,
        lease: Lease,
        clock: Clock,
        binder: str,
        rng: random.Random,
    ) -> None:
        self._rng = rng
        self._eventlog = eventlog
        self._epoch = epoch
        self._lease = lease
        self._clock = clock
        self._binder = binder
        self._queue: deque[_Item] = deque()
        self._wake = asyncio.Event()
        self.trouble = ""
        """Why the log does not take results, "" = it does."""

    async def put(self, partition: int, result: Result, *, cause: str) -> Position:
        """Publish a result of a request; its position when it is durable."""
        durable: asyncio.Future[Position] = asyncio.get_running_loop().create_future()
        self._queue.append(_Item(partition, result, cause, self._clock.now_ms(), durable))
        self._wake.set()
        return await durable

    async def run(self) -> None:
        """Append for ever.

        Raises:
            FencedError: somebody else has the role, or an outcome is unknown: the process ends.
        """
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._queue:
                items = [self._queue.popleft() for _ in range(min(BATCH, len(self._queue)))]
                positions = await self._append([self._out(item) for item in items])
                for item, position in zip(items, positions, strict=True):
                    if not item.durable.done():
                        item.durable.set_result(position)
                    _count(item.result)

    async def _append(self, batch: list[Out]) -> list[Position]:
        backoff = Backoff(0.1, 5.0, self._rng)
        while True:
            check_lease(self._lease, "the binder")
            try:
                positions = list(await self._eventlog.append(self._epoch, batch))
            except UnavailableError as exc:  # the log has not taken it
                self.trouble = str(exc)
                await self._clock.sleep(backoff.next_s())
            else:
                self.trouble = ""
                return positions

    def _out(self, item: _Item) -> Out:
        result = item.result
        envelope = pack(
            result,
            topic=BIND_RESULTS,
            record_id=f"{result.request_id}/{result.attempt}/{self._binder}",
            event_time=item.at_ms,
            ingest_time=self._clock.now_ms(),
            producer=f"binder/{self._binder}",
            causes=(item.cause,),
        )
        return Out(BIND_RESULTS, result.pod_uid, item.partition, envelope)


def _count(result: msgspec.Struct) -> None:
    code = result.code if isinstance(result, AttemptFailed | Refused) else ""
    metrics.RESULTS.labels(str(result.__struct_config__.tag), code).inc()
