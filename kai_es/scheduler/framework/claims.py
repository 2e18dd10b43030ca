"""Claims on devices in a session: who holds what, and what a task would get on a node.

A claim holds its devices for its users. It is there while one of them is, leaves when all of them
leave, and waits when nobody but waiting tasks use it; so evicting a task changes nothing here: its
status says that its devices come free. A victim that is placed anew gets new devices beside the old
ones, as the pod that its workload makes in its place will have new claims.

Reference: pkg/scheduler/plugins/dynamicresources (plugins §10.4).
"""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kai_es.events.decisions import ClaimGrant, ContainerMapping, ExtendedGrant, Reason
from kai_es.kube.devices import Allocation, DeviceClass, DeviceRequest, ResourceClaim
from kai_es.scheduler.columns.sharing import OTHER, PIPELINED, RELEASING
from kai_es.scheduler.dra.allocate import AllocationError, Wanted, allocate
from kai_es.scheduler.dra.extended import served, synthetic_claim
from kai_es.scheduler.dra.pools import Offer
from kai_es.scheduler.flags import EXTENDED_NOT_ASSUMED, EXTENDED_NOT_FREED
from kai_es.scheduler.framework import statuses
from kai_es.scheduler.solve.node_affinity import RequiredNodes
from kai_es.snapshot.device_rows import gpu_devices, references, taken_devices

if TYPE_CHECKING:
    from kai_es.kube.objects import Node, Pod
    from kai_es.scheduler.framework.session import Session
    from kai_es.snapshot.shapes import Shape

EXTENDED: Final = "<extended-resources>"
"""Stands for the name of the claim that the binder makes for extended resources."""
_LEFT: Final = "-"
"""Before the uid of a user that has a new place: it leaves this one."""
_ANEW: Final = "+"
"""After the key of a claim whose users leave: the one that will stand in its place."""


class Held(NamedTuple):
    """One claim of a placed task.

    key:       the claim's uid, or what stands for a claim that is still to be made.
    reference: its name in the pod, "" = of extended resources.
    name:      the claim's own name.
    is_new:    it gets its devices with this placement.
    requests, mappings: of a claim for extended resources that is to be made.
    """

    key: str
    reference: str
    name: str
    allocation: Allocation
    is_new: bool
    requests: tuple[DeviceRequest, ...] = ()
    mappings: tuple[ContainerMapping, ...] = ()


class Choice(NamedTuple):
    """What a task gets on a node.

    waits: some of it is still being released.
    home:  it is what the task had there before it was evicted.
    """

    held: tuple[Held, ...]
    waits: bool
    home: bool = False

    @property
    def devices(self) -> tuple[str, ...]:
        """GPUs, as nodes count them."""
        return gpu_devices(one.allocation for one in self.held)


