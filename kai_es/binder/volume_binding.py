"""Preparation: the claims of a pod's volumes are bound on its node.

Nothing is taken back: a volume that is made or kept for a claim is the claim's, wherever its pod
goes next. Kubernetes does the same, and so does the reference (binder.md §8).
"""

import asyncio
from collections.abc import Iterable, Mapping
from typing import Any, Final

from kai_es.binder.obstacles import VOLUME, ObstacleError
from kai_es.binder.plugins import VOLUMES as PLUGIN
from kai_es.binder.preparation import NotReadyError, Order, PreparationError, of_plugin
from kai_es.binder.volumes import CLAIMS, CLASSES, VOLUMES, Asked, Look, Place, Sought, look, sought
from kai_es.events.requests import BindRequested
from kai_es.kube.parse_pod import parse_pod
from kai_es.kube.parse_volumes import parse_volume_claim
from kai_es.ports.cluster import ClusterWrites, Resource
from kai_es.ports.errors import ConflictError, GoneError

Object = dict[str, Any]

POLL_S: Final = (0.1, 1.0)
"""Between looks at claims that are being bound; longer the longer it takes."""
AGAIN_S: Final = 0.02
"""After somebody else changed what was to be written."""
LAST_S: Final = 1.0
"""Before the request expires: so long it takes to fail for this reason instead."""


class VolumeBinding:
    """Kubernetes' volume binding (binder.md §9.1).

    timeout_s: how long claims may take to be bound.
    """

    name = PLUGIN
    failed = of_plugin(PLUGIN)

    def __init__(self, *, timeout_s: float) -> None:
        self._timeout_s = timeout_s

    def concerns(self, request: BindRequested) -> bool:
        """See `Preparation.concerns`."""
        return bool(request.volumes)

    async def prepare(self, order: Order) -> None:
        """See `Preparation.prepare`."""
        waited_s = order.waited_s(self.name)
        try:
            found = await self._look(order)
        except ObstacleError as exc:
            raise PreparationError(exc.code, exc.text) from exc
        if not found.pending:
            return
        if not await _write(order, found):
            raise NotReadyError(AGAIN_S)
        after_s = min(max(waited_s / 4, POLL_S[0]), POLL_S[1])
        left_s = (order.request.not_after_ms - order.clock.now_ms()) / 1000
        if waited_s > self._timeout_s or left_s < after_s + LAST_S:
            names = ", ".join(found.pending)
            raise PreparationError(
                VOLUME, f"not bound within {waited_s:.0f} s: persistentvolumeclaims {names}"
            )
        raise NotReadyError(after_s)

    async def _look(self, order: Order) -> Look:
        cluster, request = order.cluster, order.request
        node = await order.nodes.node(request.node)
        if node is None:
            raise ObstacleError(VOLUME, f"node {request.node} is gone")
        pod = parse_pod(order.live)
        claims = await _objects(cluster, CLAIMS, request.namespace, pod.spec.claims)
        parsed = [parse_volume_claim(raw) for raw in claims.values() if raw is not None]
        names = {claim.storage_class for claim in parsed if claim.storage_class}
        classes = await _objects(cluster, CLASSES, "", sorted(names))
        needs = sought(pod, claims, classes)
        return look(
            needs,
            Place(request.node, node.labels),
            await _volumes(cluster, needs),
            classes,
            _asked(order),
        )

    async def undo(self, order: Order) -> None:
        """See `Preparation.undo` and the module."""


def _asked(order: Order) -> Asked:
    asked = order.notes.setdefault(PLUGIN, Asked())
    assert isinstance(asked, Asked), "the note is ours"
    return asked


async def _objects(
    cluster: ClusterWrites, resource: Resource, namespace: str, names: Iterable[str]
) -> Mapping[str, Object | None]:
    """Objects by name, None = there is none."""

    async def one(name: str) -> Object | None:
        try:
            return await cluster.get(resource, namespace, name)
        except GoneError:
            return None

    listed = list(names)
    return dict(zip(listed, await asyncio.gather(*map(one, listed)), strict=True))


async def _volumes(cluster: ClusterWrites, needs: Sought) -> list[Object]:
    """All volumes if one is to be chosen, else those that the claims name."""
    if needs.unsettled:
        return list((await cluster.list(VOLUMES))[0])
    names = [claim.volume for claim in (*needs.bound, *(one for one, _ in needs.waiting))]
    found = await _objects(cluster, VOLUMES, "", [name for name in names if name])
    return [raw for raw in found.values() if raw is not None]


async def _write(order: Order, found: Look) -> bool:
    """Write what a look found; False = something has changed since."""
    cluster, asked = order.cluster, _asked(order)
    try:
        for volume in found.keep:
            await cluster.replace(VOLUMES, "", volume["metadata"]["name"], volume)
            asked.kept.add(volume["spec"]["claimRef"]["name"])
        for claim, changes in found.provide:
            meta = claim["metadata"]
            uid, rv = meta["uid"], int(meta["resourceVersion"])
            await cluster.patch(CLAIMS, meta["namespace"], meta["name"], changes, uid=uid, rv=rv)
            asked.provided.add(meta["name"])
    except (ConflictError, GoneError):
        return False
    return True
