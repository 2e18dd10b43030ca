"""Creates a workload through the API, each job at its time.

Creation is repeated until it is known to have happened, so the API server may be killed meanwhile;
objects that are there already are taken as they are, so a workload can be loaded again.
"""

import asyncio
import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from kai_es.kube.labels import GROUP_STAMP
from kai_es.ports.clock import Clock
from kai_es.ports.errors import RefusedError, UnavailableError
from kai_es.simulate.client import CONNECTIONS, Client
from kai_es.simulate.kinds import NAMESPACE, NODE, POD, POD_GROUP, PRIORITY_CLASS, QUEUE, Kind
from kai_es.simulate.workload import Job, Workload

Object = dict[str, Any]

USER_AGENT: Final = "kai-es-loader"
RETRY_S: Final = (0.05, 0.1, 0.2, 0.4, 0.8, *[1.0] * 60)
"""Pauses between tries: a restart of the API server takes seconds, a minute is too long."""
BATCH_MAX: Final = 256
"""Jobs begun at a time."""
_AGAIN: Final = (409, 429)
"""`already exists` counts as created; too many requests are to be repeated."""


@dataclass(slots=True)
class Loader:
    """Creates objects, at most `CONNECTIONS` at a time.

    rate_per_s: creations per second, None = as fast as it goes.
    n_groups, n_pods: created so far, or found there.
    n_found: of the pods, those that were there before.
    """

    client: Client
    clock: Clock
    rate_per_s: float | None = None
    n_groups: int = 0
    n_pods: int = 0
    n_found: int = 0
    _next_s: float = 0.0
    _slots: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(CONNECTIONS))

    async def load(self, workload: Workload) -> None:
        """Create everything; returns after the last pod.

        Raises:
            RefusedError: the API server does not take an object.
            UnavailableError: no answer for a minute.
        """
        namespaces: list[Object] = [{"metadata": {"name": n}} for n in workload.namespaces]
        await self._all(
            (NAMESPACE, namespaces),
            (PRIORITY_CLASS, workload.priority_classes),
            (QUEUE, workload.queues),
        )
        await self._all((NODE, workload.nodes))
        start_s = self.clock.monotonic_s()
        async with asyncio.TaskGroup() as tasks:
            # A batch of jobs at a time: tens of thousands of waiting tasks would cost memory.
            for batch in _batches(workload.jobs):
                pause = start_s + batch[0].at_ms / 1000 - self.clock.monotonic_s()
                if pause > 0:
                    await self.clock.sleep(pause)
                created = [tasks.create_task(self._job(job)) for job in batch]
                if len(batch) == BATCH_MAX:
                    await asyncio.wait(created)

    async def _all(self, *kinds: tuple[Kind, Iterable[Object]]) -> None:
        async with asyncio.TaskGroup() as tasks:
            for kind, objects in kinds:
                for obj in objects:
                    tasks.create_task(self.create(kind, obj))

    async def _job(self, job: Job) -> None:
        group = await self.create(POD_GROUP, job.group)
        self.n_groups += 1
        meta = group["metadata"]
        stamp = {GROUP_STAMP: f"{meta['uid']}/{meta['generation']}"}
        async with asyncio.TaskGroup() as tasks:
            for pod in job.pods:
                tasks.create_task(self._pod(pod, stamp))

    async def _pod(self, pod: Object, stamp: dict[str, str]) -> None:
        annotations = pod["metadata"]["annotations"] | stamp
        await self.create(POD, pod | {"metadata": pod["metadata"] | {"annotations": annotations}})
        self.n_pods += 1

    async def create(self, kind: Kind, obj: Object) -> Object:
        """The object as the API has it, created if it was not there."""
        meta, path = obj["metadata"], kind.path
        if kind.namespaced:
            head, _, plural = path.rpartition("/")
            path = f"{head}/namespaces/{meta['namespace']}/{plural}"
        body = msgspec.json.encode(obj)
        what = f"{kind.kind} {meta.get('namespace', '')}/{meta['name']}"
        async with self._slots:
            await self._pace()
            for n, pause in enumerate(RETRY_S):
                status, answer = await self._try("POST", path, body)
                if 400 <= status < 500 and status not in _AGAIN:
                    text = f"{what}: {answer[:500].decode(errors='replace')}"
                    raise RefusedError(text, status=status)
                if status == 409:
                    self.n_found += kind is POD and n == 0
                    status, answer = await self._try("GET", f"{path}/{meta['name']}", b"")
                if status in (200, 201):
                    return msgspec.json.decode(answer, type=dict[str, Any])
                await self.clock.sleep(pause)
        raise UnavailableError(f"{what} could not be created: is the API server up?")

    async def _try(self, method: str, path: str, body: bytes) -> tuple[int, bytes]:
        """Status and body; status 0 = no answer."""
        try:
            return await self.client.call(method, path, body)
        except UnavailableError:
            return 0, b""

    async def _pace(self) -> None:
        if self.rate_per_s is None:
            return
        now = self.clock.monotonic_s()
        self._next_s = max(self._next_s, now) + 1 / self.rate_per_s
        await self.clock.sleep(self._next_s - now)


def _batches(jobs: Iterable[Job]) -> Iterator[list[Job]]:
    """Jobs that are due at the same time, at most `BATCH_MAX`."""
    for _, due in itertools.groupby(jobs, key=lambda job: job.at_ms):
        while batch := list(itertools.islice(due, BATCH_MAX)):
            yield batch
