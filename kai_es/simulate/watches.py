"""Watch streams.

A watcher gets the history since its resourceVersion, then every committed change of its kind that
its selector lets through, and bookmarks. Whoever reads too slowly is dropped and comes back.

Reference: k8s.io/apiserver/pkg/storage/cacher/cacher.go, pkg/endpoints/handlers/watch.go.
"""

import asyncio
import itertools
import math
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from kai_es.simulate import answers, lists
from kai_es.simulate.kinds import Kind
from kai_es.simulate.selectors import Selector
from kai_es.simulate.store import Change, Shelf, Store, Stored, matching, watch_line

BOOKMARK_S: Final = 60.0
"""A bookmark about once a minute …"""
BOOKMARK_BEFORE_END_S: Final = 2.0
"""… and this long before the end."""
TIMEOUT_S: Final = 1800
"""How long a watch lasts that does not say; kube-apiserver: 30 to 60 minutes."""
BUFFER_BYTES_MAX: Final = 64 * 1024 * 1024
"""What may wait for one client; a slower one is dropped, as by the watch cache."""
INITIAL_END: Final = "k8s.io/initial-events-end"


@dataclass(frozen=True, slots=True)
class WatchOptions:
    """What a watch asks for."""

    selector: Selector
    bookmarks: bool
    timeout_s: float
    initial: bool
    marks_initial_end: bool
    start: int

    @classmethod
    def of(cls, kind: Kind, namespace: str, query: Mapping[str, str]) -> "WatchOptions":
        """Options of a query.

        Raises:
            ApiError: 400, 422.
        """
        start = lists.number(query, "resourceVersion")
        send = query.get("sendInitialEvents", "")
        match = query.get("resourceVersionMatch", "")
        if send and match != "NotOlderThan":
            cause = answers.forbidden_field(
                "resourceVersionMatch",
                "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan",
            )
            raise answers.invalid_options([cause])
        if match and not send:
            cause = answers.forbidden_field(
                "resourceVersionMatch",
                "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided",
            )
            raise answers.invalid_options([cause])
        bookmarks = is_true(query, "allowWatchBookmarks")
        return cls(
            selector=lists.selector(kind, namespace, query),
            bookmarks=bookmarks,
            timeout_s=float(lists.number(query, "timeoutSeconds") or TIMEOUT_S),
            # Without a position a watch begins with what is there.
            initial=is_true(query, "sendInitialEvents") or (not send and start == 0),
            marks_initial_end=is_true(query, "sendInitialEvents") and bookmarks,
            start=start,
        )


def is_true(query: Mapping[str, str], name: str) -> bool:
    """A boolean parameter; clients write `true`, `True` or `1`."""
    return query.get(name, "") in ("true", "True", "1")


class WatchStream:
    """The lines of one watch: `tell` is the way in, `run` the way out.

    cut: closes the connection without a proper end.
    """

    def __init__(
        self, store: Store, kind: Kind, options: WatchOptions, cut: Callable[[], None]
    ) -> None:
        self._store = store
        self._kind = kind
        self._options = options
        self._cut = cut
        self._everything = options.selector.selects_namespace and not options.selector.namespace
        self._ready: list[bytes] = []
        self._n_bytes = 0
        self._wake = asyncio.Event()
        self._ended = False
        self._shelf: Shelf = store.shelf(kind)

    @property
    def resource(self) -> str:
        """What is watched."""
        return self._kind.resource

    # -- way in

    def tell(self, changes: Iterable[Change]) -> None:
        """Take committed changes (`store.Watcher`)."""
        for change in changes:
            if change.rv <= self._options.start:
                continue  # a watch may start in the future
            line = change.frame() if self._everything else self._filtered(change)
            if line:
                self._ready.append(line)
                self._n_bytes += len(line)
        self._wake.set()
        if self._n_bytes > BUFFER_BYTES_MAX:
            self.drop()

    def drop(self) -> None:
        """Cut the connection."""
        self.finish()
        self._cut()

    def finish(self) -> None:
        """End the stream properly, after what is ready."""
        self._ended = True
        self._wake.set()

    def _filtered(self, change: Change) -> bytes:
        before = change.before is not None and self._matches(change.before)
        after = change.type != "DELETED" and self._matches(change.after)
        if after:
            return change.frame() if before else watch_line("ADDED", change.after.body)
        if not before:
            return b""
        if change.type == "DELETED":
            return change.frame()
        assert change.before is not None, "only a change has left the selection"
        # It has left the selection: its last state inside, at the time of the change.
        obj = change.before.object()
        obj["metadata"]["resourceVersion"] = str(change.rv)
        return watch_line("DELETED", msgspec.json.encode(obj))

    def _matches(self, stored: Stored) -> bool:
        return self._options.selector.matches(stored.key, stored.labels, stored.fields)

    # -- way out

    async def run(self, write: Callable[[bytes], Awaitable[None]], *, bookmark_s: float) -> None:
        """Write lines until the watch times out, expires or is ended."""
        loop = asyncio.get_running_loop()
        end = loop.time() + self._options.timeout_s
        times = self._bookmark_times(loop.time(), end, bookmark_s)
        due = next(times)
        try:
            self._begin()
            while not self._ended or self._ready:
                if not self._ready and not await self._woken(min(due, end)):
                    if loop.time() >= end:
                        return
                    self._store.settle()
                    self._ready.append(self._bookmark())
                    due = next(times)
                ready, self._ready, self._n_bytes = self._ready, [], 0
                if ready:
                    await write(b"".join(ready))
        finally:
            if self in self._shelf.watchers:
                self._shelf.watchers.remove(self)

    def _bookmark_times(self, start: float, end: float, every_s: float) -> Iterator[float]:
        """When bookmarks are due: regularly, and shortly before the end."""
        due = start
        while self._options.bookmarks:
            due += every_s
            last = end - BOOKMARK_BEFORE_END_S
            if due >= last:
                if last > start:
                    yield last
                break
            yield due
        yield from itertools.repeat(math.inf)

    async def _woken(self, until: float) -> bool:
        self._wake.clear()
        try:
            async with asyncio.timeout_at(until if until < math.inf else None):
                await self._wake.wait()
        except TimeoutError:
            return False
        return True

    def _begin(self) -> None:
        """Take what is there or has happened since the start, and listen from here on."""
        store, options = self._store, self._options
        store.settle()
        if options.initial:
            frozen = store.at(self._kind, store.rv)
            for stored in matching(frozen, options.selector, ""):
                self._ready.append(watch_line("ADDED", stored.body))
            if options.marks_initial_end:
                self._ready.append(self._bookmark(INITIAL_END))
        elif options.start < store.compacted:
            error = answers.too_old(options.start, store.compacted)
            self._ready.append(watch_line("ERROR", msgspec.json.encode(error.status())))
            self._ended = True
            return
        else:
            self.tell(self._shelf.since(options.start))
        self._shelf.watchers.append(self)

    def _bookmark(self, annotation: str = "") -> bytes:
        """A bookmark of now, to come after all that is ready."""
        metadata: dict[str, Any] = {
            "resourceVersion": str(self._store.rv),
            "creationTimestamp": None,
        }
        if annotation:
            metadata["annotations"] = {annotation: "true"}
        obj = {
            "kind": self._kind.kind,
            "apiVersion": self._kind.api_version,
            "metadata": metadata,
        }
        return watch_line("BOOKMARK", msgspec.json.encode(obj))
