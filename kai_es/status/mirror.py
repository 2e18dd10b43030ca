"""BindRequest objects for people who look at them: what a request says, not what acts on it.

Nothing reads them: orders go over the log. They carry a label, so that nobody takes them for
requests of an installed KAI.

Reference: pkg/apis/scheduling/v1alpha2, pkg/scheduler/cache (binder §3.1, apis §4).
"""

from collections.abc import Callable
from typing import Any, Final, NamedTuple

from kai_es.events.requests import AttemptFailed, Bound, Refused
from kai_es.kube.labels import MIRROR, NODE_POOL_LABEL
from kai_es.kube.objects import Pod
from kai_es.ports.cluster import BIND_REQUESTS, ClusterWrites
from kai_es.ports.errors import ConflictError, GoneError
from kai_es.scheduler.dump import bind_request_spec
from kai_es.snapshot.lifecycle import Request
from kai_es.snapshot.world import World
from kai_es.status.pods import error_of

TRUE: Final = "true"


class Mirrored(NamedTuple):
    """The object of a pod's last request as it was written."""

    request_id: str
    uid: str
    rv: int
    status: dict[str, Any]


class Mirror:
    """Objects by pod uid, as this process has written them.

    check: raises if nothing may be written.
    """

    def __init__(self, world: World, cluster: ClusterWrites, check: Callable[[], None]) -> None:
        self._world = world
        self._cluster = cluster
        self._check = check
        self._written: dict[str, Mirrored] = {}

    async def write(self, pod_uid: str) -> None:
        """Make the object of a pod say what its last bind request says.

        Raises:
            ConflictError: somebody changed it meanwhile: do it again.
            UnavailableError, RefusedError: as the port.
        """
        row = self._world.snapshot.pods.get(pod_uid)
        request = self._last(pod_uid)
        if row is None or request is None:
            self._written.pop(pod_uid, None)
            return
        known = self._written.get(pod_uid)
        if known is None or known.request_id != request.id:
            known = await self._renew(row.pod, request, known)
            if known is None:
                return
        status = status_of(request)
        if status != known.status:
            self._check()
            answer = await self._cluster.patch(
                BIND_REQUESTS,
                row.pod.namespace,
                row.pod.name,
                {"status": status},
                uid=known.uid,
                rv=known.rv,
                subresource="status",
            )
            known = known._replace(rv=_rv(answer), status=status)
        self._written[pod_uid] = known

    def forget(self, pod_uid: str) -> None:
        """Its object is not as this process wrote it."""
        self._written.pop(pod_uid, None)

    def _last(self, pod_uid: str) -> Request | None:
        binds = [r for r in self._world.requests.of_pod(pod_uid) if not r.evict]
        return binds[-1] if binds else None

    async def _renew(self, pod: Pod, request: Request, known: Mirrored | None) -> Mirrored | None:
        """Make the object anew; None = there is one of somebody else."""
        body = object_of(pod, request, self._pool(request))
        for _ in range(2):
            if known is not None:
                await self._delete(pod, known.uid, known.rv)
            self._check()
            try:
                made = await self._cluster.create(BIND_REQUESTS, pod.namespace, body)
            except ConflictError:
                found = await self._found(pod)
                if found is None or found["metadata"].get("labels", {}).get(MIRROR) != TRUE:
                    return None
                known = Mirrored("", found["metadata"]["uid"], _rv(found), {})
            else:
                return Mirrored(request.id, made["metadata"]["uid"], _rv(made), {})
        raise ConflictError(f"BindRequest {pod.namespace}/{pod.name} is made by somebody else, too")

    async def _found(self, pod: Pod) -> dict[str, Any] | None:
        try:
            return await self._cluster.get(BIND_REQUESTS, pod.namespace, pod.name)
        except GoneError:
            return None

    async def _delete(self, pod: Pod, uid: str, rv: int) -> None:
        self._check()
        try:
            await self._cluster.delete(BIND_REQUESTS, pod.namespace, pod.name, uid=uid, rv=rv)
        except GoneError:
            return

    def _pool(self, request: Request) -> tuple[str, str]:
        config = self._world.snapshot.config(request.shard)
        settings = config.settings if config is not None else {}
        return (
            str(settings.get("node_pool_key", NODE_POOL_LABEL)),
            str(settings.get("node_pool_value", "")),
        )


def object_of(pod: Pod, request: Request, pool: tuple[str, str]) -> dict[str, Any]:
    """A request as an object. `pool`: label key and value of the shard's node pool, "" = none."""
    labels = {"selected-node": request.node, MIRROR: TRUE}
    if all(pool):
        labels[pool[0]] = pool[1]
    owner = {"apiVersion": "v1", "kind": "Pod", "name": pod.name, "uid": pod.uid}
    return {
        "apiVersion": BIND_REQUESTS.api_version,
        "kind": BIND_REQUESTS.kind,
        "metadata": {
            "name": pod.name,
            "namespace": pod.namespace,
            "labels": labels,
            "ownerReferences": [owner],
        },
        "spec": bind_request_spec(pod.name, request),
    }


def status_of(request: Request) -> dict[str, Any]:
    """What a request came to so far."""
    outcome = request.outcome
    status: dict[str, Any] = {}
    if outcome.failed is not None:
        status["failedAttempts"] = outcome.failed.attempt
    match outcome.final:
        case Bound():
            status["phase"] = "Succeeded"
        case AttemptFailed() | Refused() as final:
            status |= {"phase": "Failed", "reason": error_of(final)}
        case _:
            pass
    return status


def _rv(raw: dict[str, Any]) -> int:
    return int(raw["metadata"]["resourceVersion"])
