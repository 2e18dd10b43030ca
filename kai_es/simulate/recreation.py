"""What a workload's controller does when a pod of it is evicted: make it again, under its name.

Stateless but for the store's history, which a restarted server has too: every deletion in it whose
pod had not ended, and whose name is free, is answered. Only pods that ask for it are made again.
"""

import asyncio
import logging
from collections.abc import Iterable
from typing import Any, Final

import msgspec

from kai_es.kube.labels import (
    BOUND_REQUEST,
    CLOSED_REQUEST,
    GPU_GROUP_LABEL,
    GPU_GROUPS_PREFIX,
    RECEIVED_RESOURCE_TYPE,
    RECREATE,
)
from kai_es.simulate.api import Api, Call
from kai_es.simulate.kinds import POD
from kai_es.simulate.store import Change
from kai_es.simulate.verbs import Target

Object = dict[str, Any]

CLIENT: Final = "simulated-controller"
_ENDED: Final = ("Succeeded", "Failed")
_OF_ONE_RUN: Final = frozenset({BOUND_REQUEST, CLOSED_REQUEST, RECEIVED_RESOURCE_TYPE})

logger = logging.getLogger(__name__)


class Recreator:
    """Follows deletions of pods until cancelled."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._gone: list[Object] = []
        self._wake = asyncio.Event()

    def tell(self, changes: Iterable[Change]) -> None:
        """Take committed changes (`store.Watcher`)."""
        gone = [change.after.object() for change in changes if change.type == "DELETED"]
        if gone:
            self._gone += gone
            self._wake.set()

    async def run(self) -> None:
        """Make pods again."""
        shelf = self._api.store.shelf(POD)
        self.tell(shelf.history)
        shelf.watchers.append(self)
        try:
            while True:
                await self._wake.wait()
                self._wake.clear()
                gone, self._gone = self._gone, []
                for pod in filter(wants_again, gone):
                    await self._create(again(pod))
        finally:
            shelf.watchers.remove(self)

    async def _create(self, pod: Object) -> None:
        meta = pod["metadata"]
        if self._api.store.get(POD, f"{meta['namespace']}/{meta['name']}") is not None:
            return
        target = Target(POD, meta["namespace"], "")
        body = msgspec.json.encode(pod)
        answer = await self._api.write(Call("POST", target, {}, body, client=CLIENT, user=CLIENT))
        if answer.status != 201:
            logger.warning("not made again", extra={"pod": meta["name"], "status": answer.status})


def wants_again(pod: Object) -> bool:
    """Whether a deleted pod asked to be made again and had not ended."""
    notes = pod["metadata"].get("annotations") or {}
    return notes.get(RECREATE) == "true" and pod.get("status", {}).get("phase") not in _ENDED


def again(pod: Object) -> Object:
    """The pod as it was first created: without what one run of it left."""
    meta, spec = pod["metadata"], dict(pod["spec"])
    spec.pop("nodeName", None)
    labels = {
        key: value
        for key, value in (meta.get("labels") or {}).items()
        if key != GPU_GROUP_LABEL and not key.startswith(GPU_GROUPS_PREFIX)
    }
    notes = {k: v for k, v in meta["annotations"].items() if k not in _OF_ONE_RUN}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": meta["name"],
            "namespace": meta["namespace"],
            "labels": labels,
            "annotations": notes,
        },
        "spec": spec,
    }
