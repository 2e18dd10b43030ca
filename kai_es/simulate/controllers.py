"""What kube-controller-manager does about volumes and devices, on any API server.

Pods are followed only once there is something that they could claim.
"""

import asyncio
import logging
from collections.abc import Iterable
from typing import Final

from kai_es.ports.clock import Clock, wait_for
from kai_es.ports.cluster import PODS, ClusterWatch, ClusterWrites, Resource
from kai_es.ports.errors import ConflictError, GoneError, RefusedError, UnavailableError
from kai_es.simulate import claims, volumes
from kai_es.simulate.mirror import Mirror, Object
from kai_es.simulate.steps import PodRef, Step, is_done

PAUSE_S: Final = 0.02
"""Between looks: changes come in clusters, and a look is at everything."""
RETRY_S: Final = 0.3
"""After a write that failed, if nothing changes before."""
FOR_EVER_S: Final = 3600.0

logger = logging.getLogger(__name__)


class Controllers:
    """All of them; `run` works until cancelled."""

    def __init__(self, reader: ClusterWatch, writes: ClusterWrites, clock: Clock) -> None:
        self._writes = writes
        self._clock = clock
        self._changed = asyncio.Event()
        self._since: dict[str, int] = {}

        def mirror(resource: Resource) -> Mirror:
            return Mirror(resource, reader, clock, self._changed)

        self._claims = mirror(claims.CLAIMS)
        self._templates = mirror(claims.TEMPLATES)
        self._volume_claims = mirror(volumes.CLAIMS)
        self._volumes = mirror(volumes.VOLUMES)
        self._classes = mirror(volumes.CLASSES)
        self._pods = Mirror(PODS, reader, clock, self._changed, keep=_has_claims)

    async def run(self) -> None:
        """Work until cancelled."""
        always = (
            self._claims,
            self._templates,
            self._volume_claims,
            self._volumes,
            self._classes,
        )
        async with asyncio.TaskGroup() as tasks:
            for mirror in always:
                tasks.create_task(mirror.run())
            while not any(mirror.objects for mirror in always):
                await self._changed.wait()
                self._changed.clear()
            tasks.create_task(self._pods.run())
            await self._pods.listed.wait()
            await self._work()

    async def _work(self) -> None:
        self._changed.set()
        wait_s = 0.0
        while True:
            await wait_for(self._changed, clock=self._clock, seconds=wait_s)
            await self._clock.sleep(PAUSE_S)
            self._changed.clear()
            wait_s = await self._look()

    async def _look(self) -> float:
        """Do what is to be done now; seconds until there is more without a change."""
        now_ms = self._clock.now_ms()
        pods = self._pods.objects
        due = volumes.steps(
            volumes.World(
                self._volume_claims.objects, self._volumes.objects, self._classes.objects, pods
            ),
            self._since,
            now_ms,
        )
        steps = [
            *due.steps,
            *claims.steps(claims.World(self._claims.objects, self._templates.objects, pods)),
        ]
        done = await asyncio.gather(*(self._try(step) for step in steps))
        if not all(done):
            return RETRY_S
        return max((due.again_ms - now_ms) / 1000, 0.0) if due.again_ms else FOR_EVER_S

    async def _try(self, step: Step) -> bool:
        try:
            if not await self._any_alive(step.unless):
                await self._do(step)
        except (ConflictError, GoneError, UnavailableError):
            return False  # seen too early; what is newer comes by the watch
        except RefusedError as exc:
            logger.warning("refused", extra={"resource": step.resource.plural, "why": str(exc)})
            return False
        return True

    async def _any_alive(self, pods: Iterable[PodRef]) -> bool:
        """Whether one of some pods is there after all; watches are not in step with each other."""
        for pod in pods:
            try:
                live = await self._writes.get(PODS, pod.namespace, pod.name)
            except GoneError:
                continue
            if live["metadata"]["uid"] == pod.uid and not is_done(live):
                return True
        return False

    async def _do(self, step: Step) -> None:
        meta = step.target["metadata"]
        space, name = meta.get("namespace", ""), meta.get("name", "")
        if step.verb == "create":
            await self._writes.create(step.resource, space, step.target)
            return
        uid, rv = meta["uid"], int(meta["resourceVersion"])
        if step.verb == "delete":
            await self._writes.delete(step.resource, space, name, uid=uid, rv=rv)
            return
        await self._writes.patch(
            step.resource, space, name, step.changes, uid=uid, rv=rv, subresource=step.subresource
        )


def _has_claims(pod: Object) -> bool:
    spec = pod.get("spec") or {}
    if spec.get("resourceClaims") or (pod.get("status") or {}).get("extendedResourceClaimStatus"):
        return True
    return any("ephemeral" in volume for volume in spec.get("volumes") or ())
