"""Preparation: the claims of a pod get the devices that were decided, and are reserved for it.

Of the pods that share a claim each waits for the one before, within this process; between binders
the resourceVersion decides. An undone binding takes the pod from the users of its claims, and the
last user gives the devices back; the claim for extended resources goes altogether. (The reference
undoes only the latter.) A pod that is dead is taken away by kube-controller-manager.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any, Final

from kai_es.binder import claims
from kai_es.binder.claims import RESOURCE_CLAIMS
from kai_es.binder.obstacles import ObstacleError
from kai_es.binder.plugins import CLAIMS as PLUGIN
from kai_es.binder.preparation import Order, PreparationError, of_plugin
from kai_es.events.decisions import ClaimGrant, ExtendedGrant
from kai_es.events.requests import BindRequested
from kai_es.ports.cluster import ClusterWrites
from kai_es.ports.errors import ConflictError, GoneError, UnavailableError

Object = dict[str, Any]

TRIES: Final = 5  # to change a claim that others change, too

ALREADY_EXISTS: Final = "AlreadyExists"


class DeviceBinding:
    """Claims on devices (binder.md §9.1)."""

    name = PLUGIN
    failed = of_plugin(PLUGIN)

    def __init__(self) -> None:
        self._turns: dict[tuple[str, str], tuple[asyncio.Lock, int]] = {}

    def concerns(self, request: BindRequested) -> bool:
        """See `Preparation.concerns`."""
        return bool(request.claims) or request.extended is not None

    async def prepare(self, order: Order) -> None:
        """See `Preparation.prepare`."""
        try:
            for grant in order.request.claims:
                await self._grant(order, grant)
            if order.request.extended is not None:
                await self._extend(order, order.request.extended)
        except ObstacleError as exc:
            raise PreparationError(exc.code, exc.text) from exc

    async def undo(self, order: Order) -> None:
        """See `Preparation.undo`."""
        try:
            await self._undo(order)
        except ConflictError as exc:  # for the fifth time: something must not stay behind
            raise UnavailableError(exc.message, status=exc.status, reason=exc.reason) from exc

    async def _undo(self, order: Order) -> None:
        for grant in order.request.claims:
            async with self._turn(order.request.namespace, grant.claim):
                await _release(order, grant)
        if order.request.extended is not None:
            for claim in await _extended_claims(order):
                await _remove(order.cluster, claim)
            changes = None if order.pod is None else claims.untold(order.pod)
            if changes is not None:
                await order.patch_pod(changes, subresource="status")

    # -- claims that the pod names

    async def _grant(self, order: Order, grant: ClaimGrant) -> None:
        request = order.request
        name = claims.named(order.live, grant.reference)
        async with self._turn(request.namespace, name):
            for attempt in range(TRIES):
                claim = await order.cluster.get(RESOURCE_CLAIMS, request.namespace, name)
                changes = claims.granted(claim, grant, pod=request.pod, uid=request.pod_uid)
                try:
                    await _give(order, claim, changes)
                except ConflictError:
                    if attempt == TRIES - 1:
                        raise
                else:
                    return

    @contextlib.asynccontextmanager
    async def _turn(self, namespace: str, name: str) -> AsyncIterator[None]:
        """One at a time; a lock is there as long as somebody wants it."""
        key = (namespace, name)
        lock, n_wanted = self._turns.get(key, (asyncio.Lock(), 0))
        self._turns[key] = (lock, n_wanted + 1)
        try:
            async with lock:
                yield
        finally:
            lock, n_wanted = self._turns[key]
            if n_wanted == 1:
                del self._turns[key]
            else:
                self._turns[key] = (lock, n_wanted - 1)

    # -- the claim for extended resources

    async def _extend(self, order: Order, grant: ExtendedGrant) -> None:
        request = order.request
        name = claims.extended_name(request.pod, request.request_id)
        claim: Object | None = None
        for found in await _extended_claims(order):
            if found["metadata"]["name"] == name:
                claim = found
            else:  # of an earlier request, perhaps with devices of another node
                await _remove(order.cluster, found)
        if claim is None:
            claim = await _create(order, grant, name)
        changes = claims.extended_granted(claim, grant, pod=request.pod, uid=request.pod_uid)
        await _give(order, claim, changes)
        told = claims.told(order.live, grant, name)
        if told is not None:
            await order.patch_pod(told, subresource="status")


async def _give(order: Order, claim: Object, status: Object | None) -> None:
    """Write into a claim what it needs before its status, and its status."""
    request = order.request
    mark = claims.marked(claim, uid=request.pod_uid, request_id=request.request_id)
    if mark is not None:
        claim = await _patch(order.cluster, claim, mark)
    if status is not None:
        await _patch(order.cluster, claim, status, subresource="status")


async def _patch(
    cluster: ClusterWrites, claim: Object, changes: Object, *, subresource: str = ""
) -> Object:
    meta = claim["metadata"]
    return await cluster.patch(
        RESOURCE_CLAIMS,
        meta["namespace"],
        meta["name"],
        changes,
        uid=meta["uid"],
        rv=int(meta["resourceVersion"]),
        subresource=subresource,
    )


async def _release(order: Order, grant: ClaimGrant) -> None:
    """Take the pod from the users of a claim."""
    for attempt in range(TRIES):
        try:
            claim = await order.cluster.get(RESOURCE_CLAIMS, order.request.namespace, grant.claim)
            changes = claims.released(claim, order.request.pod_uid)
            if changes is not None and claim["metadata"]["uid"] == grant.claim_uid:
                await _patch(order.cluster, claim, changes, subresource="status")
        except GoneError:
            return
        except ConflictError:
            if attempt == TRIES - 1:
                raise
        else:
            return


async def _extended_claims(order: Order) -> list[Object]:
    found, _ = await order.cluster.list(RESOURCE_CLAIMS, order.request.namespace)
    return claims.extended_of(found, order.request.pod_uid)


async def _create(order: Order, grant: ExtendedGrant, name: str) -> Object:
    """The claim of this request; one that was made by a try whose answer was lost counts."""
    request = order.request
    body = claims.extended_claim(
        grant, name=name, namespace=request.namespace, pod=request.pod, uid=request.pod_uid
    )
    try:
        return await order.cluster.create(RESOURCE_CLAIMS, request.namespace, body)
    except ConflictError as exc:
        if exc.reason != ALREADY_EXISTS:
            raise
    return await order.cluster.get(RESOURCE_CLAIMS, request.namespace, name)


async def _remove(cluster: ClusterWrites, claim: Object) -> None:
    """Delete a claim at once: its devices come free with it."""
    for attempt in range(TRIES):
        meta = claim["metadata"]
        space, name, uid = meta["namespace"], meta["name"], meta["uid"]
        try:
            changes = claims.unprotected(claim)
            if changes is not None:
                claim = await _patch(cluster, claim, changes)
            if "deletionTimestamp" not in meta:
                rv = int(claim["metadata"]["resourceVersion"])
                await cluster.delete(RESOURCE_CLAIMS, space, name, uid=uid, rv=rv)
        except GoneError:
            return
        except ConflictError:
            if attempt == TRIES - 1:
                raise
            try:
                claim = await cluster.get(RESOURCE_CLAIMS, space, name)
            except GoneError:
                return
            if claim["metadata"]["uid"] != uid:
                return
        else:
            return
