"""What really happened, seen from outside: appends as they were stored, writes as they were done.

Invariants 1 and 2 are checked at every write on the API, as it happens.
"""

from fractions import Fraction

from kai_es.eventlog.memory import MemoryStore
from kai_es.events.catalogue import BIND_REQUESTS, BIND_RESULTS, DECISIONS
from kai_es.events.codec import decode, unpack
from kai_es.events.decisions import CycleChunk
from kai_es.events.requests import BindRequested, Bound, Evicted, is_final
from kai_es.kube.labels import (
    AS_OF,
    GPU_FRACTION,
    GPU_FRACTION_DEVICES,
    GPU_GROUP_LABEL,
    GPU_GROUPS_PREFIX,
    GPU_MEMORY,
    GPU_MEMORY_LABEL,
    RESERVATION_APP,
)
from kai_es.simulate.kinds import NODE, POD
from kai_es.snapshot.lifecycle import ENDED_PHASES
from tests.worlds.accounts import TrueUse
from tests.worlds.failure import Failures

_AS_OF = AS_OF.encode()
_NODE_NAME = POD.fields.index("spec.nodeName")
_PHASE = POD.fields.index("status.phase")

LEASE_MAX_S = 10.0
"""Nothing is sent under a lease that is older (architecture §3, Leadership)."""


