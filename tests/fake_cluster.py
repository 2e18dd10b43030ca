"""A cluster in memory for tests of informers: histories, compaction, restores, refusals."""

import asyncio
import copy
from collections.abc import Sequence
from typing import Any

from kai_es.ports.cluster import Page, WatchItem
from kai_es.ports.errors import GoneError, RefusedError, UnavailableError


class FakeCluster:
    """`ClusterWatch` over kinds -> uid -> object.

    page:          objects per page, whatever is asked for.
    mid_list_gone: how many lists end with 410 after their first page.
    """

    def __init__(self, *, page=3):
        self.page = page
        self.rv = 10
        self.objects: dict[str, dict[str, dict[str, Any]]] = {}
        self.history: list[tuple[int, str, str, dict[str, Any]]] = []
        self.compacted = 0
        self.restores = 0
        self.mid_list_gone = 0
        self.unserved: set[str] = set()
        self.forbidden: set[str] = set()
        self.lists: list[tuple[str, str]] = []
        self.watches: list[tuple[str, int]] = []
        self._snapshots: dict[str, tuple[list[dict[str, Any]], int]] = {}
        self._moved = asyncio.Event()
        self._cuts = 0
        self._backups: list[Any] = []

    # -- what happens in the cluster

    def put(self, kind, uid, **content):
        known = self.objects.setdefault(kind, {}).get(uid)
        self._step()
        metadata = {"uid": uid, "name": f"n-{uid}", "resourceVersion": str(self.rv)}
        raw = {"metadata": metadata, **content}
        self.objects[kind][uid] = raw
        self._record("MODIFIED" if known else "ADDED", kind, raw)

    def delete(self, kind, uid):
        raw = self.objects[kind].pop(uid)
        self._step()
        raw = {**raw, "metadata": {**raw["metadata"], "resourceVersion": str(self.rv)}}
        self._record("DELETED", kind, raw)

    def _step(self):
        """The next number; those after a restore overlap with, but never repeat, those before."""
        self.rv = (self.rv // 8 + 1) * 8 + self.restores

    def bookmark(self, kind):
        self._record("BOOKMARK", kind, {"metadata": {"resourceVersion": str(self.rv)}})

    def _record(self, event, kind, raw):
        self.history.append((self.rv, event, kind, copy.deepcopy(raw)))
        self._wake()

    # -- what happens to the server

    def cut(self):
        """Every open watch breaks."""
        self._cuts += 1
        self._wake()

    def compact(self):
        """Older positions are gone, lists included; open watches break, so it is noticed."""
        self.compacted = self.rv
        self._snapshots.clear()
        self.cut()

    def back_up(self):
        self._backups.append(copy.deepcopy((self.objects, self.rv)))

    def restore(self):
        """Back to the last backup: history is rewritten, also where numbers are equal."""
        self.restores += 1
        assert self.restores < 8, "numbers would repeat"
        self.objects, self.rv = copy.deepcopy(self._backups[-1])
        self.history.clear()
        self.compact()

    def _wake(self):
        self._moved.set()
        self._moved = asyncio.Event()

    # -- ClusterWatch

    async def list_page(self, resource, *, limit, token) -> Page:
        await asyncio.sleep(0)
        kind = resource.kind
        self.lists.append((kind, token))
        if kind in self.unserved:
            raise GoneError("not served", status=404)
        if kind in self.forbidden:
            raise RefusedError("forbidden", status=403, reason="Forbidden")
        if not token:
            items = sorted(self.objects.get(kind, {}).values(), key=lambda o: o["metadata"]["uid"])
            token = f"{kind}/{len(self.lists)}/0"
            self._snapshots[token.rsplit("/", 1)[0]] = (copy.deepcopy(items), self.rv)
        name, _, start = token.rpartition("/")
        if start != "0" and self.mid_list_gone:
            self.mid_list_gone -= 1
            self._snapshots.pop(name, None)
        if name not in self._snapshots:
            raise GoneError("token too old", status=410)
        items, rv = self._snapshots[name]
        stop = int(start) + self.page
        more = f"{name}/{stop}" if stop < len(items) else ""
        return Page(items[int(start) : stop], rv, more)

    async def watch(self, resource, *, rv, silence_s):
        cuts = self._cuts
        await asyncio.sleep(0)
        kind = resource.kind
        self.watches.append((kind, rv))
        if kind in self.unserved:
            raise GoneError("not served", status=404)
        if rv < self.compacted:
            raise GoneError("too old resource version", status=410)
        if rv > self.rv:
            raise UnavailableError("too large resource version", status=504)
        while True:
            if self._cuts != cuts:
                raise UnavailableError("connection reset")
            moved = self._moved
            items = self._after(kind, rv)
            if items:
                rv = self.rv
                yield items
                continue
            await moved.wait()

    def _after(self, kind, rv) -> Sequence[WatchItem]:
        return [
            WatchItem(event, copy.deepcopy(raw))
            for at, event, of, raw in self.history
            if of == kind and at > rv
        ]

    def live(self):
        """(kind, uid) -> resourceVersion of everything there is."""
        return {
            (kind, uid): int(raw["metadata"]["resourceVersion"])
            for kind, objects in self.objects.items()
            for uid, raw in objects.items()
        }
