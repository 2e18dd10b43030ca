"""One kind: list, watch, list again when the watch cannot go on (architecture §3, Informer)."""

import asyncio
import logging
from collections.abc import Sequence
from contextlib import aclosing
from typing import Any, Final

from kai_es.events.objects import Listed, ObjectDeleted, ObjectSeen
from kai_es.intake import metrics
from kai_es.intake.history import History
from kai_es.intake.kinds import Source
from kai_es.intake.known import Known, RestoredError, UnusableError, rv_of
from kai_es.intake.publisher import Change, Publisher
from kai_es.ports.backoff import Backoff
from kai_es.ports.clock import Clock
from kai_es.ports.cluster import ClusterWatch, WatchItem
from kai_es.ports.errors import ConflictError, GoneError, RefusedError, UnavailableError

PAGE: Final = 500  # objects; a page of large pods stays below 4 MiB
SILENCE_S: Final = 75.0  # bookmarks come once a minute
RESUMES: Final = 2  # a watch that fails so often in a row is not resumed, the kind is listed anew
PAUSE_S: Final = (0.2, 10.0)  # after a list or a watch that came to nothing
UNSERVED_S: Final = 30.0  # between looks whether a kind is served by now, and after 403
REQUIRED_S: Final = 2.0  # the same for kinds without which nothing goes: being installed now

logger = logging.getLogger(__name__)


