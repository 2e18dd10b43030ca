"""Objects with their history, as etcd and the watch cache keep them.

One counter, `rv`, rises with every change of any object. A change is in memory at once, and
visible to others (answers, watches) after `commit` has written it to the file; commits are shared
by all changes of one turn of the event loop. Objects are encoded bytes; only what selectors look at
is extracted.
"""

import asyncio
import bisect
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

import msgspec

from kai_es.simulate import answers
from kai_es.simulate.database import AccessRow, ChangeRow, Database
from kai_es.simulate.kinds import Kind
from kai_es.simulate.selectors import Selector

HISTORY_MAX: Final = 200_000
"""Changes kept for watches and lists in pages: 200 s at 1,000 writes/s, about 400 MB at worst."""

HISTORY_MS: Final = 300_000
"""Age up to which changes are kept; kube-apiserver compacts etcd every five minutes."""

FROZEN_LISTS_MAX: Final = 8
"""Past states kept for lists in pages; more lists at once only cost time."""

_NO_LABELS: Final[Mapping[str, str]] = {}


class Stored:
    """One version of one object.

    body:   JSON that starts with `Kind.head`, so that a list can leave kind and apiVersion out.
    fields: values of `Kind.fields`, "" where absent.
    """

    __slots__ = ("body", "fields", "key", "labels", "rv", "uid")

    def __init__(self, kind: Kind, key: str, body: bytes, obj: Mapping[str, Any]) -> None:
        meta = obj["metadata"]
        self.key = key
        self.rv = int(meta["resourceVersion"])
        self.uid = str(meta["uid"])
        self.body = body
        self.labels: Mapping[str, str] = meta.get("labels") or _NO_LABELS
        self.fields = tuple([_field(obj, path) for path in kind.field_paths])

    def object(self) -> dict[str, Any]:
        """The decoded object, the caller's own."""
        decoded: dict[str, Any] = msgspec.json.decode(self.body)
        return decoded


def _field(obj: Any, path: tuple[str, ...]) -> str:
    for part in path:
        if type(obj) is not dict:
            return ""
        obj = obj.get(part)
    if type(obj) is str:
        return sys.intern(obj)
    return "true" if obj is True else "false" if obj is False else ""


class Change:
    """One change: what is now (for DELETED: what was, with the change's rv) and what was before."""

    __slots__ = ("_frame", "after", "before", "rv", "time_ms", "type")

    def __init__(self, type_: str, after: Stored, before: Stored | None, time_ms: int) -> None:
        self.type = type_
        self.after = after
        self.before = before
        self.rv = after.rv
        self.time_ms = time_ms
        self._frame: bytes | None = None

    def frame(self) -> bytes:
        """The line of a watch, encoded once for all watchers."""
        if self._frame is None:
            self._frame = watch_line(self.type, self.after.body)
        return self._frame


def watch_line(type_: str, body: bytes) -> bytes:
    """One line of a watch stream."""
    return b'{"type":"%s","object":%s}\n' % (type_.encode(), body)


class Watcher(Protocol):
    """Whoever is told of the committed changes of a kind."""

    def tell(self, changes: Iterable[Change]) -> None:
        """Take changes, in order."""
        ...


@dataclass(slots=True)
class Shelf:
    """All of one kind: live objects by key, their keys sorted, history, watchers.

    by_index: keys of live objects by their value of the indexed field.
    """

    kind: Kind
    live: dict[str, Stored] = field(default_factory=dict)
    keys: list[str] = field(default_factory=list)
    history: list[Change] = field(default_factory=list)
    watchers: list[Watcher] = field(default_factory=list)
    by_index: dict[str, set[str]] = field(default_factory=dict)

    def apply(self, change: Change) -> None:
        """Bring `live` and `keys` up to date and append to the history."""
        key = change.after.key
        if self.kind.index_number is not None:
            self._index(key, change)
        if change.type == "DELETED":
            del self.live[key]
            del self.keys[bisect.bisect_left(self.keys, key)]
        else:
            if key not in self.live:
                bisect.insort(self.keys, key)
            self.live[key] = change.after
        self.history.append(change)

    def _index(self, key: str, change: Change) -> None:
        number = self.kind.index_number
        assert number is not None, "it has an index"
        before = self.live.get(key)
        if before is not None:
            self.by_index[before.fields[number]].discard(key)
        if change.type != "DELETED":
            self.by_index.setdefault(change.after.fields[number], set()).add(key)

    def since(self, rv: int) -> list[Change]:
        """Changes after `rv`, oldest first."""
        return self.history[bisect.bisect_right(self.history, rv, key=_rv) :]


def _rv(change: Change) -> int:
    return change.rv


@dataclass(frozen=True, slots=True)
class Frozen:
    """A kind as it was at `rv`: keys in order and their objects.

    by_index: of the present state, see `Shelf`.
    """

    rv: int
    keys: list[str]
    objects: Mapping[str, Stored]
    by_index: Mapping[str, set[str]] | None = None


