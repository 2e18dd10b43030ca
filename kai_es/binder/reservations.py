"""The reservation pods of the nodes whose requests a binder has: made, awaited, taken away.

Requests of a node are in one partition, so one binder at a time cares for its reservation pods. A
delayed write of a stopped predecessor can do no harm: a pod is deleted on the resourceVersion that
was seen, and a binder that uses a reservation pod which it did not make changes it first.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass
from typing import Any, Final

from kai_es.binder.foreign import Foreign
from kai_es.binder.preparation import NotReadyError, Order, PreparationError
from kai_es.binder.reservation import (
    ENDED,
    HOLDING,
    Holder,
    ReservationSettings,
    gpu_id,
    groups_on,
    holder,
    reservation_pod,
    to_delete,
)
from kai_es.events.catalogue import BIND_REQUESTS, TOPICS, partition_of
from kai_es.events.requests import BindRequested, Bound, Result
from kai_es.kube.labels import GPU_GROUP_LABEL, RESERVED_FOR
from kai_es.ports.clock import Clock, wait_for
from kai_es.ports.cluster import PODS, ClusterWrites, Resource
from kai_es.ports.errors import (
    AnswerError,
    ConflictError,
    GoneError,
    UnavailableError,
)

NAMESPACES: Final = Resource("Namespace", "v1", "namespaces")

FULL_S: Final = 300.0  # between looks at everything; a safety net, triggers do the work
RETRY_S: Final = 5.0  # after a look that failed
AGAIN_S: Final = 1.0  # after a look that left something going
GRACE_S: Final = 2  # of a reservation pod: its program ends at once when told
GOING_S: Final = 10.0  # longer, and it is removed without its kubelet's word
CLEAR_S: Final = 20.0  # longer, and a bind goes on with whatever is still on the node
POLL_S: Final = (0.25, 5.0)  # between looks at a reservation pod of which the log tells nothing
FAILED_MAX: Final = 10_000  # uids of reservation pods that came to nothing, for those who wait

TIMED_OUT: Final = "reservation-timeout"
REFUSED: Final = "reservation-refused"
SCALING_UP: Final = "scaling-up"
OTHER_APP: Final = "reservation-app"

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class _Reservation:
    """A reservation pod as this binder knows it.

    ours:    changed by this binder last, so that no delete of a predecessor can hit it.
    since_s: monotonic time since which it has not told its GPU.
    """

    name: str
    uid: str = ""
    ours: bool = False
    since_s: float | None = None


class Reservations:
    """Keeps one reservation pod per shared GPU that is in use. An `Observer` of requests.

    Args:
        settings: of the pods.
        partitions: of `bindrequests` that this binder has.
        read_up: whether, within a short time, all requests of a partition are known that were
            in the log when it was called.
        watch: is called with the uid and the node of every pod whose change matters here, and is
            to call `moved` when it changes.
    """

    def __init__(
        self,
        cluster: ClusterWrites,
        clock: Clock,
        settings: ReservationSettings,
        *,
        partitions: Collection[int],
        read_up: Callable[[int], Awaitable[bool]],
        watch: Callable[[str, str], None],
    ) -> None:
        self._watch = watch
        self._cluster = cluster
        self._clock = clock
        self._settings = settings
        self._others = Foreign(cluster, clock, settings.scale_namespace)
        self._partitions = frozenset(partitions)
        self._read_up = read_up
        self._open: Counter[str] = Counter()
        self._open_during: dict[str, set[str]] = {}
        """Node whose pods are being listed -> groups that were in open requests meanwhile."""
        self._known: dict[str, dict[str, _Reservation]] = {}
        self._listed = False
        self._locks: dict[str, asyncio.Lock] = {}
        self._due: dict[str, None] = {}
        self._going: dict[str, float] = {}
        self._spared: set[str] = set()
        self._unsure: dict[str, str] = {}
        """Node of which something could not be learnt or done -> why; looked at again."""
        self._moves: dict[str, asyncio.Event] = {}
        self._wake = asyncio.Event()
        self._failed: dict[str, PreparationError] = {}

    def trouble(self) -> str:
        """Why reservations are kept that may be of no use, "" = none is."""
        if not self._unsure:
            return ""
        node, why = next(iter(self._unsure.items()))
        return f"GPU reservations of {len(self._unsure)} nodes, {node} first, stay: {why}"

    # -- Observer

    def opened(self, request: BindRequested) -> None:
        """See `Observer.opened`: its pod may end before its result is known."""
        self._open.update(request.gpu_groups)
        for groups in self._open_during.values():
            groups.update(request.gpu_groups)
        if request.gpu_groups:
            self._watch(request.pod_uid, request.node)

    def closed(self, request: BindRequested, result: Result | None) -> None:
        """See `Observer.closed`: what a request that came to nothing reserved is looked at."""
        self._open.subtract(request.gpu_groups)
        spared = False
        for group in request.gpu_groups:
            if not self._open[group]:
                del self._open[group]
                spared = spared or group in self._spared
                self._spared.discard(group)
        if result is not None and request.gpu_groups and not isinstance(result, Bound):
            spared = True
        if spared:
            self.look(request.node)

    def look(self, node: str) -> None:
        """Something of a node has ended: look soon whether its reservations are still needed."""
        self._due[node] = None
        self._wake.set()

    def moved(self, node: str, *, has_ended: bool) -> None:
        """A watched pod of a node has changed: who waits for one there looks again."""
        if has_ended:
            self.look(node)
        event = self._moves.get(node)
        if event is not None:
            event.set()

    def may_have(self, node: str) -> bool:
        """Whether a node may have a reservation pod."""
        return not self._listed or node in self._known

    # -- before a bind

    def check_app(self, app: str) -> None:
        """See that the scheduler will know our reservation pods for what they are.

        app: label `app` that it goes by, "" = it did not say.

        Raises:
            PreparationError: it would take them for pods that use another GPU.
        """
        if app not in ("", self._settings.app):
            raise PreparationError(
                OTHER_APP,
                f"reservation pods are known by the label app={app} (informer) and would be made "
                f"with app={self._settings.app} (binder): give both the same "
                "--resource-reservation-app-label",
            )

    async def clear(self, order: Order) -> None:
        """See that no GPU of the request's node is held by a reservation that nobody needs.

        Raises:
            NotReadyError: one is still going.
        """
        node = order.request.node
        if not self.may_have(node):
            return
        async with self._lock(node):
            await self._clear(order)

    async def _clear(self, order: Order) -> None:
        if self._is_busy(order.request.node):
            return
        waited_s = order.waited_s("clear")
        going = await self._sync(order.request.node, forces=waited_s > GOING_S)
        if going and waited_s <= CLEAR_S:
            raise self._not_ready(order, waited_s)

    def _not_ready(self, order: Order, waited_s: float) -> NotReadyError:
        """To be raised: look again when something moves on the node, at the latest after a while.

        waited_s: so far.
        """
        order.wake = self._moves.setdefault(order.request.node, asyncio.Event())
        order.wake.clear()
        return NotReadyError(min(max(waited_s / 2, POLL_S[0]), POLL_S[1]))

    def _is_busy(self, node: str) -> bool:
        """Whether nothing can be free there: open requests name all groups that it has."""
        if not self._listed or node in self._due:
            return False
        return self._known.get(node, {}).keys() <= self._open.keys()

    async def device(self, order: Order, group: str) -> str:
        """The GPU of a group on the request's node; its reservation pod is made if there is none.

        Raises:
            NotReadyError: it has not told its GPU yet.
            PreparationError: it will not.
        """
        node = order.request.node
        async with self._lock(node):
            known = self._known.get(node, {}).get(group)
            if known is not None:
                self._check_failed(order, known)
            pod = await self._found(node, group, known)
            if pod is None:
                if known is not None and known.uid:
                    self.look(node)  # it is lost, and has users perhaps
                pod = await self._made(order, group)
            return await self._told(order, group, pod)

    def _check_failed(self, order: Order, known: _Reservation) -> None:
        """Fail with those who waited for the same pod."""
        awaited = order.notes.get(f"reservation/{known.name}")
        if awaited in self._failed:
            raise self._failed[awaited]

    async def _found(
        self, node: str, group: str, known: _Reservation | None
    ) -> dict[str, Any] | None:
        """The live reservation pod of a group, None = there is none that is known of."""
        settings = self._settings
        if known is None:
            if self._listed:
                return None
            # one of an old release has a name of its own
            labels = f"{GPU_GROUP_LABEL}={group}"
            found, _ = await self._cluster.list(PODS, settings.namespace, labels=labels)
            here = [pod for pod in found if pod["spec"].get("nodeName") == node]
            return here[0] if here else None
        try:
            return await self._cluster.get(PODS, settings.namespace, known.name)
        except GoneError:
            return None

    async def _made(self, order: Order, group: str) -> dict[str, Any]:
        """A new reservation pod, or the one that somebody else has made meanwhile."""
        await self._clear(order)  # so that there is a GPU for it
        if await self._others.scales_up():  # nobody takes the room that was asked for
            text = "cluster is scaling up, could not create reservation pod"
            raise PreparationError(SCALING_UP, text)
        settings, node = self._settings, order.request.node
        tolerations = order.live["spec"].get("tolerations") or ()
        body = reservation_pod(settings, node=node, group=group, tolerations=tolerations)
        name = body["metadata"]["name"]
        self._known.setdefault(node, {})[group] = known = _Reservation(name)
        try:
            try:
                pod = await self._cluster.create(PODS, settings.namespace, body)
            except GoneError:
                await self._make_namespace()
                pod = await self._cluster.create(PODS, settings.namespace, body)
        except ConflictError as exc:
            if exc.reason != "AlreadyExists":
                raise
            return await self._cluster.get(PODS, settings.namespace, name)
        known.uid, known.ours = pod["metadata"]["uid"], True
        self._watch(known.uid, node)
        return pod

    async def _make_namespace(self) -> None:
        name = self._settings.namespace
        try:
            await self._cluster.create(NAMESPACES, "", {"metadata": {"name": name}})
        except ConflictError:
            return
        logger.info("namespace made", extra={"namespace": name})

    async def _told(self, order: Order, group: str, pod: dict[str, Any]) -> str:
        """What a live reservation pod tells."""
        node, seen = order.request.node, holder(pod, self._settings.namespace)
        known = self._known.setdefault(node, {}).setdefault(group, _Reservation(seen.name))
        if known.uid != seen.uid:
            known.name, known.uid, known.ours, known.since_s = seen.name, seen.uid, False, None
            self._watch(seen.uid, node)
        now_s = self._clock.monotonic_s()
        if seen.is_deleting:  # its end was begun before anybody asked again
            await self._hasten(order, seen)
            raise self._not_ready(order, 0)
        found = gpu_id(pod)
        if found:
            if seen.phase in ENDED:
                self.look(node)  # its GPU is anybody's: it goes, and so do its users
                await self._clear(order)
                raise self._not_ready(order, 0)
            if not known.ours:
                await self._adopt(order, known, seen)
            known.since_s = None
            return found
        order.notes[f"reservation/{known.name}"] = seen.uid
        known.since_s = now_s if known.since_s is None else known.since_s
        await self._check_deadline(order, known, seen)
        raise self._not_ready(order, now_s - known.since_s)

    async def _hasten(self, order: Order, seen: Holder) -> None:
        if order.waited_s("clear") > GOING_S:
            await self._delete(seen, grace_s=0)

    async def _adopt(self, order: Order, known: _Reservation, seen: Holder) -> None:
        """Change what a predecessor may have been about to delete."""
        notes = {"annotations": {RESERVED_FOR: order.request.request_id}}
        try:
            await self._cluster.patch(
                PODS,
                seen.namespace,
                seen.name,
                {"metadata": notes},
                uid=seen.uid,
                rv=seen.rv,
            )
        except (ConflictError, GoneError) as exc:
            raise self._not_ready(order, 0) from exc
        known.ours = True

    async def _check_deadline(self, order: Order, known: _Reservation, seen: Holder) -> None:
        assert known.since_s is not None, "it is waited for"
        waited_s = self._clock.monotonic_s() - known.since_s
        if seen.refusal:
            code, why = REFUSED, f"GPU reservation pod ended: {seen.refusal}"
        elif waited_s > self._settings.timeout_s:
            code, why = TIMED_OUT, "failed waiting for GPU reservation pod to allocate"
        else:
            return
        if not await self._delete(seen, grace_s=0):
            raise self._not_ready(order, 0)  # it has changed: perhaps it has told
        raise self._fail(seen, code, why)

    def _fail(self, seen: Holder, code: str, why: str) -> PreparationError:
        """What all fail with who wait for this reservation pod to tell its GPU."""
        if len(self._failed) >= FAILED_MAX:
            self._failed.clear()
        error = PreparationError(code, f"{why}: {seen.namespace}/{seen.name}")
        self._failed[seen.uid] = error
        return error

    # -- who is no longer needed

    async def serve(self) -> None:
        """Look at nodes that are due, and at everything now and then, for ever."""
        full_s = float("-inf")
        while True:
            pause_s = full_s + FULL_S - self._clock.monotonic_s()
            try:
                if pause_s <= 0:
                    await self._look_at_all()
                    full_s, pause_s = self._clock.monotonic_s(), FULL_S
                self._wake.clear()
                pause_s = min(pause_s, await self._look_at_due())
            except (UnavailableError, AnswerError) as exc:
                logger.warning("reservations", extra={"problem": str(exc)})
                await self._clock.sleep(RETRY_S)
            else:
                await wait_for(self._wake, clock=self._clock, seconds=pause_s)

    async def _look_at_all(self) -> None:
        """Learn which nodes have reservations or users of some, and look at each."""
        pods, _ = await self._cluster.list(PODS, labels=GPU_GROUP_LABEL)
        namespace = self._settings.namespace
        for one in (holder(pod, namespace) for pod in pods):
            if self._is_ours(one.node):
                known = self._known.setdefault(one.node, {})
                if one.is_reservation:
                    for group in one.groups:
                        known.setdefault(group, _Reservation(one.name, one.uid))
                self._due[one.node] = None
        self._due.update(dict.fromkeys(self._known))
        self._listed = True

    def _is_ours(self, node: str) -> bool:
        n_partitions = TOPICS[BIND_REQUESTS].partitions
        return bool(node) and partition_of(node, n_partitions) in self._partitions

    async def _look_at_due(self) -> float:
        """Look at nodes that are due; after how many seconds some have to be looked at again."""
        now_s = self._clock.monotonic_s()
        again: dict[str, None] = {}
        self._due.update(dict.fromkeys(self._unsure))
        while self._due:
            node = next(iter(self._due))
            since_s = self._going.get(node, now_s)
            goes = False
            async with self._lock(node):
                try:
                    goes = await self._sync(node, forces=now_s - since_s > GOING_S)
                except (AnswerError, UnavailableError) as exc:
                    if not exc.status:
                        raise  # nobody answers; an answer is about this node, others go on
            self._due.pop(node, None)
            self._going.pop(node, None)
            if goes:
                again[node], self._going[node] = None, since_s
        self._due.update(again)
        if again:
            return AGAIN_S
        return RETRY_S if self._unsure else FULL_S

    async def _sync(self, node: str, *, forces: bool) -> bool:
        """As `_tidy`; what it raises is remembered."""
        before = self._unsure.pop(node, "")
        try:
            return await self._tidy(node, forces=forces)
        except (AnswerError, UnavailableError) as exc:
            self._unsure[node] = str(exc)
            raise
        finally:
            why = self._unsure.get(node, "")
            if why and why != before:
                logger.warning("reservations stay", extra={"node": node, "problem": why})

    async def _tidy(self, node: str, *, forces: bool) -> bool:
        """Delete what has to go from a node, whose lock is held; whether something still goes.

        forces: remove what is going without its kubelet's word.
        """
        if not await self._read_up(partition_of(node, TOPICS[BIND_REQUESTS].partitions)):
            return True
        since_s = self._clock.monotonic_s()
        was_open = self._open_during[node] = set(self._open)
        try:
            pods, _ = await self._cluster.list(PODS, fields=f"spec.nodeName={node}")
        finally:
            del self._open_during[node]
        holders = [one for pod in pods if (one := holder(pod, self._settings.namespace)).groups]
        self._learn(node, holders)
        goes = False
        for group in groups_on(node, holders):
            is_open = group in self._open
            if group in was_open and not is_open:
                goes = True  # what was bound since the list was made is not in it: look again
                continue
            doomed = to_delete(group, holders, is_open=is_open)
            if is_open and to_delete(group, holders, is_open=False) != doomed:
                self._spared.add(group)  # for the request's sake: look again when it is closed
            for one in doomed.reservations:
                goes = await self._remove(group, one, forces=forces, since_s=since_s) or goes
            for one in doomed.users:
                logger.warning(
                    "reservation lost", extra={"pod": f"{one.namespace}/{one.name}", "group": group}
                )
                await self._delete(one, grace_s=None)
        return goes

    def _learn(self, node: str, holders: list[Holder]) -> None:
        """Forget reservations that are gone, and nodes where nobody shares any more."""
        for one in holders:
            if one.phase in HOLDING:
                self._watch(one.uid, node)
        there = {group for one in holders for group in one.groups}
        known = self._known.get(node, {})
        for group in known.keys() - there - self._open.keys():
            del known[group]
        if there or known:
            self._known[node] = known
        else:
            self._known.pop(node, None)

    async def _remove(self, group: str, one: Holder, *, forces: bool, since_s: float) -> bool:
        """End a reservation that nobody has used since; whether it is there still."""
        if one.is_deleting and not forces:
            return True
        if one.phase not in ENDED:
            is_used, unsure = await self._others.uses(group, since_s=since_s)
            if unsure:
                self._unsure[one.node] = unsure
            if is_used or unsure or group in self._open:
                return False
        if one.refusal:  # who waits for it is to fail, not to make another one for ever
            self._fail(one, REFUSED, f"GPU reservation pod ended: {one.refusal}")
        ends = forces or one.phase in ENDED
        is_deleted = await self._delete(one, grace_s=0 if ends else GRACE_S)
        return not (is_deleted and ends)

    async def _delete(self, one: Holder, *, grace_s: int | None) -> bool:
        """Delete a pod as it was seen; False = it has changed."""
        try:
            await self._cluster.delete(
                PODS, one.namespace, one.name, uid=one.uid, rv=one.rv, grace_s=grace_s
            )
        except ConflictError:
            return False
        except GoneError:
            return True
        except UnavailableError:
            self._disown(one)  # it may still come to pass
            raise
        return True

    def _disown(self, one: Holder) -> None:
        for group in one.groups:
            known = self._known.get(one.node, {}).get(group)
            if known is not None:
                known.ours = False

    def _lock(self, node: str) -> asyncio.Lock:
        """Held for the length of calls, never while something is waited for."""
        return self._locks.setdefault(node, asyncio.Lock())
