"""Versions of objects, ranked: the newest one of each uid, and the deletes.

A version ranks by (incarnation, rv) within its uid; a delete wins over a version of equal or lower
rank, a later version of the uid revives it. So versions fold in any order to the same state.
"""

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

import msgspec

from kai_es.kube.objects import ClusterObject, Node, Pod, kind_of
from kai_es.snapshot.observed import Since

TOMBSTONE_KEEP_MS: Final = 15 * 60 * 1000
"""Of the log's time. Sources are folded within seconds of each other, even when a stream that was
away for hours catches up; after this long no older version of a deleted uid can follow."""


class Rank(NamedTuple):
    """Order of the versions of one uid. `incarnation` rises when etcd was restored."""

    incarnation: int
    rv: int


class Live(msgspec.Struct, kw_only=True, omit_defaults=True, tag="live"):
    """The valid version in force of one uid.

    seen: when the uid was first seen.
    pending, bound: when its pod was first seen without and with a node.
    stood: since when its node stands as it does (`NodeStanding`).
    """

    obj: ClusterObject
    rv: int
    incarnation: int
    seen: Since
    pending: Since | None = None
    bound: Since | None = None
    stood: Since | None = None

    @property
    def rank(self) -> Rank:
        """Rank of the version."""
        return Rank(self.incarnation, self.rv)


class Tombstone(msgspec.Struct, frozen=True, kw_only=True):
    """A uid that was deleted at `rv`; kept for a while so that nothing older revives it."""

    rv: int
    incarnation: int
    time_ms: int

    @property
    def rank(self) -> Rank:
        """Rank of the delete."""
        return Rank(self.incarnation, self.rv)


def node_standing(node: Node) -> str:
    """Whether a node's capacity can be used: `up`, `drained` (no new pods) or `down`.

    A node without the condition counts as ready (reference fairness.md §2.6).
    """
    if node.deleted_ms or node.conditions.get("Ready", "True") != "True":
        return "down"
    return "drained" if node.unschedulable else "up"


class Objects:
    """Live versions and tombstones of every kind, by uid."""

    __slots__ = ("live", "tombstones")

    def __init__(self) -> None:
        self.live: dict[str, dict[str, Live]] = {}
        self.tombstones: dict[str, dict[str, Tombstone]] = {}

    def upsert(self, obj: ClusterObject, *, rank: Rank, since: Since) -> Live | None:
        """Fold a version.

        Returns:
            The live entry if the version is now in force, None if something newer is known.
        """
        kind, uid = kind_of(obj), obj.uid
        tombstone = self.tombstones.get(kind, {}).get(uid)
        if tombstone is not None:
            if rank <= tombstone.rank:
                return None
            del self.tombstones[kind][uid]
        entries = self.live.setdefault(kind, {})
        entry = entries.get(uid)
        if entry is None:
            entry = Live(obj=obj, rv=rank.rv, incarnation=rank.incarnation, seen=since)
            entries[uid] = entry
        elif rank <= entry.rank:
            return None
        else:
            if isinstance(obj, Node) and node_standing(obj) != _standing(entry.obj):
                entry.stood = None
            entry.obj, entry.rv, entry.incarnation = obj, rank.rv, rank.incarnation
        _note_first(entry, since)
        return entry

    def remove(self, kind: str, uid: str, *, rank: Rank, time_ms: int) -> Live | None:
        """Fold a delete; it acts on the uid alone.

        Returns:
            The entry that was live until now, None if none was or if a newer version is known.
        """
        entries = self.live.get(kind, {})
        entry = entries.get(uid)
        if entry is not None and entry.rank > rank:
            return None
        tombstones = self.tombstones.setdefault(kind, {})
        known = tombstones.get(uid)
        if known is None or known.rank < rank:
            tombstones[uid] = Tombstone(rv=rank.rv, incarnation=rank.incarnation, time_ms=time_ms)
        if entry is not None:
            del entries[uid]
        return entry

    def get(self, kind: str, uid: str) -> Live | None:
        """The version in force."""
        return self.live.get(kind, {}).get(uid)

    def is_deleted(self, kind: str, uid: str) -> bool:
        """Whether the uid is known to be gone."""
        return uid in self.tombstones.get(kind, {})

    def rank(self, kind: str, uid: str) -> Rank | None:
        """Rank of what is known best of a uid, version or delete."""
        entry = self.get(kind, uid)
        if entry is not None:
            return entry.rank
        tombstone = self.tombstones.get(kind, {}).get(uid)
        return tombstone.rank if tombstone is not None else None

    def n_live(self, kind: str) -> int:
        """Live uids of a kind that have a valid version."""
        return len(self.live.get(kind, ()))

    def copy(self, kinds: Iterable[str]) -> "Objects":
        """Entries of some kinds, for a fold of its own that may change them; objects are shared."""
        other = Objects()
        for kind in kinds:
            entries = self.live.get(kind, {})
            other.live[kind] = {uid: msgspec.structs.replace(e) for uid, e in entries.items()}
            other.tombstones[kind] = dict(self.tombstones.get(kind, {}))
        return other

    def forget(self, *, before_ms: int) -> Iterator[tuple[str, str]]:
        """Drop tombstones older than a time; yields (kind, uid) of each, in fixed order."""
        for kind in sorted(self.tombstones):
            tombstones = self.tombstones[kind]
            old = sorted(uid for uid, t in tombstones.items() if t.time_ms < before_ms)
            for uid in old:
                del tombstones[uid]
                yield kind, uid


def _note_first(entry: Live, since: Since) -> None:
    obj = entry.obj
    if isinstance(obj, Pod):
        if obj.node:
            entry.bound = entry.bound or since
        else:
            entry.pending = entry.pending or since
    elif isinstance(obj, Node):
        entry.stood = entry.stood or since


def _standing(obj: ClusterObject) -> str:
    assert isinstance(obj, Node)
    return node_standing(obj)
