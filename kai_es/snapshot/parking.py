"""Parked versions: what could not be parsed, and which nodes must stay closed because of it.

A *version* is parked, not a key: the last valid version stays in force, and a newer valid version,
a delete or an operator's word supersedes the parked one (architecture §3, Poison).
"""

from collections.abc import Mapping
from typing import Final, TypeAlias

from kai_es.events.snapshot import Parked, ParkingEnded
from kai_es.kube.objects import Pod
from kai_es.snapshot.effective import TaskState
from kai_es.snapshot.lifecycle import ENDED_PHASES
from kai_es.snapshot.ranking import Rank
from kai_es.snapshot.status import ACTIVE_USED

UNACCOUNTED_POD: Final = "unaccounted-pod"
"""Why a node is closed: what a pod on it uses is not known."""

Entry: TypeAlias = Parked | ParkingEnded
"""`ParkingEnded` stays as a marker until a newer version or delete, so that a repeated parked row
does not bring the discarded version back."""


class Parking:
    """The newest parked version of each (kind, uid) that nothing has superseded.

    closed: node name -> uids of the parked pods that close it.
    """

    __slots__ = ("_closes", "closed", "entries")

    def __init__(self) -> None:
        self.entries: dict[tuple[str, str], Entry] = {}
        self.closed: dict[str, set[str]] = {}
        self._closes: dict[str, str] = {}

    def fold(self, row: Entry, *, known: Rank | None) -> bool:
        """Fold a parked version or its end. Returns whether anything changed.

        Args:
            row: with its rank.
            known: rank of the valid version or delete in force; at equal rank it wins.
        """
        key = (row.kind, row.uid)
        if known is not None and known >= _rank(row):
            return False
        former = self.entries.get(key)
        if former is not None and _order(former) >= _order(row):
            return False
        self.entries[key] = row
        return True

    def supersede(self, kind: str, uid: str, *, rank: Rank) -> bool:
        """A valid version or a delete of this rank is in force. Returns whether it ended one."""
        entry = self.entries.get((kind, uid))
        if entry is None or _rank(entry) > rank:
            return False
        del self.entries[kind, uid]
        return True

    def parked(self, kind: str, uid: str) -> Parked | None:
        """The parked version of a uid."""
        entry = self.entries.get((kind, uid))
        return entry if isinstance(entry, Parked) else None

    def counts(self) -> Mapping[str, int]:
        """Parked versions per kind."""
        counts: dict[str, int] = {}
        for (kind, _), entry in self.entries.items():
            if isinstance(entry, Parked):
                counts[kind] = counts.get(kind, 0) + 1
        return counts

    def judge(self, uid: str, pod: Pod | None, task: TaskState | None) -> tuple[str, ...]:
        """Look again at which node a pod closes.

        Args:
            uid: of the pod.
            pod: its valid version in force, None if there is none.
            task: its effective state.

        Returns:
            Names of nodes that opened or closed by this.
        """
        before = self._closes.get(uid, "")
        now = closed_node(self.parked("Pod", uid), pod, task)
        if before == now:
            return ()
        changed = []
        if before:
            uids = self.closed[before]
            uids.discard(uid)
            if not uids:
                del self.closed[before]
                changed.append(before)
            del self._closes[uid]
        if now:
            if now not in self.closed:
                changed.append(now)
            self.closed.setdefault(now, set()).add(uid)
            self._closes[uid] = now
        return tuple(changed)

    def reasons(self, node: str) -> tuple[str, ...]:
        """Why a node is closed; empty = it is open."""
        return (UNACCOUNTED_POD,) if node in self.closed else ()


def closed_node(parked: Parked | None, pod: Pod | None, task: TaskState | None) -> str:
    """Name of the node that a parked version of a pod closes, "" = none.

    A node closes if a pod that runs there, as far as the parked version can be read, is not
    accounted there by a valid version with the same requests.
    """
    if parked is None or not parked.node or parked.phase in ENDED_PHASES:
        return ""
    if pod is None or task is None:
        return parked.node
    is_accounted = (
        task.status in ACTIVE_USED
        and task.node == parked.node
        and pod.spec.requests == parked.requests
    )
    return "" if is_accounted else parked.node


def _rank(row: Entry) -> Rank:
    return Rank(row.incarnation, row.rv)


def _order(row: Entry) -> tuple[Rank, bool]:
    return (_rank(row), isinstance(row, ParkingEnded))
