"""All kubelets of the simulated cluster in one.

A bound pod is admitted if its node has room for it, runs after a short while, succeeds after its
time (annotation `kai.scheduler/simulated-run-seconds`), and is removed when it is deleted. All of
this can be taken up again from the API and the ledger (`runs.py`) after a crash.

Pods of a node that is deleted stay as they are: that is what a cluster without a controller
manager does.

Reference: k8s.io/kubernetes/pkg/kubelet/{lifecycle/predicate,status/status_manager}.go.
"""

import asyncio
import enum
import functools
import heapq
import itertools
import zlib
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Protocol

from kai_es.kube.errors import InvalidObjectError
from kai_es.kube.labels import (
    GPU_GROUP_LABEL,
    POD_GROUP_ANNOTATION,
    QUEUE_LABEL,
    RUN_SECONDS,
)
from kai_es.ports.clock import Clock, wait_for
from kai_es.simulate import pod_status
from kai_es.simulate.rooms import NodeRoom, lacking, offered, requested
from kai_es.simulate.runs import Run, RunLedger

Object = dict[str, Any]
Action = Callable[[], Coroutine[Any, Any, object]]

START_MS: Final = (20, 200)
"""From bound to running: image there, sandbox up. Uniform, by pod."""
STOP_MS: Final = (20, 100)
"""From deleted to gone: the container heeds SIGTERM. Never longer than the grace period."""
ACTIONS_MAX: Final = 256
"""Reports to the API under way at a time."""
IDLE_MS: Final = 60_000
"""How long to wait if nothing is planned; whatever is seen wakes earlier."""
GPU: Final = "nvidia.com/gpu"
TERMINAL: Final = ("Succeeded", "Failed")
OUTCOMES: Final = ("succeeded", "deleted", "ended by others")
"""How a run ends that was admitted."""


class PodRef(NamedTuple):
    """One incarnation of a pod."""

    namespace: str
    name: str
    uid: str


class Seen(NamedTuple):
    """A pod (bound ones only) or a node as it is now, or as it was before it was deleted."""

    kind: str
    deleted: bool
    object: Object


class NodeApi(Protocol):
    """What kubelets need of an API server."""

    def follow(self) -> AsyncIterator[Sequence[Seen]]:
        """First all there is, nodes before pods, in one chunk; then every change."""
        ...

    def report(self, pod: PodRef, patch: Object) -> Coroutine[Any, Any, bool]:
        """Strategic merge patch on the pod's status; False: the pod is gone."""
        ...

    def remove(self, pod: PodRef) -> Coroutine[Any, Any, bool]:
        """Delete the pod without grace; False: it is gone already."""
        ...


class State(enum.Enum):
    """Where a pod is in its life on the node."""

    STARTING = "starting"
    RUNNING = "running"
    STOPPING = "stopping"


@dataclass(slots=True)
class Held:
    """A pod that holds resources of its node."""

    ref: PodRef
    node: str
    resources: Mapping[str, int]
    devices: tuple[int, ...]
    run_ms: int | None
    object: Object
    state: State = State.STARTING
    ending: tuple[str, int] | None = None
    """How and when it ends, once that is decided; others may see it before our report returns."""


