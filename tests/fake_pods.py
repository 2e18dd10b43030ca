"""Pods and nodes in memory for tests of the binder, with everything that can get in its way.

Reservation pods tell their GPU as soon as they are made.
"""

import asyncio
import copy

from kai_es.events.requests import Answer
from kai_es.kube.labels import GPU_INDEX
from kai_es.ports.errors import ConflictError, GoneError, RefusedError, UnavailableError

ERRORS = {"conflict": ConflictError, "gone": GoneError, "refused": RefusedError}


class FakePods:
    """`ClusterWrites` over pods and nodes.

    faults: list of (call, what) taken in order: call is get | bind | delete | patch | node; what is
            `away` (not done), `lost` (done, no answer), `forbidden` (403), `ok`, or a function
            called before the call is done.
    calls:  what was asked for, in order; lists and what concerns other kinds left out.
    others: objects of other kinds and reservation pods, by (kind, name).
    binds:  bindings that were done: (pod uid, node).
    """

    def __init__(self):
        self.rv = 100
        self.pods = {}
        self.nodes = {}
        self.others = {}
        self.faults = []
        self.calls = []
        self.binds = []
        self.deletes = []
        self.away = False

    def node(self, name, uid=None):
        self.nodes[name] = uid or f"uid-{name}"
        return self.nodes[name]

    def pod(self, name, uid=None, **fields):
        """A pending pod; fields: node, phase, deleting, gates, annotations, labels."""
        self.rv += 1
        pod = {
            "metadata": {
                "namespace": "ns",
                "name": name,
                "uid": uid or f"uid-{name}",
                "resourceVersion": str(self.rv),
                "annotations": dict(fields.get("annotations", {})),
                "labels": dict(fields.get("labels", {})),
            },
            "spec": {"nodeName": fields.get("node", ""), "containers": [{"name": "main"}]},
            "status": {"phase": fields.get("phase", "Pending")},
        }
        if fields.get("gates"):
            pod["spec"]["schedulingGates"] = [{"name": "g"}]
        if fields.get("deleting"):
            pod["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
        self.pods[name] = pod
        return pod

    def touch(self, name):
        """Somebody else writes to the pod."""
        self._touch(self.pods[name])

    def _touch(self, obj):
        self.rv += 1
        obj["metadata"]["resourceVersion"] = str(self.rv)

    def rv_of(self, name):
        return int(self.pods[name]["metadata"]["resourceVersion"])

    def node_of(self, name):
        return self.pods[name]["spec"]["nodeName"]

    # -- ClusterWrites

    async def list(self, resource, namespace="", *, labels="", fields=""):
        await asyncio.sleep(0)
        if self.away:
            raise UnavailableError("connection refused")
        found = [pod for (kind, _), pod in self.others.items() if kind == resource.kind]
        found += self.pods.values() if resource.kind == "Pod" else ()
        chosen = [pod for pod in found if self._matches(pod, namespace, labels, fields)]
        return copy.deepcopy(chosen), self.rv

    def _matches(self, pod, namespace, labels, fields):
        key, _, value = labels.partition("=")
        live = pod["metadata"].get("labels") or {}
        node = fields.removeprefix("spec.nodeName=")
        return (
            namespace in ("", pod["metadata"]["namespace"])
            and (not key or (live.get(key) == value if value else key in live))
            and (not node or pod["spec"].get("nodeName") == node)
        )

    async def create(self, resource, namespace, body):
        await asyncio.sleep(0)
        name = body["metadata"]["name"]
        if (resource.kind, name) in self.others:
            raise ConflictError("there is one", status=409, reason="AlreadyExists")
        made = copy.deepcopy(body)
        made["metadata"] |= {"namespace": namespace, "uid": f"uid-{name}"}
        if resource.kind == "Pod":
            made["metadata"]["annotations"][GPU_INDEX] = f"GPU-{name}"
            made["status"] = {"phase": "Running"}
        self.others[resource.kind, name] = made
        self._touch(made)
        return copy.deepcopy(made)

    async def get(self, resource, namespace, name):
        if (resource.kind, name) in self.others:
            return copy.deepcopy(self.others[resource.kind, name])
        if resource.kind not in ("Node", "Pod") or name.startswith("gpu-reservation"):
            raise GoneError("none", status=404, reason="NotFound")
        if resource.kind == "Node":
            after = await self._enter("node", name)
            if name not in self.nodes:
                raise GoneError("no node", status=404, reason="NotFound")
            after()
            return {"metadata": {"uid": self.nodes[name]}}
        after = await self._enter("get", name)
        pod = copy.deepcopy(self._pod(name))
        after()
        return pod

    async def bind(self, namespace, pod, *, uid, rv, node, annotations):
        after = await self._enter("bind", pod)
        live = self._pod(pod)
        self._check(live, uid, rv)
        if live["metadata"].get("deletionTimestamp") or live["spec"]["nodeName"]:
            raise ConflictError("already assigned", status=409, reason="Conflict")
        if live["spec"].get("schedulingGates"):
            raise ConflictError("has gates", status=409, reason="Conflict")
        live["spec"]["nodeName"] = node
        live["metadata"]["annotations"] |= annotations
        self.touch(pod)
        self.binds.append((uid, node))
        after()
        return Answer(status=201)

    async def delete(self, resource, namespace, name, *, uid, rv, grace_s=None):
        if (resource.kind, name) in self.others:
            self._check(self.others[resource.kind, name], uid, rv)
            del self.others[resource.kind, name]
            return Answer(status=200)
        after = await self._enter("delete", name)
        live = self._pod(name)
        self._check(live, uid, rv)
        live["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
        self.touch(name)
        self.deletes.append(uid)
        after()
        return Answer(status=200)

    async def patch(self, resource, namespace, name, changes, *, uid, rv, subresource=""):
        after = await self._enter("patch", name)
        live = self._pod(name)
        self._check(live, uid, rv)
        for field, values in changes["metadata"].items():
            merged = live["metadata"].setdefault(field, {}) | values
            live["metadata"][field] = {k: v for k, v in merged.items() if v is not None}
        self.touch(name)
        after()
        return copy.deepcopy(live)

    async def _enter(self, call, name):
        """Note the call and fail as ordered; the returned function fails once it is done."""
        await asyncio.sleep(0)
        self.calls.append(call)
        if self.away:
            raise UnavailableError("connection refused")
        fault = next((fault for fault in self.faults if fault[0] == call), None)
        if fault is None:
            return lambda: None
        self.faults.remove(fault)
        what = fault[1]
        if callable(what):
            outcome = what()
            if asyncio.iscoroutine(outcome):
                await outcome
            return lambda: None
        match what:
            case "ok":
                return lambda: None
            case "away":
                raise UnavailableError("connection refused")
            case "forbidden":
                raise RefusedError("no rights", status=403, reason="Forbidden")
            case "lost":
                return self._lose
        raise AssertionError(what)

    def _lose(self):
        raise UnavailableError("connection reset")

    def _pod(self, name):
        if name not in self.pods:
            raise GoneError("no pod", status=404, reason="NotFound")
        return self.pods[name]

    def _check(self, live, uid, rv):
        metadata = live["metadata"]
        if metadata["uid"] != uid or metadata["resourceVersion"] != str(rv):
            raise ConflictError("precondition failed", status=409, reason="Conflict")
