"""Pods with claims on a simulated API server, and a binder that is told what to do with them."""

import asyncio

from kai_es.events.decisions import ClaimGrant, ContainerMapping, ExtendedGrant
from kai_es.kube.devices import AllocatedDevice, Allocation, DeviceRequest
from kai_es.ports.cluster import NODES, PODS
from kai_es.ports.errors import GoneError
from kai_es.simulate import claims, volumes
from tests.clocks import HastyClock
from tests.simulation.api_client import a_pod
from tests.unit.test_binder import World

REQUEST = {"name": "gpu", "exactly": {"deviceClassName": "gpu.example.com", "count": 1}}
REQUESTS = {"devices": {"requests": [REQUEST]}}
SECONDS = 30.0


def devices(*names, node="n1", request="gpu"):
    """An allocation of devices of a node."""
    return Allocation(
        devices=tuple(AllocatedDevice(request, "gpu.example.com", node, name) for name in names)
    )


def extended(*names, node="n1"):
    """A grant for a container that asks for one GPU."""
    request = "container-0-request-0"
    return ExtendedGrant(
        devices(*names, node=node, request=request),
        (DeviceRequest(name=request, device_class="gpu.example.com", count=1),),
        (ContainerMapping("main", "nvidia.com/gpu", request),),
    )


class Claimants(World):
    """Nodes `n1`, `n2`; orders carry what the objects are when they are given."""

    def __init__(self, port, cluster=None):
        super().__init__()
        self.port = port
        self.clock = HastyClock()
        self.cluster = cluster or port
        self.nodes = {}

    async def start(self):
        for name in ("n1", "n2"):
            node = {
                "metadata": {"name": name, "labels": {"host": name}},
                "status": {"allocatable": {"cpu": "64", "memory": "64Gi", "pods": "200"}},
            }
            self.nodes[name] = await self.port.create(NODES, "", node)
        return self

    def binder(self, **changes):
        return super().binder(**({"cluster": self.cluster} | changes))

    # -- objects

    async def pod(self, name="p", *, claims=(), templates=(), volumes=(), **spec):
        body = a_pod(name)
        body["spec"] |= spec
        named = [{"name": c, "resourceClaimName": c} for c in claims]
        made = [{"name": t, "resourceClaimTemplateName": t} for t in templates]
        if named or made:
            body["spec"]["resourceClaims"] = named + made
        if volumes:
            body["spec"]["volumes"] = [
                {"name": f"v{n}", "persistentVolumeClaim": {"claimName": claim}}
                for n, claim in enumerate(volumes)
            ]
        return await self.port.create(PODS, "ns", body)

    async def claim(self, name="c", **metadata):
        body = {"metadata": {"name": name, **metadata}, "spec": REQUESTS}
        return await self.port.create(claims.CLAIMS, "ns", body)

    async def storage_class(self, name="disk", provisioner="csi.example.com"):
        mode = "WaitForFirstConsumer"
        body = {"metadata": {"name": name}, "provisioner": provisioner, "volumeBindingMode": mode}
        await self.port.create(volumes.CLASSES, "", body)

    async def volume_claim(self, name, storage_class="disk"):
        spec = {
            "storageClassName": storage_class,
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "1Gi"}},
        }
        return await self.port.create(
            volumes.CLAIMS, "ns", {"metadata": {"name": name}, "spec": spec}
        )

    async def volume(self, name, host="n1", storage_class="local"):
        on = {"key": "host", "operator": "In", "values": [host]}
        spec = {
            "storageClassName": storage_class,
            "accessModes": ["ReadWriteOnce"],
            "capacity": {"storage": "2Gi"},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [on]}]}},
            "local": {"path": "/disk"},
        }
        made = await self.port.create(
            volumes.VOLUMES, "", {"metadata": {"name": name}, "spec": spec}
        )
        return await self.until(self.has_phase, volumes.VOLUMES, "", made["metadata"]["name"])

    async def has_phase(self, resource, namespace, name, phase="Available"):
        found = await self.port.get(resource, namespace, name)
        return found if (found.get("status") or {}).get("phase") == phase else None

    async def patch(self, resource, name, changes, subresource=""):
        meta = (await self.port.get(resource, "ns", name))["metadata"]
        return await self.port.patch(
            resource,
            "ns",
            name,
            changes,
            uid=meta["uid"],
            rv=int(meta["resourceVersion"]),
            subresource=subresource,
        )

    async def delete(self, resource, name, grace_s=None):
        meta = (await self.port.get(resource, "ns", name))["metadata"]
        await self.port.delete(
            resource,
            "ns",
            name,
            uid=meta["uid"],
            rv=int(meta["resourceVersion"]),
            grace_s=grace_s,
        )

    async def get_claim(self, name="c"):
        return await self.port.get(claims.CLAIMS, "ns", name)

    async def users(self, name="c"):
        status = (await self.get_claim(name)).get("status") or {}
        return [one["name"] for one in status.get("reservedFor") or ()]

    async def is_allocated(self, name="c"):
        return bool(((await self.get_claim(name)).get("status") or {}).get("allocation"))

    async def extended_claims(self):
        found, _ = await self.port.list(claims.CLAIMS, "ns")
        notes = [one["metadata"].get("annotations") or {} for one in found]
        return [
            claim
            for claim, note in zip(found, notes, strict=True)
            if note.get("resource.kubernetes.io/extended-resource-claim") == "true"
        ]

    # -- orders

    async def grant(self, name="c", *, given=None, reference=None):
        """What a decision gives a pod of a claim."""
        uid = (await self.get_claim(name))["metadata"]["uid"]
        return ClaimGrant(reference or name, name, uid, given or devices("d0"))

    async def bind(self, pod="p", *, node="n1", seconds=120.0, **changes):
        live = (await self.port.get(PODS, "ns", pod))["metadata"]
        fields = {
            "pod_uid": live["uid"],
            "pod_rv": int(live["resourceVersion"]),
            "node_uid": self.nodes[node]["metadata"]["uid"],
            "not_after_ms": self.clock.now_ms() + int(seconds * 1000),
        }
        return await self.order(pod, node=node, **(fields | changes))

    async def final(self, request_id):
        async with asyncio.timeout(SECONDS):
            return await super().final(request_id)

    async def get_pod(self, name="p"):
        return await self.port.get(PODS, "ns", name)

    async def node_of(self, name="p"):
        return (await self.get_pod(name))["spec"].get("nodeName", "")

    async def until(self, look, *wanted):
        """What `look` finds, as soon as it finds something."""
        async with asyncio.timeout(SECONDS):
            while True:
                try:
                    found = await look(*wanted)
                except GoneError:
                    found = None
                if found:
                    return found
                await asyncio.sleep(0.01)