class Kubelet:
    """The kubelets of all nodes.

    Args:
        api: where pods come from and reports go.
        ledger: what happened, for checks and for the next start.
        seed: of the latencies; a pod's latency depends on it and the pod's uid alone.
    """

    def __init__(
        self,
        api: NodeApi,
        ledger: RunLedger,
        clock: Clock,
        *,
        seed: int = 0,
        start_ms: tuple[int, int] = START_MS,
        stop_ms: tuple[int, int] = STOP_MS,
    ) -> None:
        self._api = api
        self._ledger = ledger
        self._clock = clock
        self._seed = seed
        self._start_ms = start_ms
        self._stop_ms = stop_ms
        self._rooms: dict[str, NodeRoom] = {}
        self._held: dict[str, Held] = {}
        self._agenda: list[tuple[int, int, State, str]] = []
        self._numbers = itertools.count()
        self._wake = asyncio.Event()
        self._orders: list[Action] = []
        self._slots = asyncio.Semaphore(ACTIONS_MAX)

    async def run(self) -> None:
        """Work until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._follow())
            tasks.create_task(self._act())

    async def _follow(self) -> None:
        first = True
        async for chunk in self._api.follow():
            for seen in chunk:
                if seen.kind == "Node":
                    self._see_node(seen)
                else:
                    self._see_pod(seen)
            if first:
                first = False
                self._settle()
            self._wake.set()

    def _settle(self) -> None:
        """What the ledger holds and the API does not has gone while we were down."""
        for run in self._ledger.unended():
            if run.pod_uid not in self._held and not self._is_homeless(run):
                self._ledger.ended(run.pod_uid, self._clock.now_ms(), "deleted")

    def _is_homeless(self, run: Run) -> bool:
        room = self._rooms.get(run.node)
        return room is not None and run.pod_uid in room.homeless

    # -- what is seen

    def _see_node(self, seen: Seen) -> None:
        room = self._rooms.setdefault(seen.object["metadata"]["name"], NodeRoom())
        if seen.deleted:
            room.allocatable = None
            return
        try:
            room.allocatable = offered(seen.object)
        except InvalidObjectError:
            room.allocatable = {}  # nothing fits, which every pod will say
        homeless, room.homeless = room.homeless, {}
        for pod in homeless.values():
            self._see_pod(Seen("Pod", deleted=False, object=pod))

    def _see_pod(self, seen: Seen) -> None:
        obj = seen.object
        meta, spec, status = obj["metadata"], obj["spec"], obj.get("status") or {}
        node, held = spec.get("nodeName"), self._held.get(meta["uid"])
        if not node:
            return
        room = self._rooms.setdefault(node, NodeRoom())
        if seen.deleted or status.get("phase") in TERMINAL:
            room.homeless.pop(meta["uid"], None)
            if held is not None:
                self._end(held, "deleted" if seen.deleted else "ended by others")
                self._release(held)
            if not seen.deleted and "deletionTimestamp" in meta:
                self._orders.append(functools.partial(self._api.remove, _ref(obj)))
        elif held is None and room.allocatable is None:
            room.homeless[meta["uid"]] = obj
        else:
            held = held or self._take_in(room, obj)
            if held is not None:
                held.object = obj
                if "deletionTimestamp" in meta and held.state is not State.STOPPING:
                    held.state = State.STOPPING
                    grace_ms = int(meta.get("deletionGracePeriodSeconds") or 0) * 1000
                    self._plan(held, min(grace_ms, self._latency(held.ref.uid, self._stop_ms)))

    def _take_in(self, room: NodeRoom, obj: Object) -> Held | None:
        """Admit a pod, or take up again what an earlier kubelet admitted."""
        ref, node = _ref(obj), obj["spec"]["nodeName"]
        known, now = self._ledger.find(ref.uid), self._clock.now_ms()
        try:
            resources, run_ms = requested(obj), _run_ms(obj)
            reason, message = ("", "") if known else lacking(room, resources)
        except InvalidObjectError as error:
            resources, run_ms = {}, None
            reason, message = "UnexpectedAdmissionError", str(error)
        if known and known.outcome not in ("", *OUTCOMES):
            reason, message = known.outcome, "refused before a restart of the kubelet"
        devices = known.devices if known else ()
        if not known and not reason:
            devices = room.take_devices(resources.get(GPU, 0))
        if not known:
            self._ledger.bound(_run(obj, resources, devices, now))
        if reason:
            self._ledger.ended(ref.uid, now, reason)
            refusal = pod_status.refused(reason, message)
            self._orders.append(functools.partial(self._api.report, ref, refusal))
            return None
        held = Held(ref, node, resources, devices, run_ms, obj)
        self._held[ref.uid] = room.held[ref.uid] = held
        if known and known.ended_ms:
            self._ledger.resumed(ref.uid)
        if known and known.started_ms:
            held.state = State.RUNNING
            if run_ms is not None:
                self._plan(held, known.started_ms + run_ms - now)
        else:
            self._plan(held, self._latency(ref.uid, self._start_ms))
        return held

    def _end(self, held: Held, outcome: str) -> int:
        """Decide that the pod ends now; returns when that is."""
        if held.ending is None:
            held.ending = outcome, self._clock.now_ms()
            self._ledger.ended(held.ref.uid, held.ending[1], outcome)
        return held.ending[1]

    def _release(self, held: Held) -> None:
        """The pod holds nothing any more."""
        self._held.pop(held.ref.uid, None)
        self._rooms[held.node].held.pop(held.ref.uid, None)

    # -- what is done

    def _latency(self, uid: str, between_ms: tuple[int, int]) -> int:
        low, high = between_ms
        return low + zlib.crc32(f"{self._seed}/{low}/{uid}".encode()) % (high - low + 1)

    def _plan(self, held: Held, in_ms: int) -> None:
        """Act on the pod later, if it is in this state then."""
        due_ms = self._clock.now_ms() + max(0, in_ms)
        entry = (due_ms, next(self._numbers), held.state, held.ref.uid)
        heapq.heappush(self._agenda, entry)
        self._wake.set()

    async def _act(self) -> None:
        """Begin what is due; a report that the API makes wait holds up no other pod."""
        async with asyncio.TaskGroup() as tasks:
            while True:
                self._wake.clear()
                due, self._orders = self._orders, []
                due += [functools.partial(self._advance, held) for held in self._due()]
                for action in due:
                    await self._slots.acquire()
                    tasks.create_task(action()).add_done_callback(lambda _: self._slots.release())
                if not due:
                    next_ms = self._agenda[0][0] - self._clock.now_ms() if self._agenda else IDLE_MS
                    await wait_for(self._wake, clock=self._clock, seconds=max(next_ms, 1) / 1000)

    def _due(self) -> list[Held]:
        now = self._clock.now_ms()
        due: list[Held] = []
        while self._agenda and self._agenda[0][0] <= now:
            _, _, state, uid = heapq.heappop(self._agenda)
            held = self._held.get(uid)
            if held is not None and held.state is state:
                due.append(held)
        return due

    async def _advance(self, held: Held) -> None:
        if held.state is State.STARTING:
            await self._start(held)
        elif held.state is State.RUNNING:
            await self._succeed(held)
        else:
            await self._stop(held)

    async def _start(self, held: Held) -> None:
        now = self._clock.now_ms()
        patch = pod_status.running(held.object, now)
        labels = held.object["metadata"].get("labels") or {}
        if held.devices and GPU_GROUP_LABEL in labels:  # a reservation pod; its sharers have none
            patch |= pod_status.reserved(held.node, held.devices)
        held.state = State.RUNNING
        self._ledger.started(held.ref.uid, now)
        alive = await self._api.report(held.ref, patch)
        # It may have been deleted meanwhile.
        if alive and held.state is State.RUNNING and held.run_ms is not None:
            self._plan(held, held.run_ms)

    async def _succeed(self, held: Held) -> None:
        now = self._end(held, "succeeded")
        alive = await self._api.report(held.ref, pod_status.succeeded(held.object, now))
        if alive:
            self._release(held)

    async def _stop(self, held: Held) -> None:
        now = self._end(held, "deleted")
        if held.object["metadata"].get("finalizers"):
            # It stays for others to see, and must not look as if it ran.
            await self._api.report(held.ref, pod_status.stopped(held.object, now))
        await self._api.remove(held.ref)
        self._release(held)


def _ref(pod: Object) -> PodRef:
    meta = pod["metadata"]
    return PodRef(meta["namespace"], meta["name"], meta["uid"])


def _run(pod: Object, resources: Mapping[str, int], devices: tuple[int, ...], now_ms: int) -> Run:
    meta = pod["metadata"]
    return Run(
        pod_uid=meta["uid"],
        namespace=meta["namespace"],
        name=meta["name"],
        queue=(meta.get("labels") or {}).get(QUEUE_LABEL, ""),
        pod_group=(meta.get("annotations") or {}).get(POD_GROUP_ANNOTATION, ""),
        node=pod["spec"]["nodeName"],
        resources=dict(resources),
        devices=devices,
        bound_ms=now_ms,
    )


def _run_ms(pod: Object) -> int | None:
    meta = pod["metadata"]
    text = (meta.get("annotations") or {}).get(RUN_SECONDS)
    if text is None:
        return None
    what = f"Pod {meta['namespace']}/{meta['name']}"
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds <= 10**9:
        raise InvalidObjectError(what, f"annotation {RUN_SECONDS} is {text!r}, want seconds")
    return int(seconds * 1000)


def all_of(objects: Iterable[Object], kind: str) -> list[Seen]:
    """Objects that are there, as seen."""
    return [Seen(kind, deleted=False, object=obj) for obj in objects]
