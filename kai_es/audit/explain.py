"""The story of a pod or a pod group, from the log alone.

What happened to it, when, and why it waited: one line per event and per run of cycles with the same
reasons. The first line is what kept it waiting longest (or where it stands).
"""

import difflib
from collections.abc import AsyncIterator
from typing import Final

import msgspec

from kai_es.audit.cycles import Recorded
from kai_es.audit.story import Story, Teller
from kai_es.events.snapshot import Batch, Parked, Upserted
from kai_es.kube.objects import Pod, PodGroup
from kai_es.ports.eventlog import ReadableLog
from kai_es.reader.records import read_batches
from kai_es.reader.roll import roll
from kai_es.snapshot.world import World

NEAR_MAX: Final = 5
"""Names shown to somebody who may have meant one of them."""


class UnknownNameError(LookupError):
    """Nothing of this name is in the log; says what was looked for and what is near."""


class NotYetError(LookupError):
    """Nothing of this name was there at the time in question; `came_ms` is when it came."""

    def __init__(self, what: str, came_ms: int) -> None:
        super().__init__(f"no {what} was there at that time")
        self.came_ms = came_ms


async def explain(
    log: ReadableLog,
    world: World,
    *,
    kind: str,
    name: str,
    until_ms: int | None = None,
    until: Recorded | None = None,
) -> Story:
    """Tell the story of a pod or pod group.

    Args:
        log: whose `snapshot` is read on from `world`.
        world: empty, or from a checkpoint: then the story begins there.
        kind: `Pod` or `PodGroup`.
        name: `namespace/name`, or a name that only one namespace has.
        until_ms: leave out what was seen later.
        until: leave out what came after this cycle, which `world` has not seen.

    Returns:
        The story of the uid that bore the name last.

    Raises:
        UnknownNameError: nothing of that name is in the log, or it is in several namespaces.
        NotYetError: nothing of that name was there at that time, but later.
    """
    cast = _Cast(kind, name)
    for entry in world.objects.live.get(kind, {}).values():
        cast.meet(entry.obj)
    for parked in world.parking.entries.values():
        if isinstance(parked, Parked):
            cast.meet_parked(parked)
    async for offset, batch in _told(log, world, until):
        if until_ms is not None and batch.time > until_ms:
            break
        cast.tell(world, offset, batch)
    if not cast.is_known and (until_ms is not None or until is not None):
        async for _, batch in read_batches(log, start=max(world.offset, 0)):
            cast.meet_all(batch)
            if cast.is_known:
                raise NotYetError(f"{kind} named {name!r}", batch.time)
    return cast.last().story()


async def _told(
    log: ReadableLog, world: World, until: Recorded | None
) -> AsyncIterator[tuple[int, Batch]]:
    """What happens after `world`, folded; of a cycle's batch only what is not after the cycle."""
    before = None if until is None else until.at - 1
    async for offset, batch, _ in roll(log, world, until=before):
        yield offset, batch
    if until is None:
        return
    async for offset, batch in read_batches(log, start=until.at):
        n = batch.rows.index(until.cycle) + 1
        cut = msgspec.structs.replace(batch, rows=batch.rows[:n], origins=batch.origins[:n])
        world.apply(offset, cut)
        yield offset, cut
        return


class _Cast:
    """Everyone who has borne a name, in order of appearance."""

    def __init__(self, kind: str, name: str) -> None:
        self._type = Pod if kind == "Pod" else PodGroup
        self._kind = kind
        self._name = name
        self._tellers: dict[str, Teller] = {}
        self._names: set[tuple[str, str]] = set()

    def meet(self, obj: object) -> None:
        """An object that may bear the name."""
        if not isinstance(obj, Pod | PodGroup) or not isinstance(obj, self._type):
            return
        self._names.add((obj.namespace, obj.name))
        self._meet(obj.namespace, obj.name, obj.uid)

    def meet_parked(self, parked: Parked) -> None:
        """A version that cannot be read; there may never have been another one."""
        if parked.kind == self._kind:
            self._meet(parked.namespace, parked.name, parked.uid)

    def _meet(self, namespace: str, name: str, uid: str) -> None:
        if self._name in (name, f"{namespace}/{name}"):
            self._tellers.setdefault(uid, Teller(self._kind, namespace, name, uid))

    @property
    def is_known(self) -> bool:
        """Whether anybody has borne the name."""
        return bool(self._tellers)

    def meet_all(self, batch: Batch) -> None:
        """Everybody who comes in a batch."""
        for row in batch.rows:
            if isinstance(row, Upserted):
                self.meet(row.obj)
            elif isinstance(row, Parked):
                self.meet_parked(row)

    def tell(self, world: World, offset: int, batch: Batch) -> None:
        """A batch that is folded."""
        self.meet_all(batch)
        for teller in self._tellers.values():
            teller.tell(world, offset, batch)

    def last(self) -> Teller:
        """The one who bore the name last.

        Raises:
            UnknownNameError: there is none, or the name does not say which.
        """
        if not self._tellers:
            raise UnknownNameError(
                f"no {self._kind} named {self._name!r} is in the log{self._near()}; names are as "
                f"in `kubectl get {self._kind.lower()}s -A`, NAME or NAMESPACE/NAME"
            )
        names = sorted({f"{t.namespace}/{t.name}" for t in self._tellers.values()})
        if len(names) > 1:
            raise UnknownNameError(
                f"{self._name!r} is in several namespaces, say which: {', '.join(names)}"
            )
        return list(self._tellers.values())[-1]

    def _near(self) -> str:
        """Names like the one that was asked for."""
        namespace, slash, name = self._name.rpartition("/")
        elsewhere = sorted(known for known in self._names if known[1] == name)
        likely = sorted(known for known in self._names if not slash or known[0] == namespace)
        near = difflib.get_close_matches(name, {n: None for _, n in likely}, n=NEAR_MAX)
        found = elsewhere + [known for close in near for known in likely if known[1] == close]
        shown = [f"{namespace}/{name}" for namespace, name in found[:NEAR_MAX]]
        if shown:
            return f", but {', '.join(shown)}"
        return "" if self._names else f", nor any other {self._kind}"