class Reflector:
    """Brings one kind into the log and keeps it there.

    problem: why the kind is not known completely, "" = it is (for `/readyz`).
    """

    def __init__(
        self,
        known: Known,
        *,
        cluster: ClusterWatch,
        publisher: Publisher,
        history: History,
        clock: Clock,
    ) -> None:
        self.known = known
        self.problem = "not listed yet"
        self._source: Source = known.source
        self._cluster = cluster
        self._publisher = publisher
        self._history = history
        self._clock = clock
        self._backoff = Backoff(*PAUSE_S, publisher.rng)
        self._advanced = False

    async def run(self) -> None:
        """List and watch for ever."""
        while True:
            try:
                await self._list()
                await self._follow()
            except RestoredError as exc:
                self._restored(str(exc))
                await self._clock.sleep(self._backoff.next_s())
            except GoneError as exc:
                await self._gone(exc)
            except RefusedError as exc:
                self._failed(exc)
                self.problem = f"{exc}; grant list and watch of {self._source.resource.plural}"
                await self._clock.sleep(UNSERVED_S)
            except UnavailableError as exc:
                self._failed(exc)
                self.problem = f"API server unavailable: {exc}"
                await self._clock.sleep(self._backoff.next_s(at_least_s=exc.retry_after_s))
            except ConflictError as exc:  # no answer to a list: something stands in between
                self._failed(exc)
                self.problem = f"unexpected answer of the API server: {exc}"
                await self._clock.sleep(self._backoff.next_s())

    # -- list

    async def _list(self) -> None:
        """Bring in a consistent list and its differences; returns when it is durable.

        Raises:
            RestoredError: the list is older than what is known.
            GoneError: 410: the list took too long; 404: no such kind.
        """
        known, source = self.known, self._source
        metrics.LISTS.labels(source.kind).inc()
        known.enter(self._history.incarnation)
        seen: set[str] = set()
        rv = 0
        token = ""
        while True:
            page = await self._cluster.list_page(source.resource, limit=PAGE, token=token)
            if self._history.incarnation != known.incarnation:
                return  # another kind found etcd restored: this list is of no use
            rv = rv or page.rv
            if rv < known.rv:
                raise RestoredError(f"{source.kind} list is at {rv}, {known.rv} was known")
            await self._publisher.put(self._page(page.items, seen))
            token = page.token
            if not token:
                break
        await self._complete(rv, known.missing(seen, rv), served=True)

    def _page(self, items: Sequence[dict[str, Any]], seen: set[str]) -> list[Change]:
        now_ms = self._clock.now_ms()
        changes = []
        for raw in items:
            try:
                record = self.known.listed(raw)
            except UnusableError as exc:
                self._unusable(exc)
                continue
            seen.add(raw["metadata"]["uid"])
            if record is not None:
                changes.append(self._as_change(0, now_ms, record))
        return changes

    def _as_change(
        self, rv: int, now_ms: int, record: ObjectSeen | ObjectDeleted | Listed | None
    ) -> Change:
        return Change(self._source.kind, self.known.incarnation, rv, now_ms, record)

    async def _complete(self, rv: int, gone: Sequence[ObjectDeleted], *, served: bool) -> None:
        known, kind = self.known, self._source.kind
        now_ms = self._clock.now_ms()
        listed = Listed(kind=kind, rv=rv, incarnation=known.incarnation, served=served)
        changes = [self._as_change(0, now_ms, record) for record in gone]
        known.reached(rv)
        self._publisher.seen_ms[kind] = now_ms
        await self._publisher.put([*changes, self._as_change(rv, now_ms, listed)])
        await self._publisher.flush()
        self._publisher.say_alive()  # the gate need not wait for the next regular one
        self.problem = ""
        metrics.OBJECTS.labels(kind).set(len(known.versions))
        logger.info(
            "listed",
            extra={"kind": kind, "rv": rv, "objects": len(known.versions), "gone": len(gone)},
        )

    # -- watch

    async def _follow(self) -> None:
        """Watch on from what is known, resuming where that works; returns when it does not.

        Raises:
            RestoredError: the server's history is behind what is known.
            GoneError: the position is too old, or the kind is gone.
        """
        failures = 0
        while failures <= RESUMES and self._history.incarnation == self.known.incarnation:
            self._advanced = False
            try:
                await self._watch_unless_risen()
                delay_s = 0.0 if self._advanced else self._backoff.next_s()
            except UnavailableError as exc:
                self._failed(exc)
                if self._is_quiet():
                    return
                failures = 1 if self._advanced else failures + 1
                delay_s = self._backoff.next_s(at_least_s=exc.retry_after_s)
            else:
                failures = 0
            await self._clock.sleep(delay_s)
            await self._publisher.flush()  # what is resumed after must be durable
            if failures:
                await self._check_history()

    def _is_quiet(self) -> bool:
        """Whether nothing was heard of a kind with few objects for so long that it is listed anew.

        A kind of which nothing has changed since the API server started has no bookmarks either
        (unless its etcd notifies of progress, which many do not); a resumed watch would be as
        silent, and the gate would take the kind for lost.
        """
        heard_ms = self._publisher.seen_ms.get(self._source.kind, 0)
        is_silent = self._clock.now_ms() - heard_ms >= SILENCE_S * 1000
        return is_silent and len(self.known.versions) <= PAGE

    async def _check_history(self) -> None:
        """Before resuming after a break: a server whose history is shorter would stay silent.

        Raises:
            RestoredError: it is.
        """
        page = await self._cluster.list_page(self._source.resource, limit=1, token="")
        if page.rv < self.known.rv:
            raise RestoredError(f"{self._source.kind} is at {page.rv}, {self.known.rv} was known")

    async def _watch_unless_risen(self) -> None:
        """Watch until the server ends it, or etcd is found restored by another kind."""
        watching = asyncio.ensure_future(self._watch())
        risen = asyncio.ensure_future(self._history.risen(self.known.incarnation))
        try:
            await asyncio.wait((watching, risen), return_when=asyncio.FIRST_COMPLETED)
        finally:
            risen.cancel()
            if not watching.done():
                watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)
        if not watching.cancelled():
            watching.result()

    async def _watch(self) -> None:
        kind = self._source.kind
        metrics.WATCHES.labels(kind).inc()
        watch = self._cluster.watch(self._source.resource, rv=self.known.rv, silence_s=SILENCE_S)
        async with aclosing(watch):
            async for items in watch:
                await self._take(items)
                self._advanced = True
                self._backoff.reset()

    async def _take(self, items: Sequence[WatchItem]) -> None:
        """Put the changes of some notifications; whatever happens, those before it are put.

        Raises:
            RestoredError: a bookmark is behind what is known.
        """
        now_ms = self._clock.now_ms()
        changes = []
        try:
            for item in items:
                try:
                    changes.append(self._change(item, now_ms))
                except UnusableError as exc:
                    self._unusable(exc)
        finally:
            self._publisher.seen_ms[self._source.kind] = now_ms
            await self._publisher.put(changes)
        metrics.OBJECTS.labels(self._source.kind).set(len(self.known.versions))

    def _change(self, item: WatchItem, now_ms: int) -> Change:
        known, kind = self.known, self._source.kind
        record: ObjectSeen | ObjectDeleted | None = None
        match item.type:
            case "ADDED" | "MODIFIED":
                record = known.changed(item.object)
            case "DELETED":
                record = known.deleted(item.object)
            case "BOOKMARK":
                rv = rv_of(item.object)
                if rv < known.rv:
                    raise RestoredError(f"{kind} bookmark is at {rv}, {known.rv} was known")
                known.reached(rv)
            case _:
                logger.warning("unknown event", extra={"kind": kind, "type": item.type[:40]})
        return self._as_change(known.rv, now_ms, record)

    # -- what goes wrong

    async def _gone(self, exc: GoneError) -> None:
        """410: list anew, each time more slowly. 404: an empty list, or no installation."""
        self._failed(exc)
        if exc.status != 404:
            await self._clock.sleep(self._backoff.next_s())
        elif self._source.required:
            self.problem = f"{self._source.resource.plural} are not served; install the CRDs"
            await self._clock.sleep(REQUIRED_S)
        else:
            self.known.enter(self._history.incarnation)
            rv = self.known.rv
            await self._complete(rv, self.known.missing((), rv), served=False)
            await self._clock.sleep(UNSERVED_S)

    def _restored(self, text: str) -> None:
        logger.warning("etcd was restored, everything is listed anew", extra={"found": text})
        self._history.restored(self.known.incarnation)

    def _failed(self, exc: Exception) -> None:
        kind = self._source.kind
        metrics.FAILURES.labels(kind, type(exc).__name__).inc()
        logger.info("list or watch failed", extra={"kind": kind, "error": str(exc)[:300]})

    def _unusable(self, exc: UnusableError) -> None:
        metrics.UNUSABLE.labels(self._source.kind).inc()
        logger.error("unusable object", extra={"kind": self._source.kind, "error": str(exc)[:300]})
