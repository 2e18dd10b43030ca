"""Configuration that comes from a file, published like objects of the cluster.

Numbers play the part of resourceVersions: each change gets the next one, a restart without a
change none.
"""

import asyncio
from collections.abc import Sequence
from typing import Any

from kai_es.events.objects import Listed
from kai_es.intake.history import History
from kai_es.intake.known import Known, digest_of
from kai_es.intake.publisher import Change, Publisher
from kai_es.kube.shape import uid_stand_in
from kai_es.ports.clock import Clock


class Given:
    """Keeps the log's objects of one kind equal to those last given.

    The source must count `heartbeats`: content decides whether something changed.
    """

    def __init__(
        self,
        known: Known,
        objects: Sequence[dict[str, Any]],
        *,
        publisher: Publisher,
        history: History,
        clock: Clock,
    ) -> None:
        assert known.source.heartbeats, "content decides"
        self.known = known
        self.problem = "not published yet"
        self._objects = list(objects)
        self._publisher = publisher
        self._history = history
        self._clock = clock
        self._changed = asyncio.Event()

    def give(self, objects: Sequence[dict[str, Any]]) -> None:
        """Replace all objects: raw ones with `metadata.name`."""
        self._objects = list(objects)
        self._changed.set()

    async def run(self) -> None:
        """Publish at the start, after each `give`, and anew in a new incarnation."""
        while True:
            self._changed.clear()
            await self._publish()
            self.problem = ""
            waiting = [
                asyncio.ensure_future(self._changed.wait()),
                asyncio.ensure_future(self._history.risen(self.known.incarnation)),
            ]
            try:
                await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for task in waiting:
                    task.cancel()

    async def _publish(self) -> None:
        known = self.known
        kind = known.source.kind
        known.enter(self._history.incarnation)
        now_ms = self._clock.now_ms()
        changes = []
        seen = set()
        for given in self._objects:
            raw = self._numbered(given)
            seen.add(raw["metadata"]["uid"])
            record = known.changed(raw)
            if record is not None:
                changes.append(Change(kind, known.incarnation, record.rv, now_ms, record))
        rv = known.rv + 1
        gone = known.missing(seen, rv)
        if gone:
            known.reached(rv)
        changes += [Change(kind, known.incarnation, rv, now_ms, record) for record in gone]
        listed = Listed(kind=kind, rv=known.rv, incarnation=known.incarnation)
        await self._publisher.put(
            [*changes, Change(kind, known.incarnation, known.rv, now_ms, listed)]
        )
        await self._publisher.flush()
        self._publisher.say_alive()

    def _numbered(self, given: dict[str, Any]) -> dict[str, Any]:
        """A copy with uid and number: the known one if the content is, else the next."""
        known = self.known
        metadata = dict(given["metadata"])
        kind = known.source.kind
        metadata["uid"] = metadata.get("uid") or uid_stand_in(kind, "", metadata["name"])
        raw = {
            **given,
            "apiVersion": known.source.resource.api_version,
            "kind": kind,
            "metadata": metadata,
        }
        version = known.versions.get(metadata["uid"])
        same = (
            version is not None
            and version.incarnation == known.incarnation
            and version.digest == digest_of(raw)
        )
        metadata["resourceVersion"] = str(version.rv if same and version else known.rv + 1)
        return raw
