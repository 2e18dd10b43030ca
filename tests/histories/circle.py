"""The circle without a cluster: made-up informer and binder around real stream and scheduler."""

import asyncio
import random

from kai_es.cycle import Scheduler, Setting, gate
from kai_es.events.catalogue import BIND_REQUESTS, BIND_RESULTS, OBJECTS, TOPICS, partition_of
from kai_es.events.codec import decode, unpack
from kai_es.events.decisions import (
    Bind,
    CycleDecision,
    Evict,
    GroupMark,
    Pipeline,
    Reason,
    Verdict,
)
from kai_es.events.objects import Alive, KindAlive, Listed, ObjectDeleted, ObjectSeen
from kai_es.events.requests import AttemptFailed, BindRequested, Bound, Evicted, Refused
from kai_es.ports.eventlog import Position
from kai_es.reader import View
from kai_es.snapshot.status import ACTIVE_USED, TaskStatus
from tests.histories.logs import out, raw_pod

KINDS = tuple(kind.name for kind in gate.KINDS if kind.watched)
N_PARTITIONS = TOPICS[OBJECTS].partitions


def raw_node(name, *, gpus=8, cpu=64):
    amounts = {"cpu": str(cpu), "memory": "256Gi", "nvidia.com/gpu": str(gpus), "pods": "110"}
    return {
        "metadata": {"name": name, "uid": f"node-{name}"},
        "spec": {},
        "status": {
            "allocatable": amounts,
            "capacity": amounts,
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }


def raw_queue(name, *, quota=-1, parent=None):
    share = {"quota": quota, "limit": -1, "overQuotaWeight": 1}
    spec = {"resources": {"gpu": share, "cpu": share, "memory": share}}
    if parent:
        spec["parentQueue"] = parent
    return {"metadata": {"name": name, "uid": f"queue-{name}"}, "spec": spec}


def raw_group(name, *, queue="q", min_member=1, generation=1):
    return {
        "metadata": {
            "name": name,
            "namespace": "ns",
            "uid": f"group-{name}",
            "generation": generation,
            "creationTimestamp": "2026-01-01T00:00:00Z",
        },
        "spec": {"queue": queue, "minMember": min_member},
    }


def raw_config(name="default", settings=None):
    return {"metadata": {"name": name, "uid": f"config-{name}"}, "settings": settings or {}}


class Informer:
    """Publishes objects as an informer would; `objects` is the cluster's truth."""

    def __init__(self, log, clock):
        self.log = log
        self.clock = clock
        self.rv = 0
        self.objects = {}
        self.epoch = None
        self.muted = False
        self._lock = asyncio.Lock()

    async def start(self):
        self.epoch = await self.log.take_over("informer")

    async def put(self, kind, *raws):
        """Create or update objects."""
        records = []
        for raw in raws:
            self.rv += 1
            raw["metadata"]["resourceVersion"] = str(self.rv)
            meta = raw["metadata"]
            self.objects[kind, meta["uid"]] = raw
            seen = ObjectSeen(
                kind=kind,
                uid=meta["uid"],
                namespace=meta.get("namespace", ""),
                name=meta["name"],
                rv=self.rv,
                incarnation=0,
                object=raw,
            )
            records.append(self._out(seen, f"{kind}/{meta['uid']}"))
        await self._append(records)

    async def change(self, kind, raw):
        """Update an object, if it is still there."""
        if (kind, raw["metadata"]["uid"]) in self.objects:
            await self.put(kind, raw)

    async def delete(self, kind, uid):
        """Delete an object, if it is still there."""
        raw = self.objects.pop((kind, uid), None)
        if raw is None:
            return
        meta = raw["metadata"]
        self.rv += 1
        gone = ObjectDeleted(
            kind=kind,
            uid=uid,
            namespace=meta.get("namespace", ""),
            name=meta["name"],
            rv=self.rv,
            incarnation=0,
        )
        await self._append([self._out(gone, f"{kind}/{uid}")])

    async def listed(self, *kinds):
        """All kinds are listed in every partition."""
        await self._append(
            [
                self._out(Listed(kind=kind, rv=self.rv, incarnation=0), kind, partition)
                for kind in kinds or (*KINDS, "ShardConfig")
                for partition in range(N_PARTITIONS)
            ]
        )

    async def alive(self):
        """One sign of life."""
        now_ms = self.clock.now_ms()
        kinds = tuple(KindAlive(kind, self.rv, now_ms) for kind in KINDS)
        alive = Alive(incarnation=0, kinds=kinds)
        await self._append([self._out(alive, "alive", p) for p in range(N_PARTITIONS)])

    async def run(self):
        """A sign of life every two seconds."""
        while True:
            if not self.muted:
                await self.alive()
            await self.clock.sleep(2)

    def _out(self, record, key, partition=None):
        if partition is None:
            partition = partition_of(key, N_PARTITIONS)
        name = f"{key}/{self.rv}/{partition}/{self.clock.now_ms()}"
        at_ms = self.clock.now_ms()
        return out(record, OBJECTS, key, partition=partition, at_ms=at_ms, name=name)

    async def _append(self, records):
        async with self._lock:
            await self.log.append(self.epoch, records)


class Binder:
    """Answers requests and moves pods; now and then it fails, refuses, or answers twice."""

    def __init__(self, log, informer, clock, *, seed=0, trouble=0.0, run_s=0.0):
        self.log = log
        self.informer = informer
        self.clock = clock
        self.random = random.Random(seed)
        self.trouble = trouble
        self.run_s = run_s
        self.binds = []
        self.epoch = None

    async def run(self):
        self.epoch = await self.log.take_over("binder")
        async with asyncio.TaskGroup() as tasks:
            for partition in range(TOPICS[BIND_REQUESTS].partitions):
                tasks.create_task(self._serve(partition, tasks))

    async def _serve(self, partition, tasks):
        async for chunk in self.log.read(BIND_REQUESTS, partition, Position(0), follow=True):
            for entry in chunk:
                request = unpack(decode(entry.value))
                if self.random.random() < self.trouble:
                    await self._answer(partition, self._no(request))
                elif isinstance(request, BindRequested):
                    await self._bind(partition, request)
                    if self.run_s:
                        tasks.create_task(self._end(request.pod_uid))
                else:
                    await self._evict(partition, request)

    def _no(self, request):
        common = {"request_id": request.request_id, "attempt": 1, "binder": "b"}
        if self.random.random() < 0.5:
            return Refused(**common, pod_uid=request.pod_uid, code="expired")
        return AttemptFailed(
            **common, pod_uid=request.pod_uid, group_uid=request.group_uid, code="volume"
        )

    async def _bind(self, partition, request):
        pod = self.informer.objects.get(("Pod", request.pod_uid))
        if pod is None:
            code = "pod-gone"
            result = Refused(
                request_id=request.request_id,
                attempt=1,
                binder="b",
                pod_uid=request.pod_uid,
                code=code,
            )
            await self._answer(partition, result)
            return
        assert "nodeName" not in pod["spec"], f"{request.pod_uid} bound twice"
        self.binds.append(request.pod_uid)
        pod["spec"]["nodeName"] = request.node
        result = Bound(
            request_id=request.request_id,
            attempt=1,
            binder="b",
            pod_uid=request.pod_uid,
            node=request.node,
            node_uid=request.node_uid,
        )
        first = self.informer.change("Pod", pod)
        second = self._answer(partition, result)
        for step in (first, second) if self.random.random() < 0.5 else (second, first):
            await step
            if self.random.random() < self.trouble:
                await self.clock.sleep(0.05)
        pod["status"]["phase"] = "Running"
        await self.informer.change("Pod", pod)

    async def _evict(self, partition, request):
        await self._answer(
            partition,
            Evicted(request_id=request.request_id, attempt=1, binder="b", pod_uid=request.pod_uid),
        )
        await self.informer.delete("Pod", request.pod_uid)

    async def _end(self, uid):
        await self.clock.sleep(self.run_s * self.random.uniform(0.5, 1.5))
        pod = self.informer.objects.get(("Pod", uid))
        if pod is not None:
            pod["status"]["phase"] = "Succeeded"
            await self.informer.change("Pod", pod)
            await self.informer.delete("Pod", uid)

    async def _answer(self, partition, result):
        envelope = out(
            result,
            BIND_RESULTS,
            result.pod_uid,
            partition=partition,
            at_ms=self.clock.now_ms(),
            name=f"{result.request_id}/1/b",
        )
        copies = 2 if self.random.random() < self.trouble else 1
        await self.log.append(self.epoch, [envelope] * copies)


def first_fit(snapshot, config, inputs):
    """A stand-in for `decide`: gangs first come first served, by uid; CPU only. Pure."""
    del config
    free = {}
    for row in snapshot.nodes.live():
        used = sum(
            pod.pod.spec.requests["cpu"]
            for pod in snapshot.pods_of_node.get(row.node.name, {}).values()
            if pod.state.status in ACTIVE_USED
        )
        if not row.closed:
            free[row.node.name] = [row.node.allocatable["cpu"] - used, row.node.uid]
    ops, reasons, marks = [], {}, []
    for row in sorted(snapshot.groups.live(), key=lambda r: r.group.uid):
        pods = sorted(
            snapshot.pods_of_group.get(row.name, {}).values(), key=lambda pod: pod.pod.uid
        )
        waiting = [pod for pod in pods if pod.state.status is TaskStatus.PENDING]
        if not waiting:
            continue
        n_alive = len(waiting) + sum(pod.state.status in ACTIVE_USED for pod in pods)
        why = _why_not(row, n_alive, inputs)
        placed = [] if why else _placed(row, waiting, dict_copy(free))
        if not placed:
            reasons[row.group.uid] = (why or Reason(code="not-enough-resources"),)
            continue
        for op in placed:
            free[op.node][0] -= next(
                p.pod.spec.requests["cpu"] for p in waiting if p.pod.uid == op.pod_uid
            )
        ops += placed
        marks.append(GroupMark(group_uid=row.group.uid, last_start_ms=inputs.now_ms))
    if inputs.gate.verdict is Verdict.OPEN and reasons and not ops:
        ops += _victims(snapshot, sorted(reasons)[0])
    ops = tuple(ops)
    return CycleDecision(ops=ops, reasons=reasons, marks=tuple(marks))


def dict_copy(free):
    return {name: list(entry) for name, entry in free.items()}


def _why_not(row, n_alive, inputs):
    if row.state.held is not None:
        return row.state.held
    if any(not_before > inputs.now_ms for _, not_before, _ in row.state.backoff):
        return Reason(code="bind-backoff")
    if n_alive < (row.group.min_member or 1):
        return Reason(code="gang-incomplete")
    return None


def _placed(row, waiting, free):
    ops = []
    for pod in waiting:
        cpu = pod.pod.spec.requests["cpu"]
        node = next((name for name in sorted(free) if free[name][0] >= cpu), None)
        if node is None:
            return []
        free[node][0] -= cpu
        ops.append(
            Bind(
                pod_uid=pod.pod.uid,
                pod_rv=pod.rv,
                namespace="ns",
                pod=pod.pod.name,
                group_uid=row.group.uid,
                node=node,
                node_uid=free[node][1],
                supersedes=pod.state.request_id,
            )
        )
    return ops


def _victims(snapshot, beneficiary):
    """At most one running pod gives way to a waiting one; labels say which may."""
    waiting = [
        row.pod
        for row in snapshot.pods.values()
        if row.state.status is TaskStatus.PENDING and f"group-{row.pod.group}" == beneficiary
    ]
    for row in sorted(snapshot.pods.values(), key=lambda row: row.pod.uid, reverse=True):
        node = snapshot.nodes.get(row.state.node)
        is_victim = row.pod.labels.get("victim") == "yes" and node is not None
        if row.state.status is not TaskStatus.RUNNING or not is_victim:
            continue
        there = {"node": node.node.name, "node_uid": node.node.uid, "action": "reclaim"}
        pod = min(waiting, key=lambda pod: pod.uid)
        return [
            Evict(
                pod_uid=row.pod.uid,
                pod_rv=row.rv,
                namespace="ns",
                pod=row.pod.name,
                group_uid=f"group-{row.pod.group}",
                beneficiary=beneficiary,
                **there,
            ),
            Pipeline(
                pod_uid=pod.uid,
                namespace="ns",
                pod=pod.name,
                group_uid=beneficiary,
                **there,
            ),
        ]
    return []


async def inline(work):
    """Decide on the event loop, so that virtual time stays in order."""
    return work()


def a_scheduler(log, leadership, clock, *, holder="sched", decide=first_fit, world=None, **rest):
    """A scheduler of shard `default` on partition 0."""
    setting = Setting(
        log=log,
        clock=clock,
        view=View(log, clock, world),
        shard="default",
        partition=0,
        decide=decide,
        **{"offload": inline} | rest,
    )
    return Scheduler(setting, leadership=leadership, holder=holder)


def some_pods(group, n, *, cpu="1", victim=False):
    pods = [raw_pod(f"{group}-{i}", group=group, cpu=cpu) for i in range(n)]
    for pod in pods:
        if victim:
            pod["metadata"]["labels"] = {"victim": "yes"}
    return pods


async def a_cluster(informer, *, n_nodes=3, cpu=16):
    """Nodes, a queue and a configuration, all listed and alive."""
    await informer.start()
    await informer.put("Node", *(raw_node(f"n{i}", cpu=cpu) for i in range(n_nodes)))
    await informer.put("Queue", raw_queue("q"))
    await informer.put("ShardConfig", raw_config())
    await informer.listed()