class Store:
    """All objects. Every method but `committed` returns at once; one thread only."""

    def __init__(
        self,
        database: Database,
        kinds: Iterable[Kind],
        clock: Callable[[], int],
        *,
        history_max: int = HISTORY_MAX,
        history_ms: int = HISTORY_MS,
    ) -> None:
        self._database = database
        self.clock = clock
        self.history_max = history_max
        self.history_ms = history_ms
        self.rv = database.rv
        self._shelves: dict[str, Shelf] = {}
        for kind in kinds:
            self.add_kind(kind)
        self._changes: list[tuple[Shelf, Change]] = []
        self._accesses: list[AccessRow] = []
        self._commit: asyncio.Future[None] | None = None
        self._frozen: dict[tuple[str, int], Frozen] = {}
        self._broken: Exception | None = None
        self._load()

    def _load(self) -> None:
        for row in self._database.changes():
            shelf = self._shelves.get(row.resource)
            if shelf is None:
                continue  # a kind that is not served any more keeps its rows
            after = Stored(shelf.kind, row.key, row.body, msgspec.json.decode(row.body))
            shelf.apply(Change(row.type, after, shelf.live.get(row.key), row.time_ms))
        for shelf in self._shelves.values():
            cut = bisect.bisect_right(shelf.history, self.compacted, key=_rv)
            del shelf.history[:cut]

    @property
    def compacted(self) -> int:
        """Lists and watches at an older resourceVersion are expired."""
        return self._database.compacted

    @property
    def cluster_id(self) -> str:
        """Identity of this store's file; new objects take their uids from it and rv."""
        return self._database.cluster_id

    def add_kind(self, kind: Kind) -> None:
        """Keep objects of one more kind; the first of several of one resource counts."""
        self._shelves.setdefault(kind.resource, Shelf(kind))

    def shelf(self, kind: Kind) -> Shelf:
        """Objects of one kind."""
        return self._shelves[kind.resource]

    def get(self, kind: Kind, key: str) -> Stored | None:
        """The object under `namespace/name` or `name`."""
        return self._shelves[kind.resource].live.get(key)

    # -- writing

    def remove_all(self, kind: Kind) -> None:
        """Delete every object of a kind."""
        for stored in list(self._shelves[kind.resource].live.values()):
            self.remove(kind, stored.key, stored.object())

    def put(self, kind: Kind, key: str, obj: dict[str, Any]) -> Stored:
        """Create or replace. `obj` has kind and apiVersion first; gets its resourceVersion."""
        shelf = self._shelves[kind.resource]
        before = shelf.live.get(key)
        after = self._next(kind, key, obj)
        self._record(shelf, Change("MODIFIED" if before else "ADDED", after, before, self.clock()))
        return after

    def remove(self, kind: Kind, key: str, obj: dict[str, Any]) -> Stored:
        """Delete; `obj` is its last state."""
        shelf = self._shelves[kind.resource]
        before = shelf.live[key]
        after = self._next(kind, key, obj)
        self._record(shelf, Change("DELETED", after, before, self.clock()))
        return after

    def _next(self, kind: Kind, key: str, obj: dict[str, Any]) -> Stored:
        self.rv += 1
        obj["metadata"]["resourceVersion"] = str(self.rv)
        body = msgspec.json.encode(obj)
        assert body.startswith(kind.head), f"{kind.kind} {key} does not start with its kind"
        return Stored(kind, key, body, obj)

    def _record(self, shelf: Shelf, change: Change) -> None:
        shelf.apply(change)
        self._changes.append((shelf, change))
        self._schedule()

    def note(self, access: AccessRow) -> None:
        """Enter a write into the access ledger."""
        self._accesses.append(access)
        self._schedule()

    def _schedule(self) -> None:
        if self._commit is None:
            loop = asyncio.get_running_loop()
            self._commit = loop.create_future()
            loop.call_soon(self._commit_soon)

    def _commit_soon(self) -> None:
        # Once more through the loop: requests that are ready in this turn share the commit.
        asyncio.get_running_loop().call_soon(self.commit)

    async def committed(self) -> None:
        """Return when everything changed so far is in the file."""
        if self._commit is not None:
            await asyncio.shield(self._commit)
        if self._broken is not None:
            raise self._broken

    def settle(self) -> None:
        """Commit now, so that what is read from here on is in the file."""
        if self._commit is not None:
            self.commit()
        if self._broken is not None:
            raise self._broken

    def commit(self) -> None:
        """Write what has changed, tell the watchers, let the answers go."""
        done, self._commit = self._commit, None
        if done is None:
            return  # somebody has settled
        changes, self._changes = self._changes, []
        accesses, self._accesses = self._accesses, []
        try:
            self._database.write(
                [
                    ChangeRow(c.rv, c.time_ms, s.kind.resource, c.after.key, c.type, c.after.body)
                    for s, c in changes
                ],
                accesses,
            )
        except Exception as error:
            # Memory is ahead of the file from here on: nothing may be answered any more.
            self._broken = error
            done.set_result(None)
            raise
        self._tell(changes)
        done.set_result(None)

    def _tell(self, changes: list[tuple[Shelf, Change]]) -> None:
        by_shelf: dict[str, tuple[Shelf, list[Change]]] = {}
        for shelf, change in changes:
            by_shelf.setdefault(shelf.kind.resource, (shelf, []))[1].append(change)
        for shelf, told in by_shelf.values():
            for watcher in shelf.watchers:
                watcher.tell(told)

    # -- reading

    def at(self, kind: Kind, rv: int) -> Frozen:
        """The kind as it was at `rv`.

        Raises:
            ApiError: 410, `rv` is compacted; 504, `rv` is in the future.
        """
        if rv > self.rv:
            raise answers.too_new(rv, self.rv)
        if rv < self.compacted:
            raise answers.too_old(rv, self.compacted)
        shelf = self.shelf(kind)
        later = shelf.since(rv)
        if not later:
            return Frozen(rv, shelf.keys, shelf.live, shelf.by_index)
        known = self._frozen.get((kind.resource, rv))
        if known is not None:
            return known
        objects = dict(shelf.live)
        for change in reversed(later):
            if change.before is None:
                del objects[change.after.key]
            else:
                objects[change.after.key] = change.before
        frozen = Frozen(rv, sorted(objects), objects)
        while len(self._frozen) >= FROZEN_LISTS_MAX:
            del self._frozen[next(iter(self._frozen))]
        self._frozen[kind.resource, rv] = frozen
        return frozen

    def select(self, kind: Kind, selector: Selector) -> list[Stored]:
        """Live objects that match, in key order."""
        frozen = self.at(kind, self.rv)
        return list(matching(frozen, selector, ""))

    # -- forgetting

    def compact(self, rv: int) -> None:
        """Forget the history up to `rv`: older lists and watches are expired from now on."""
        self.settle()
        rv = min(rv, self.rv)
        if rv <= self.compacted:
            return
        unreachable: list[int] = []
        for shelf in self._shelves.values():
            cut = bisect.bisect_right(shelf.history, rv, key=_rv)
            for change in shelf.history[:cut]:
                if change.before is not None:
                    unreachable.append(change.before.rv)
                if change.type == "DELETED":
                    unreachable.append(change.rv)
            del shelf.history[:cut]
        self._frozen = {k: f for k, f in self._frozen.items() if f.rv >= rv}
        self._database.compact(rv, unreachable, self.rv)

    def compact_old(self) -> None:
        """Forget what is older or more than the limits."""
        horizon = self.clock() - self.history_ms
        histories = [shelf.history for shelf in self._shelves.values() if shelf.history]
        old = [
            history[cut - 1].rv
            for history in histories
            if (cut := bisect.bisect_right(history, horizon, key=_time_ms))
        ]
        if sum(map(len, histories)) > self.history_max:
            kept = sorted(change.rv for history in histories for change in history)
            old.append(kept[-self.history_max - 1])
        if old:
            self.compact(max(old))