class Truth:
    """requests, finals: as they are in the log, seen or not.

    reserved: name of a reservation pod -> (node, group).
    restored: uids of pods that an etcd restore found or lost.
    back: node -> uids of pods that came back to it with a restore of etcd.
    loads: `log verify`'s, of the log as far as it is shown.
    owners: producer -> process that took it over last.
    alive: kind -> uids that the API server has.
    bound: pod uid -> (node, uid of the node) for pods that a binder bound.
    """

    def __init__(self, failures: Failures):
        self._failures = failures
        self._store = None
        self.requests = {}
        self.finals = {}
        self.alive = {}
        self.bound = {}
        self.owners = {}
        self.restored = set()
        self.back = {}
        self.loads = None
        self.reserved = {}
        self._unseen = set()
        self.use = TrueUse()
        self.n_binds = self.n_evictions = 0

    # -- the log

    def stored(self, records):
        """A transaction is stored; a cycle and its requests are one (invariant 6)."""
        decided = [unpack(decode(r.value)) for r in records if r.topic == DECISIONS]
        cycles = {(d.shard, d.cycle) for d in decided if isinstance(d, CycleChunk)}
        for record in records:
            if record.topic == BIND_REQUESTS:
                request = unpack(decode(record.value))
                if (request.shard, request.cycle) not in cycles:
                    self._failures.violated("6", f"{request.request_id} comes without its cycle")
                self.requests.setdefault(request.pod_uid, {})[request.request_id] = request
            elif record.topic == BIND_RESULTS:
                result = unpack(decode(record.value))
                if is_final(result):
                    self.finals.setdefault(result.request_id, []).append(result)

    def taken_over(self, producer, holder):
        self.owners[producer] = holder

    def appended(self, producer, holder):
        """A transaction was stored (invariant 12)."""
        owner = self.owners.get(producer)
        if owner != holder:
            text = f"{holder} appends as {producer}, which {owner} has taken over"
            self._failures.violated("12", text)

    def sends(self, life, role):
        """A process is about to write under a role: to the log, or to the API server."""
        age_s = life.lease_age_s(role)
        if age_s > LEASE_MAX_S:
            text = f"{life.holder} writes as {role} under a lease of {age_s:.1f} s"
            self._failures.violated("12", text)

    def is_closed(self, request):
        """Whether it has a final result that says that nothing was done."""
        finals = self.finals.get(request.request_id, ())
        done = any(isinstance(final, Bound | Evicted) for final in finals)
        return bool(finals) and not done

    # -- calls of the binder

    def bind_begins(self, uid, node, now_ms):
        orders = [r for r in self._binds(uid) if r.node == node]
        self._begins(orders, f"bind of {uid} to {node}", now_ms)

    def delete_begins(self, uid, now_ms):
        if not self._evicts(uid) and self._is_bereft(uid):
            return  # whose device anybody may be given, or gone: no order is needed to end it
        self._begins(self._evicts(uid), f"delete of {uid}", now_ms)

    def _begins(self, orders, what, now_ms):
        if not orders:
            self._failures.violated("2", f"{what} without a committed request")
        elif all(order.not_after_ms < now_ms for order in orders):
            self._failures.violated("2", f"{what} begins after its not_after: {orders}")

    def _binds(self, uid):
        orders = self.requests.get(uid, {}).values()
        return [order for order in orders if isinstance(order, BindRequested)]

    def _evicts(self, uid):
        orders = self.requests.get(uid, {}).values()
        return [order for order in orders if not isinstance(order, BindRequested)]

    # -- the API server

    def watch(self, store, kinds):
        """Follow a server; after one before it, what that one had is over."""
        former, self._store = self._store, store
        self.restored |= set(self.alive.get("Pod", {}))
        self.alive = {}
        for kind in kinds:
            shelf = store.shelf(kind)
            shelf.watchers.append(_Teller(self, kind.kind))
            if shelf.live:
                self.alive[kind.kind] = {pod.uid: key for key, pod in shelf.live.items()}
        pods = store.shelf(POD).live.values()
        self.restored |= {pod.uid for pod in pods}
        stayed = set() if former is None else {pod.uid for pod in _holders(former)}
        for pod in _holders(store) if former is not None else ():
            if pod.uid not in stayed:
                self.back.setdefault(pod.fields[_NODE_NAME], set()).add(pod.uid)
                self._unseen.add(pod.uid)
        here = {pod.uid for pod in pods if pod.fields[_NODE_NAME]}
        self.bound = {uid: at for uid, at in self.bound.items() if uid in here}
        note = store.note

        def noted(access):
            self._accessed(access)
            note(access)

        store.note = noted

    def shown(self, uid):
        """The log shows what a pod is since etcd was restored."""
        self._unseen.discard(uid)

    def _is_excused(self, node):
        """Whether a node may be over because a restore of etcd brought a pod back to it.

        The rule of `log verify`, which begins when the log shows the pod.
        """
        back = self.back.get(node, set())
        return bool(back & self._unseen) or (bool(back) and self.loads.is_excused(node))

    def told(self, kind, changes):
        uids = self.alive.setdefault(kind, {})
        for change in changes:
            if change.before is not None and _AS_OF in change.before.body:
                self._as_of(kind, change)
            if kind == "Pod":
                self._pod(change)
            if change.type == "DELETED":
                uids.pop(change.after.uid, None)
            else:
                uids[change.after.uid] = change.after.key

    def _as_of(self, kind, change):
        """No status is replaced by one that was computed from an older state (invariant 16)."""
        before, after = (_as_of(stored.object()) for stored in (change.before, change.after))
        if after < before:
            text = f"{kind} {change.after.key}: a status as of {before} became one of {after}"
            self._failures.violated("16", text)

    def _pod(self, change):
        """Note from which version on a pod holds its node, and does not any more."""
        pod = change.after
        if change.type == "DELETED":
            self._unseen.discard(pod.uid)
        if _is_reservation(pod):
            name = pod.key.partition("/")[2]
            self.reserved[name] = pod.fields[_NODE_NAME], pod.labels[GPU_GROUP_LABEL]
        if pod.fields[_NODE_NAME]:
            if pod.fields[_PHASE] in ENDED_PHASES or change.type == "DELETED":
                self.use.ended_at(pod.uid, change.rv)
            else:
                self.use.bound_at(pod.uid, change.rv)

    def _accessed(self, access):
        if access.resource != "pods" or access.status >= 300:
            return
        if access.namespace == RESERVATION_APP:
            if access.verb == "delete" and access.client.split("-")[0] == "binder":
                self._unreserved(access.name)
            return
        if access.subresource == "binding":
            self._bound(access.uid, f"{access.namespace}/{access.name}")
        elif access.verb == "delete" and access.client.split("-")[0] == "binder":
            self.n_evictions += 1
            orders = self._evicts(access.uid)
            if orders and all(self.is_closed(order) for order in orders):
                self._failures.violated("2", f"{access.uid} deleted after the final result")

    def _bound(self, uid, key):
        self.n_binds += 1
        node = self._store.get(POD, key).object()["spec"]["nodeName"]
        if uid in self.bound:
            self._failures.violated("1", f"{uid} is bound twice: {self.bound[uid]}, {node}")
        here = [uid for uid, name in self.alive.get("Node", {}).items() if name == node]
        self.bound[uid] = (node, here[0] if here else "")
        orders = [order for order in self._binds(uid) if order.node == node]
        if all(self.is_closed(order) for order in orders):
            self._failures.violated("2", f"{uid} bound to {node} after the final result: {orders}")
        self._shares(node)
        pod = self._store.get(POD, key)
        groups = _groups(pod.labels)
        if not self.reserves(node) >= set(groups):
            self._failures.violated("5", f"{key} is bound to {node} without a reservation")
        if len(groups) != (asked := _devices(pod)):
            self._failures.violated("5", f"{key} is bound with {len(groups)} devices of {asked}")

    def sharers(self, node=None):
        """(node, group) -> names of pods that are bound, have not ended, and name the group."""
        found = {}
        for stored in _holders(self._store):
            at = stored.fields[_NODE_NAME]
            if node in (None, at):
                for group in _groups(stored.labels):
                    found.setdefault((at, group), []).append(stored.key)
        return found

    def reserves(self, node):
        """Groups of a node that have a reservation pod."""
        pods = self._store.shelf(POD).live.values()
        return {
            pod.labels[GPU_GROUP_LABEL]
            for pod in pods
            if _is_reservation(pod)
            and pod.fields[_NODE_NAME] == node
            and pod.fields[_PHASE] not in ENDED_PHASES
        }

    def _is_bereft(self, uid):
        """Whether a pod is on a device that no reservation pod holds, or is gone meanwhile."""
        key = self.alive.get("Pod", {}).get(uid)
        if key is None:
            return True
        stored = self._store.get(POD, key)
        if not stored or not stored.fields[_NODE_NAME]:
            return False
        return not self.reserves(stored.fields[_NODE_NAME]) >= set(_groups(stored.labels))

    def _unreserved(self, name):
        """The binder has deleted a reservation pod; nobody may use its device any more."""
        at = self.reserved.get(name)
        users = self.sharers(at[0]).get(at) if at else None
        if users:
            self._failures.violated("5", f"the reservation of {at} goes, used by {users}")

    def _shares(self, node):
        """The shares of each device of a node are at most the device (invariant 5)."""
        raw = self._store.get(NODE, node)
        if raw is None:
            return
        memory_mib = int(raw.labels.get(GPU_MEMORY_LABEL, 0)) // 100 * 100
        shares = {}
        for stored in _holders(self._store):
            if stored.fields[_NODE_NAME] == node:
                notes = stored.object()["metadata"].get("annotations", {})
                for group in _groups(stored.labels):
                    shares[group] = shares.get(group, 0) + _share(notes, memory_mib)
        for group, share in shares.items():
            if share > 1 and not self._is_excused(node):
                self._failures.violated("5", f"device {group} of {node} is shared out {share}")


