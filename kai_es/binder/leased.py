"""Writes to the cluster that are made only while their writer surely has its role."""

from collections.abc import Mapping, Sequence
from typing import Any

from kai_es.events.requests import Answer
from kai_es.ports.cluster import ClusterWrites, Resource
from kai_es.ports.eventlog import Lease, check_lease


class LeasedCluster:
    """`ClusterWrites` under a lease.

    Raises (every write): FencedError: the lease is too old, so another may write by now.
    """

    def __init__(self, cluster: ClusterWrites, lease: Lease) -> None:
        self._cluster = cluster
        self._lease = lease

    def _writes(self) -> ClusterWrites:
        check_lease(self._lease, "the binder")
        return self._cluster

    async def get(self, resource: Resource, namespace: str, name: str) -> dict[str, Any]:
        """See `ClusterWrites.get`."""
        return await self._cluster.get(resource, namespace, name)

    async def list(
        self, resource: Resource, namespace: str = "", *, labels: str = "", fields: str = ""
    ) -> tuple[Sequence[dict[str, Any]], int]:
        """See `ClusterWrites.list`."""
        return await self._cluster.list(resource, namespace, labels=labels, fields=fields)

    async def create(
        self, resource: Resource, namespace: str, body: Mapping[str, Any]
    ) -> dict[str, Any]:
        """See `ClusterWrites.create`."""
        return await self._writes().create(resource, namespace, body)

    async def replace(
        self, resource: Resource, namespace: str, name: str, body: Mapping[str, Any]
    ) -> dict[str, Any]:
        """See `ClusterWrites.replace`."""
        return await self._writes().replace(resource, namespace, name, body)

    async def bind(
        self,
        namespace: str,
        pod: str,
        *,
        uid: str,
        rv: int,
        node: str,
        annotations: Mapping[str, str],
    ) -> Answer:
        """See `ClusterWrites.bind`."""
        return await self._writes().bind(
            namespace, pod, uid=uid, rv=rv, node=node, annotations=annotations
        )

    async def delete(
        self,
        resource: Resource,
        namespace: str,
        name: str,
        *,
        uid: str,
        rv: int,
        grace_s: int | None = None,
    ) -> Answer:
        """See `ClusterWrites.delete`."""
        return await self._writes().delete(
            resource, namespace, name, uid=uid, rv=rv, grace_s=grace_s
        )

    async def evict(self, namespace: str, pod: str, *, uid: str, rv: int) -> Answer:
        """See `ClusterWrites.evict`."""
        return await self._writes().evict(namespace, pod, uid=uid, rv=rv)

    async def patch(
        self,
        resource: Resource,
        namespace: str,
        name: str,
        changes: Mapping[str, Any],
        *,
        uid: str,
        rv: int,
        subresource: str = "",
    ) -> dict[str, Any]:
        """See `ClusterWrites.patch`."""
        return await self._writes().patch(
            resource, namespace, name, changes, uid=uid, rv=rv, subresource=subresource
        )

    async def set_conditions(
        self,
        namespace: str,
        pod: str,
        conditions: Sequence[Mapping[str, Any]],
        *,
        annotations: Mapping[str, str],
        uid: str,
        rv: int,
    ) -> dict[str, Any]:
        """See `ClusterWrites.set_conditions`."""
        return await self._writes().set_conditions(
            namespace, pod, conditions, annotations=annotations, uid=uid, rv=rv
        )
