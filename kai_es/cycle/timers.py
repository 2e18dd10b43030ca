"""When a cycle is due although nothing changes: grace periods, delays, min runtimes, back-off.

The earliest moment at which time alone can change a decision. A moment too many costs one cycle
that finds nothing; so every configured duration that may matter counts. Kept per pod group and
redone for groups that changed, so the cost follows the number of changes.
"""

import heapq
from collections.abc import Hashable, Iterable, Iterator
from typing import Any, NamedTuple

from kai_es.kube.errors import InvalidObjectError
from kai_es.kube.objects import ShardConfig
from kai_es.kube.times import duration_ms
from kai_es.snapshot.snapshot import GroupKey, GroupRow, Snapshot

_QUEUE_DEPTH_MAX = 64
"""A queue tree deeper than this, or one with a loop, is not followed further."""


class Durations(NamedTuple):
    """The configured durations that a timer may come from, ms.

    staleness_grace: until a stale gang is evicted.
    stuck: until a pod that is leaving counts as stuck.
    min_runtimes: defaults of the plugin `minruntime`.
    """

    staleness_grace: int = 60_000
    stuck: int = 120_000
    min_runtimes: tuple[int, ...] = ()


def durations_of(config: ShardConfig) -> Durations:
    """Durations in the settings of a shard."""
    settings = config.settings
    given = {
        field: settings[key]
        for field, key in (
            ("staleness_grace", "staleness_grace_ms"),
            ("stuck", "stuck_in_releasing_ms"),
        )
        if isinstance(settings.get(key), int)
    }
    arguments = [
        value
        for plugin in settings.get("plugins") or ()
        if plugin.get("name") == "minruntime"
        for value in (plugin.get("arguments") or {}).values()
    ]
    found = {ms for ms in map(_argument_ms, arguments) if ms > 0}
    return Durations(**given, min_runtimes=tuple(sorted(found)))


def _argument_ms(value: Any) -> int:
    try:
        return duration_ms(str(value), what="minruntime", field="argument")
    except InvalidObjectError:
        return 0  # the plugin takes no notice of it either


class Timers:
    """Due times of all pod groups of a snapshot. Follows it from its making on."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._rows = snapshot
        self._durations = Durations()
        self._times: dict[GroupKey, frozenset[int]] = {}
        self._heap: list[tuple[int, GroupKey]] = []
        self._dirty: set[GroupKey] = {row.name for row in snapshot.groups.live()}
        snapshot.follow(self)

    def configure(self, durations: Durations) -> None:
        """Count with these durations from now on."""
        if durations != self._durations:
            self._durations = durations
            self.queues_changed()

    def node_changed(self, name: str) -> None:
        """Nodes have no timers."""

    def group_changed(self, key: GroupKey) -> None:
        """A pod group, or its pods, changed."""
        self._dirty.add(key)

    def queues_changed(self) -> None:
        """Min runtimes may have changed."""
        self._dirty.update(row.name for row in self._rows.groups.live())

    def object_changed(self, kind: str, name: Hashable) -> None:
        """Nothing that is only looked up by name has a timer."""

    def next_ms(self, after_ms: int) -> int | None:
        """The earliest due time after a moment, ms since the epoch, None = there is none."""
        for key in sorted(self._dirty):
            self._redo(key)
        self._dirty.clear()
        while self._heap:
            due_ms, key = self._heap[0]
            if due_ms > after_ms and due_ms in self._times.get(key, ()):
                return due_ms
            heapq.heappop(self._heap)
        return None

    def _redo(self, key: GroupKey) -> None:
        row = self._rows.groups.get(key)
        times = frozenset(self._of(row)) if row is not None else frozenset()
        for due_ms in sorted(times - self._times.get(key, frozenset())):
            heapq.heappush(self._heap, (due_ms, key))
        if times:
            self._times[key] = times
        else:
            self._times.pop(key, None)

    def _of(self, row: GroupRow) -> Iterator[int]:
        group, state = row.group, row.state
        for _, not_before_ms, _ in state.backoff:
            yield not_before_ms
        if state.stale_since_ms:
            grace_ms = group.staleness_grace_ms
            yield state.stale_since_ms + (
                self._durations.staleness_grace if grace_ms is None else grace_ms
            )
        if group.preemption_delay_ms:
            yield max(group.created_ms, state.last_eviction_ms) + group.preemption_delay_ms
        if state.last_start_ms:
            for runtime_ms in self._min_runtimes(group.queue):
                yield state.last_start_ms + runtime_ms
        for pod in self._rows.pods_of_group.get(row.name, {}).values():
            if pod.pod.deleted_ms:
                yield pod.pod.deleted_ms + self._durations.stuck + 1

    def _min_runtimes(self, queue: str) -> Iterable[int]:
        """Durations for which a queue, or one above it, protects what has started."""
        found = set(self._durations.min_runtimes)
        for _ in range(_QUEUE_DEPTH_MAX):
            row = self._rows.queues.get(queue)
            if row is None:
                break
            for runtime_ms in (row.queue.preempt_min_runtime_ms, row.queue.reclaim_min_runtime_ms):
                if runtime_ms:
                    found.add(runtime_ms)
            queue = row.queue.parent
        return found