def _as_of(obj):
    """Offset from which the status of an object was computed."""
    found = [(obj["metadata"].get("annotations") or {}).get(AS_OF, "0")]
    conditions = (obj.get("status") or {}).get("conditions") or ()
    found += [c["message"] for c in conditions if c["type"] == AS_OF]
    return max(map(int, found))


def _is_reservation(pod):
    return pod.key.startswith(f"{RESERVATION_APP}/") and GPU_GROUP_LABEL in pod.labels


def _holders(store):
    """Pods that are bound and have not ended, other than reservation pods."""
    for pod in store.shelf(POD).live.values():
        is_bound = pod.fields[_NODE_NAME] and pod.fields[_PHASE] not in ENDED_PHASES
        if is_bound and not _is_reservation(pod):
            yield pod


def _groups(labels):
    """Shared devices that a pod's labels name."""
    single = [labels[GPU_GROUP_LABEL]] if GPU_GROUP_LABEL in labels else []
    return single or [g for k, g in labels.items() if k.startswith(GPU_GROUPS_PREFIX)]


def _devices(pod):
    """Of how many devices a pod asks for a share."""
    notes = pod.object()["metadata"].get("annotations", {})
    if GPU_FRACTION not in notes and GPU_MEMORY not in notes:
        return 0
    return int(notes.get(GPU_FRACTION_DEVICES, 1))


def _share(notes, memory_mib):
    """Part of each of its devices that a pod asks for; a version that cannot be read has none."""
    try:
        if GPU_MEMORY in notes:
            return Fraction(int(notes[GPU_MEMORY]), memory_mib)
        return Fraction(notes.get(GPU_FRACTION, "0"))
    except ValueError:
        return Fraction(0)


class _Teller:
    """Hears of the committed changes of one kind."""

    def __init__(self, truth, kind):
        self._truth = truth
        self._kind = kind

    def tell(self, changes):
        self._truth.told(self._kind, changes)


class TrueStore(MemoryStore):
    """Tells what is stored."""

    def __init__(self, truth, **rest):
        super().__init__(**rest)
        self._truth = truth

    def store(self, records, *, producer_id, delays_ms):
        positions = super().store(records, producer_id=producer_id, delays_ms=delays_ms)
        self._truth.stored(records)
        return positions