class Claims:
    """See the module. Everything that a statement changes here is in the journal."""

    def __init__(self, session: "Session") -> None:
        self._session = session
        self._rows = session.columns.rows.devices
        self._pools = session.columns.pools()
        is_withheld = "dra" in session.config.withheld
        self._class_of = {} if is_withheld else self._rows.class_of_resource()
        self.classes: dict[str, DeviceClass] = {
            row.device_class.name: row.device_class for row in self._rows.classes.live()
        }
        self._users: dict[str, tuple[str, ...] | None] = {}
        self._allocations: dict[str, Allocation | None] = {}
        self._holders: dict[str, tuple[str, ...] | None] = {}
        self._held: dict[int, tuple[Held, ...] | None] = {}
        self._assume()

    def _assume(self) -> None:
        """What bind requests promise and no claim says yet."""
        for uid in self._rows.promised:
            row = self._session.columns.rows.pods[uid]
            granted = {one.reference: one.allocation for one in row.state.claims}
            for reference, claim in self._claims(row.pod):
                if reference in granted and claim.allocation is None:
                    self._assumed(claim.uid, granted[reference], uid)
            extended = row.state.extended
            if (
                extended is not None
                and self._rows.extended_claim(uid) is None
                and EXTENDED_NOT_ASSUMED not in self._session.flags
            ):
                self._assumed(_extended_key(uid), extended.allocation, uid)

    def _assumed(self, key: str, allocation: Allocation, uid: str) -> None:
        self._users[key] = (*self.users_of(key), uid)
        self._allocations[key] = allocation
        for device in taken_devices(allocation):
            self._holders[device] = (*self._holders_of(device), key)

    # -- what there is

    def concerns(self, shape: "Shape") -> bool:
        """Whether tasks of a shape have or want claims."""
        spec = shape.spec
        return bool(spec.resource_claims) or (bool(spec.extended) and bool(self.served(shape)))

    def served(self, shape: "Shape") -> dict[str, int]:
        """Extended resources of a shape that a device class serves, with amounts."""
        return served(shape.spec.extended, self._class_of) if shape.spec.extended else {}

    def counted(self, shape: "Shape", namespace: str) -> dict[int, int]:
        """By node row: GPUs of claims that a shape names, which the node counts already."""
        found: dict[int, int] = {}
        state = self._session.nodes
        for _, name, kind in shape.spec.resource_claims:
            claim = self._rows.claim((namespace, name)) if kind == "claim" else None
            allocation = None if claim is None else self.allocation_of(claim.uid)
            if allocation is None:
                continue
            for device in gpu_devices([allocation]):
                for n in state.claiming:
                    if device in state.claimed[n]:
                        found[n] = found.get(n, 0) + 1
        return found

    def devices_at_start(self, task: int) -> tuple[str, ...]:
        """The GPUs that a task is counted with as the session opens."""
        row = self._session.row(task)
        return self._rows.devices_of(row.pod, row.state)

    def _claims(self, pod: "Pod") -> Iterator[tuple[str, ResourceClaim]]:
        for reference, name in references(pod):
            claim = self._rows.claim((pod.namespace, name)) if name else None
            if claim is not None:
                yield reference, claim

    def users_of(self, key: str) -> tuple[str, ...]:
        """Uids of the pods that a claim is for; one that has a new place since has a mark."""
        users = self._users.get(key)
        if users is None:
            row = self._rows.claims.rows.get(key)
            users = () if row is None else tuple(one.uid for one in row.claim.reserved_for)
        return users

    def allocation_of(self, key: str) -> Allocation | None:
        """What a claim has got."""
        if key in self._allocations:
            return self._allocations[key]
        row = self._rows.claims.rows.get(key)
        return None if row is None else row.claim.allocation

    def _holders_of(self, device: str) -> tuple[str, ...]:
        holders = self._holders.get(device)
        return self._rows.holders(device) if holders is None else holders

    def _kind(self, key: str) -> int:
        """How a claim counts (`columns.sharing`): as the most present of its users."""
        kinds = {self._kind_of_user(uid) for uid in self.users_of(key)}
        if not kinds or OTHER in kinds:
            return OTHER
        return PIPELINED if PIPELINED in kinds else RELEASING

    def stays(self, uid: str) -> bool:
        """Whether a user of a claim does not leave it."""
        return self._kind_of_user(uid) != RELEASING

    def _kind_of_user(self, uid: str) -> int:
        if uid.startswith(_LEFT):
            return RELEASING
        row = self._session.columns.rows.pods.get(uid)
        if row is None:
            return OTHER  # not seen yet
        status = self._session.status[row.row]
        if status == statuses.RELEASING and self._frees(uid):
            return RELEASING
        return PIPELINED if status == statuses.PIPELINED else OTHER

    def _frees(self, uid: str) -> bool:
        """Whether the devices of a pod that leaves come free. compat: not those of Q-37."""
        is_kept = EXTENDED_NOT_FREED in self._session.flags
        return not is_kept or self._rows.extended_claim(uid) is None

    # -- what a task gets

    def choose(self, task: int, n: int, *, idle: bool) -> Choice | Reason:
        """Devices for all claims of a task on a node.

        Args:
            task: its row.
            n: the node.
            idle: the task may start there now, as far as other things go; then devices that are
                idle come before those that are being released.
        """
        session = self._session
        entry = session.entry(task, n) if session.virtual[task] else None
        if entry is not None and entry[0] == RELEASING:
            home = Choice(self._held_of(task), waits=True, home=True)
            if home.devices == entry[1] and self._is_home(home.held):
                return home
        node = session.nodes.columns.facts[n].node
        found: list[Held] = []
        wanted: list[tuple[Held, Wanted]] = []
        waits = False
        for one, asked in self._asked(task, node):
            if asked is not None:
                wanted.append((one, asked))
                continue
            if not _is_usable(one.allocation.node_selector, node):
                return Reason(code="claim-elsewhere", args={"claim": one.name})
            found.append(one)
            waits = waits or self._kind(one.key) == PIPELINED
        if wanted:
            new = self._allocate(task, [asked for _, asked in wanted], node, idle=idle)
            if isinstance(new, Reason):
                return new
            allocations, late = new
            waits = waits or late
            for (one, _), allocation in zip(wanted, allocations, strict=True):
                found.append(one._replace(allocation=allocation))
        return Choice(tuple(found), waits)

    def _is_home(self, held: Iterable[Held]) -> bool:
        """Whether nobody else has been promised the devices of a victim."""
        return all(
            key == one.key or self._kind(key) == RELEASING
            for one in held
            for device in taken_devices(one.allocation)
            for key in self._holders_of(device)
        )

    def _asked(self, task: int, node: "Node") -> Iterator[tuple[Held, Wanted | None]]:
        """The claims of a task: those that have devices, and what the others want."""
        row = self._session.row(task)
        for reference, claim in self._claims(row.pod):
            key = self._key(task, claim.uid)
            allocation = self.allocation_of(key)
            name = f"{claim.namespace}/{claim.name}"
            if allocation is not None:
                yield Held(key, reference, claim.name, allocation, is_new=False), None
            else:
                wanted = Wanted(name, claim.requests, claim.constraints, claim.config)
                yield Held(key, reference, claim.name, Allocation(), is_new=True), wanted
        if row.shape.spec.extended and self.served(row.shape):
            yield from self._asked_extended(task, node)

    def _key(self, task: int, key: str) -> str:
        """A claim of a victim that leaves with all its other users stands for the next one too."""
        uid = self._session.row(task).pod.uid
        mine = (uid, _LEFT + uid)
        while (
            self._session.virtual[task]
            and any(user in mine for user in self.users_of(key))
            and self._kind(key) == RELEASING
        ):
            key += _ANEW
        return key

    def _asked_extended(self, task: int, node: "Node") -> Iterator[tuple[Held, Wanted | None]]:
        row = self._session.row(task)
        made = self._rows.extended_claim(row.pod.uid)
        key = self._key(task, _extended_key(row.pod.uid) if made is None else made.uid)
        allocation = self.allocation_of(key)
        if allocation is not None and _is_usable(allocation.node_selector, node):
            yield Held(key, "", EXTENDED, allocation, is_new=False), None
            return
        claim = synthetic_claim(row.shape.spec.extended, self._class_of, offers=node.offers)
        if claim.requests:
            held = Held(key, "", EXTENDED, Allocation(), True, claim.requests, claim.mappings)
            yield held, Wanted(EXTENDED, claim.requests)

    def _allocate(
        self, task: int, wanted: list[Wanted], node: "Node", *, idle: bool
    ) -> tuple[list[Allocation], bool] | Reason:
        """Devices that are idle, or else with those that are being released; whether it waits."""
        offers = self._pools.at(node)
        error = ""
        for late in (False, True) if idle else (True,):

            def is_free(offer: Offer, late: bool = late) -> bool:
                kinds = (self._kind(key) for key in self._holders_of(offer.key))
                return all(late and kind == RELEASING for kind in kinds)

            try:
                found = allocate(wanted, offers, self.classes, node=node, is_free=is_free)
            except AllocationError as exc:
                error = str(exc)
            else:
                return found, self._any_leaving(found)
        return Reason(code="claim-unmet", args={"error": error})

    def _any_leaving(self, allocations: Iterable[Allocation]) -> bool:
        return any(self._holders_of(device) for one in allocations for device in taken_devices(one))

    # -- what a statement changes

    def take(self, task: int, choice: Choice) -> None:
        """A task is placed with these devices."""
        uid = self._session.row(task).pod.uid
        keys = {one.key for one in choice.held}
        for one in self._held_of(task):
            if one.key not in keys:
                self._replace_user(one.key, uid, _LEFT + uid)
        for one in choice.held:
            self._replace_user(one.key, uid, uid)
            if one.is_new:
                self._write(self._allocations, one.key, one.allocation)
                for device in taken_devices(one.allocation):
                    holders = (*self._holders_of(device), one.key)
                    self._write(self._holders, device, holders)
        self._write(self._held, task, choice.held)

    def give_back(self, task: int, before: tuple[Held, ...] | None) -> None:
        """A placement is undone; `before`: what `held` said before it."""
        uid = self._session.row(task).pod.uid
        for one in self._held_of(task):
            users = tuple(user for user in self.users_of(one.key) if user != uid)
            self._write(self._users, one.key, users)
            if not users and self._is_of_session(one.key):
                self._write(self._allocations, one.key, None)
                for device in taken_devices(one.allocation):
                    holders = tuple(key for key in self._holders_of(device) if key != one.key)
                    self._write(self._holders, device, holders)
        self._write(self._held, task, before)
        for one in self._held_of(task):
            self._replace_user(one.key, _LEFT + uid, uid)

    def held(self, task: int) -> tuple[Held, ...] | None:
        """What a task was given in this session, None = nothing yet."""
        return self._held.get(task)

    def grants(self, task: int) -> tuple[tuple[ClaimGrant, ...], ExtendedGrant | None]:
        """What a bind request has to say of a task's devices."""
        claims: list[ClaimGrant] = []
        extended: ExtendedGrant | None = None
        for one in self._held.get(task) or ():
            if one.reference:
                claims.append(ClaimGrant(one.reference, one.name, one.key, one.allocation))
            else:
                extended = ExtendedGrant(one.allocation, one.requests, one.mappings)
        return tuple(claims), extended

    def _held_of(self, task: int) -> tuple[Held, ...]:
        """What a task has: given in this session, or as the rows say."""
        held = self._held.get(task)
        if held is not None:
            return held
        row = self._session.row(task)
        if not row.state.node:
            return ()
        known = self._rows.known(row.pod, row.state)
        found = [
            Held(claim.uid, reference, claim.name, known[reference], is_new=False)
            for reference, claim in self._claims(row.pod)
            if reference in known
        ]
        made = self._rows.extended_claim(row.pod.uid)
        key = _extended_key(row.pod.uid) if made is None else made.uid
        allocation = self.allocation_of(key)
        if allocation is not None:
            found.append(Held(key, "", EXTENDED, allocation, is_new=False))
        return tuple(found)

    def _is_of_session(self, key: str) -> bool:
        row = self._rows.claims.rows.get(key)
        return row is None or row.claim.allocation is None

    def _replace_user(self, key: str, old: str, new: str) -> None:
        users = tuple(user for user in self.users_of(key) if user not in (old, new))
        self._write(self._users, key, (*users, new))

    def _write(self, table: dict[Any, Any], key: Any, value: Any) -> None:
        self._session.journal.append((_Table(table), key, table.get(key, _ABSENT)))
        table[key] = value


_ABSENT: Final = object()


class _Table:
    """Puts back what the journal has kept, absent entries too."""

    __slots__ = ("_table",)

    def __init__(self, table: dict[Any, Any]) -> None:
        self._table = table

    def __setitem__(self, key: Any, value: Any) -> None:
        if value is _ABSENT:
            self._table.pop(key, None)
        else:
            self._table[key] = value


def _extended_key(pod_uid: str) -> str:
    return f"extended/{pod_uid}"


def _is_usable(selector: Any, node: "Node") -> bool:
    """Whether devices of an allocation can be used on a node."""
    if selector is None:
        return True
    terms = selector.get("nodeSelectorTerms") or ()
    return RequiredNodes({}, terms).matches(node.name, node.labels)
