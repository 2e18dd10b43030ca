"""What the reference's plugins `snapshot` and `reflectjoborder` serve, told from the log.

`/get-snapshot`: the objects as the informer has seen them last (`objects.index`), with the shard's
configuration and its open bind requests, as a zip that the reference's own tools read.
`/get-job-order`: the jobs that wait, in the order in which the next cycle would try them.

Reference: pkg/scheduler/plugins/{snapshot,reflectjoborder} (plugins §12).
"""

import asyncio
import io
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

import msgspec

from kai_es.events.decisions import CycleInputs
from kai_es.intake.index import IndexedObject, read_index
from kai_es.ports.clock import Clock
from kai_es.ports.errors import UnavailableError
from kai_es.ports.eventlog import EventLog
from kai_es.reader import View
from kai_es.runtime.part import Page, Pages
from kai_es.scheduler.config import Config, ConfigError, parse_settings
from kai_es.scheduler.dump import POOLED, dump_of
from kai_es.scheduler.job_order import Waiting, job_order
from kai_es.scheduler.snapshot_file import KINDS

ENTRY: Final = "snapshot.json"
GET_SNAPSHOT: Final = "/get-snapshot"
GET_JOB_ORDER: Final = "/get-job-order"
PATHS: Final = (GET_SNAPSHOT, GET_JOB_ORDER)

NOT_FOUND: Final = Page(404, "text/plain", b"plugin not found\n")

_Objects = dict[str, dict[str, IndexedObject]]
"""By kind and key."""
Usage = Callable[[], Mapping[str, Mapping[str, float]]]


class _Head(msgspec.Struct):
    """What of a raw object decides whether it is in a dump."""

    metadata: dict[str, Any] = {}
    status: Any = None


class PluginPages:
    """Answers of one shard.

    Args:
        log: where `objects.index` is.
        clock: for the time of an order.
        view: on `snapshot`.
        shard: its name.
        usage: of queues, as the next cycle would have it.
    """

    def __init__(self, log: EventLog, clock: Clock, view: View, shard: str, usage: Usage) -> None:
        self._log = log
        self._clock = clock
        self._view = view
        self._shard = shard
        self._usage = usage

    def pages(self) -> Pages:
        """By path."""
        return {GET_SNAPSHOT: self.snapshot, GET_JOB_ORDER: self.job_order}

    def _config(self, plugin: str) -> Config | None:
        """The shard's configuration, if it has the plugin."""
        found = self._view.world.snapshot.config(self._shard)
        if found is None:
            return None
        try:
            config = parse_settings(found.settings)
        except ConfigError:
            return None
        return config if any(one.name == plugin for one in config.plugins) else None

    def _without(self, plugin: str) -> Page:
        """Beginning with the reference's words."""
        text = (
            f"plugin not found: {plugin} is not in the configuration of shard {self._shard}; name "
            "it in the tiers of the informer's --config FILE and start that again\n"
        )
        return Page(404, "text/plain", text.encode())

    async def snapshot(self) -> Page:
        """The dump of the shard."""
        config = self._config("snapshot")
        if config is None:
            return self._without("snapshot")
        try:
            objects = await self._objects()
        except UnavailableError as exc:
            return not_ready(str(exc))
        shown = await asyncio.to_thread(_shown, config, objects)  # of 100,000 pods: a second
        async with self._view.still() as world:
            not_served = [k for _, k in KINDS if not world.liveness.is_served(k)]
            dump = dump_of(
                config, world.snapshot, lambda kind: shown.get(kind, ()), not_served=not_served
            )
        body = await asyncio.to_thread(_zipped, dump)
        return Page(200, "application/zip", body, filename="snapshot.zip")

    async def _objects(self) -> _Objects:
        """The last version of every object, by kind and key."""
        found: _Objects = {}

        def seen(record: IndexedObject) -> None:
            found.setdefault(record.kind, {})[f"{record.kind}/{record.uid}"] = record

        def gone(key: str) -> None:
            found.get(key.partition("/")[0], {}).pop(key, None)

        await read_index(self._log, seen=seen, gone=gone)
        return found

    async def job_order(self) -> Page:
        """The jobs that wait, in order."""
        config = self._config("reflectjoborder")
        if config is None:
            return self._without("reflectjoborder")
        if not self._view.caught_up.is_set():
            return not_ready("Job order data not ready")
        async with self._view.still() as world:
            usage = {queue: dict(of) for queue, of in self._usage().items()}
            now_ms = max(self._clock.now_ms(), world.time)
            inputs = CycleInputs(shard=self._shard, cycle=0, now_ms=now_ms, usage=usage)
            order = await asyncio.to_thread(job_order, world.snapshot, config, inputs)
        return Page(200, "application/json", _order_json(order))


def not_ready(why: str) -> Page:
    """An answer for now."""
    return Page(503, "text/plain", f"{why}\n".encode())


def _shown(config: Config, objects: _Objects) -> dict[str, list[msgspec.Raw]]:
    """By kind, the objects that are in the dump of a shard, by namespace and name."""
    return {kind: list(_of_kind(config, kind, found.values())) for kind, found in objects.items()}


def _of_kind(config: Config, kind: str, records: Iterable[IndexedObject]) -> Iterator[msgspec.Raw]:
    lens = config.lens()
    for record in sorted(records, key=lambda one: (one.namespace, one.name, one.uid)):
        if kind in POOLED or kind == "Pod":
            head = msgspec.json.decode(record.object, type=_Head)
            if kind in POOLED and not lens.selects(head.metadata.get("labels") or {}):
                continue
            if kind == "Pod" and (head.status or {}).get("phase") == "Failed":
                continue
        yield record.object


def _zipped(dump: Mapping[str, Any]) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(ENTRY, msgspec.json.encode(dump))
    return file.getvalue()


def _order_json(order: Iterable[Waiting]) -> bytes:
    shown: dict[str, Any] = {"global_order": [], "queue_order": {}}
    for job in order:
        one = {"id": job.name, "priority": job.priority}
        shown["global_order"].append(one)
        shown["queue_order"].setdefault(job.queue, []).append(one)
    return msgspec.json.format(msgspec.json.encode(shown), indent=2) + b"\n"
