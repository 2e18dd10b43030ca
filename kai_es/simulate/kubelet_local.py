"""The kubelet's way to an API server in its own process: the same calls, without HTTP."""

import asyncio
from collections.abc import AsyncIterator, Iterable, Sequence
from typing import Final

import msgspec

from kai_es.simulate.answers import STRATEGIC_PATCH
from kai_es.simulate.api import Api, Call
from kai_es.simulate.kinds import NODE, POD
from kai_es.simulate.kubelet import Object, PodRef, Seen, all_of
from kai_es.simulate.store import Change
from kai_es.simulate.verbs import Target

CLIENT: Final = "simulated-kubelet"
_NODE_NAME: Final = POD.fields.index("spec.nodeName")


class _Inbox:
    """Committed changes of one kind, in order (`store.Watcher`)."""

    def __init__(self, kind: str, changes: list[tuple[str, Change]], wake: asyncio.Event) -> None:
        self._kind = kind
        self._changes = changes
        self._wake = wake

    def tell(self, changes: Iterable[Change]) -> None:
        for change in changes:
            if self._kind == "Node" or change.after.fields[_NODE_NAME]:
                self._changes.append((self._kind, change))
                self._wake.set()


class LocalApi:
    """`kubelet.NodeApi` on an `Api` of this process."""

    def __init__(self, api: Api) -> None:
        self._api = api

    async def follow(self) -> AsyncIterator[Sequence[Seen]]:
        """First all there is, then every change."""
        store = self._api.store
        store.settle()
        wake, changes = asyncio.Event(), list[tuple[str, Change]]()
        shelves = [store.shelf(NODE), store.shelf(POD)]
        inboxes = [_Inbox(shelf.kind.kind, changes, wake) for shelf in shelves]
        for shelf, inbox in zip(shelves, inboxes, strict=True):
            shelf.watchers.append(inbox)
        try:
            nodes = [stored.object() for stored in shelves[0].live.values()]
            pods = [s.object() for s in shelves[1].live.values() if s.fields[_NODE_NAME]]
            yield [*all_of(nodes, "Node"), *all_of(pods, "Pod")]
            while True:
                wake.clear()
                if changes:
                    chunk, changes[:] = list(changes), []
                    yield [Seen(k, c.type == "DELETED", c.after.object()) for k, c in chunk]
                else:
                    await wake.wait()
        finally:
            for shelf, inbox in zip(shelves, inboxes, strict=True):
                shelf.watchers.remove(inbox)

    async def report(self, pod: PodRef, patch: Object) -> bool:
        """Patch the status."""
        meta = patch.get("metadata", {}) | {"uid": pod.uid}
        body = msgspec.json.encode(patch | {"metadata": meta})
        target = Target(POD, pod.namespace, pod.name, "status")
        call = Call("PATCH", target, {}, body, STRATEGIC_PATCH, CLIENT, CLIENT)
        return (await self._api.write(call)).status == 200

    async def remove(self, pod: PodRef) -> bool:
        """Delete without grace."""
        options = {"gracePeriodSeconds": 0, "preconditions": {"uid": pod.uid}}
        target = Target(POD, pod.namespace, pod.name)
        body = msgspec.json.encode(options)
        call = Call("DELETE", target, {}, body, client=CLIENT, user=CLIENT)
        return (await self._api.write(call)).status == 200
