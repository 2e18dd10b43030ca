"""The calls of the status writer: few at once, every answer counted."""

import asyncio
import enum
import logging
import math
import random
from collections.abc import Awaitable, Callable
from typing import Any, Final

from kai_es.ports.backoff import Backoff
from kai_es.ports.clock import Clock
from kai_es.ports.cluster import ClusterWrites
from kai_es.ports.errors import (
    AnswerError,
    ConflictError,
    FencedError,
    GoneError,
    RefusedError,
    UnavailableError,
)
from kai_es.ports.eventlog import Lease, check_lease
from kai_es.status import metrics
from kai_es.status.events import EVENTS, KubeEvent
from kai_es.status.patch import Patch, Write
from kai_es.status.planner import Planned

IN_FLIGHT: Final = 128
"""Calls at once, twice as many as the binder makes: a pod that is bound takes two writes here, so
that statuses keep pace with binds and are right soon after the last."""
CALM: Final = 8
CALM_S: Final = 3.0
"""With fewer calls on their way for so long, and fewer pods that are soon to be written, what can
wait is written, too."""
EVENTS_IN_FLIGHT: Final = 4
PAUSE_S: Final = (0.2, 10.0)

logger = logging.getLogger(__name__)


class Answer(enum.Enum):
    """What became of a write."""

    DONE = "done"
    CONFLICT = "conflict"
    GONE = "gone"
    REFUSED = "refused"
    UNAVAILABLE = "unavailable"


class _StaleLeaseError(UnavailableError):
    """The role may have passed to somebody else: nothing is written."""


class Writer:
    """Makes calls.

    lease:    of the role; nothing is written under one that was renewed too long ago.
    trouble:  why the API server did not answer last, "" = it did.
    n_flight: objects that are being written.
    n_events: events that are being written.
    """

    lease: Lease

    def __init__(self, cluster: ClusterWrites, clock: Clock, rng: random.Random) -> None:
        self._cluster = cluster
        self._clock = clock
        self._calls = asyncio.Semaphore(IN_FLIGHT)
        self._backoff = Backoff(*PAUSE_S, rng)
        self.trouble = ""
        self.n_flight = 0
        self.n_events = 0
        self._n_urgent = 0
        self._busy_s = -math.inf

    def has_room(self) -> bool:
        """Whether more objects should be looked at: there is no hurry to plan what has to wait."""
        return self.n_flight < IN_FLIGHT

    def is_calm(self) -> bool:
        """Whether little is being written that cannot wait, and has been for a while."""
        return self._n_urgent < CALM and self._clock.monotonic_s() - self._busy_s >= CALM_S

    def has_room_for_events(self, *, is_calm: bool) -> bool:
        """Whether another event may be told; objects come first."""
        return self.n_events < (EVENTS_IN_FLIGHT if is_calm else 1)

    def pause_s(self) -> float:
        """How long to wait after the API server was away."""
        return self._backoff.next_s()

    async def write(self, planned: Planned) -> tuple[Answer, int]:
        """Make the writes of one object, one after another; the last version it became."""
        rv = planned.rank.rv

        async def all_of() -> None:
            nonlocal rv
            for write in planned.writes:
                raw = await self._write(write, planned.uid, rv)
                rv = int(raw["metadata"]["resourceVersion"])

        answer = await self.call(planned.kind, all_of, can_wait=planned.can_wait)
        return answer, rv

    async def tell(self, event: KubeEvent) -> Answer:
        """Write an event, whoever has written it before; `n_events` counts it until then."""
        try:
            return await self._call("Event", lambda: self._tell(event))
        finally:
            self.n_events -= 1

    async def call(
        self, what: str, do: Callable[[], Awaitable[object]], *, can_wait: bool = False
    ) -> Answer:
        """Make calls when there is room for them; what became of them.

        Args:
            what: they are for.
            do: makes them.
            can_wait: they do not count as much to write.
        """
        self.n_flight += 1
        self._n_urgent += not can_wait
        try:
            async with self._calls:
                return await self._call(what, do)
        finally:
            if self._n_urgent >= CALM:
                self._busy_s = self._clock.monotonic_s()
            self.n_flight -= 1
            self._n_urgent -= not can_wait

    async def _call(self, what: str, do: Callable[[], Awaitable[object]]) -> Answer:
        try:
            await do()
        except ConflictError:
            answer = Answer.CONFLICT
        except GoneError:
            answer = Answer.GONE
        except _StaleLeaseError:
            answer = Answer.UNAVAILABLE
        except UnavailableError as exc:
            answer, self.trouble = Answer.UNAVAILABLE, exc.message or str(exc)
        except (RefusedError, AnswerError) as exc:
            answer = Answer.REFUSED
            logger.warning("status refused", extra={"what": what, "why": str(exc)})
        else:
            answer = Answer.DONE
        if answer is not Answer.UNAVAILABLE:
            self.trouble = ""
            self._backoff.reset()
        metrics.WRITES.labels(what, answer.value).inc()
        return answer

    def check(self) -> None:
        """Raise UnavailableError if the role may have passed to somebody else."""
        try:
            check_lease(self.lease, "the status writer")
        except FencedError as exc:
            raise _StaleLeaseError(str(exc)) from exc

    async def _tell(self, event: KubeEvent) -> None:
        self.check()
        await self._cluster.create(EVENTS, event.about.namespace, event.raw())

    async def _write(self, write: Write, uid: str, rv: int) -> dict[str, Any]:
        self.check()
        if isinstance(write, Patch):
            return await self._cluster.patch(
                write.resource._replace(names_only=True),  # only the version is looked at
                write.namespace,
                write.name,
                write.changes,
                uid=uid,
                rv=rv,
                subresource=write.subresource,
            )
        return await self._cluster.set_conditions(
            write.namespace,
            write.name,
            write.conditions,
            annotations=write.annotations,
            uid=uid,
            rv=rv,
        )
