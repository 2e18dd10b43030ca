"""Live copies of whole kinds, kept by list and watch, for the simulated controllers."""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, Final

from kai_es.ports.clock import Clock
from kai_es.ports.cluster import ClusterWatch, Resource
from kai_es.ports.errors import GoneError, RefusedError, UnavailableError

Object = dict[str, Any]
Keep = Callable[[Object], bool]

PAGE: Final = 500
SILENCE_S: Final = 75.0
"""A watch that is silent for longer, bookmarks included, is taken up anew."""
RETRY_S: Final = 0.2
ABSENT_S: Final = 5.0
"""Between looks for a kind that the server does not have."""


class Mirror:
    """Objects of one kind by `namespace/name`; rides out restarts, 410 and 429.

    keep: which objects are held, all by default.
    """

    def __init__(
        self,
        resource: Resource,
        reader: ClusterWatch,
        clock: Clock,
        changed: asyncio.Event,
        keep: Keep = lambda _: True,
    ) -> None:
        self.objects: dict[str, Object] = {}
        self.listed = asyncio.Event()
        self._resource = resource
        self._reader = reader
        self._clock = clock
        self._changed = changed
        self._keep = keep

    async def run(self) -> None:
        """Follow until cancelled."""
        while True:
            try:
                rv = await self._list()
                await self._watch(rv)
            except GoneError as exc:
                await self._clock.sleep(ABSENT_S if exc.status == 404 else 0.0)
            except (UnavailableError, RefusedError):
                await self._clock.sleep(RETRY_S)

    async def _list(self) -> int:
        found: dict[str, Object] = {}
        token = ""
        while True:
            page = await self._reader.list_page(self._resource, limit=PAGE, token=token)
            found |= {key_of(obj): obj for obj in page.items if self._keep(obj)}
            token = page.token
            if not token:
                break
        self.objects.clear()
        self.objects.update(found)
        self.listed.set()
        self._changed.set()
        return page.rv

    async def _watch(self, rv: int) -> None:
        while True:
            async for items in self._reader.watch(self._resource, rv=rv, silence_s=SILENCE_S):
                for item in items:
                    rv = int(item.object["metadata"]["resourceVersion"])
                    if item.type != "BOOKMARK":
                        self._note(item.object, is_gone=item.type == "DELETED")

    def _note(self, obj: Object, *, is_gone: bool) -> None:
        key = key_of(obj)
        if is_gone or not self._keep(obj):
            if self.objects.pop(key, None) is None:
                return
        else:
            self.objects[key] = obj
        self._changed.set()


def key_of(obj: Mapping[str, Any]) -> str:
    """`namespace/name`, or the name alone."""
    meta = obj["metadata"]
    return f"{meta['namespace']}/{meta['name']}" if meta.get("namespace") else str(meta["name"])