def _by_index(frozen: Frozen, selector: Selector) -> set[str] | None:
    """Keys among which are all that match, None = no index tells."""
    if frozen.by_index is None or selector.indexed is None:
        return None
    return frozen.by_index.get(selector.indexed, set())


def _time_ms(change: Change) -> int:
    return change.time_ms


def span(frozen: Frozen, selector: Selector, after: str) -> tuple[int, int]:
    """[start, stop) in `frozen.keys` of the selector's namespace, of keys after `after`."""
    keys = frozen.keys
    start, stop = bisect.bisect_right(keys, after) if after else 0, len(keys)
    if selector.namespace:
        start = max(start, bisect.bisect_left(keys, selector.namespace + "/"))
        stop = bisect.bisect_left(keys, selector.namespace + "0")  # "0" follows "/"
    return start, stop


def matching(frozen: Frozen, selector: Selector, after: str) -> Iterable[Stored]:
    """Objects of `frozen` that match, in key order, keys greater than `after` only."""
    keys, objects = frozen.keys, frozen.objects
    everything = selector.selects_namespace
    chosen = _by_index(frozen, selector)
    if chosen is not None:
        for key in sorted(key for key in chosen if key > after):
            if selector.matches(key, objects[key].labels, objects[key].fields):
                yield objects[key]
        return
    for position in range(*span(frozen, selector, after)):
        stored = objects[keys[position]]
        if everything or selector.matches(stored.key, stored.labels, stored.fields):
            yield stored
