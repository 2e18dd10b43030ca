"""Nodes and pod groups on their way from one shard to another (architecture §3, Shards).

What changed its pool is usable by the new shard only after the old one's open requests on it have
ended and one of its folded cycles has seen the move, or its reign has ended. So two shards never
use one node at a time.
"""

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

import msgspec

from kai_es.events.decisions import Reason
from kai_es.kube.labels import NODE_POOL_LABEL
from kai_es.kube.objects import ShardConfig
from kai_es.snapshot.reigns import Shard

MOVING: Final = "moving"
"""Why a node is closed or a group is held: the shard it comes from may still act on it."""


class Move(msgspec.Struct, frozen=True, kw_only=True, tag="move"):
    """An object that left a shard's pool in the batch at `offset`."""

    kind: str
    uid: str
    shard: str
    offset: int

    def reason(self) -> Reason:
        """Why a pod group is held."""
        return Reason(code=MOVING, args={"shard": self.shard})


class Selector(NamedTuple):
    """Which objects belong to a shard: those with this label value; "" = without the label."""

    shard: str
    key: str
    value: str

    def selects(self, labels: Mapping[str, str]) -> bool:
        """Whether an object with these labels belongs to the shard."""
        if not self.key:
            return True
        if not self.value:
            return self.key not in labels
        return labels.get(self.key) == self.value


def selectors_of(configs: Iterable[ShardConfig]) -> list[Selector]:
    """Selectors of all shards, by name."""
    found = [
        Selector(
            config.name,
            str(config.settings.get("node_pool_key", NODE_POOL_LABEL)),
            str(config.settings.get("node_pool_value", "")),
        )
        for config in configs
    ]
    return sorted(found)


def shard_of(labels: Mapping[str, str], selectors: Iterable[Selector]) -> str:
    """Name of the shard that an object belongs to, "" = none."""
    return next((s.shard for s in selectors if s.selects(labels)), "")


class Pools:
    """Objects on their way, by (kind, uid)."""

    __slots__ = ("moves",)

    def __init__(self) -> None:
        self.moves: dict[tuple[str, str], Move] = {}

    def note(
        self,
        kind: str,
        uid: str,
        *,
        before: str,
        after: str,
        shards: Mapping[str, Shard],
        offset: int,
    ) -> None:
        """An object belongs to another shard than before.

        Args:
            kind: `Node` or `PodGroup`.
            uid: of the object.
            before: shard of its last version, "" = none.
            after: shard of its new version, "" = none.
            shards: what is known of them.
            offset: of the batch that shows it.
        """
        known = self.moves.get((kind, uid))
        if known is not None:
            if after == known.shard:
                del self.moves[kind, uid]  # it came back before anybody else could use it
            return
        if before in shards and after != before:  # to none as well: another may follow at once
            self.moves[kind, uid] = Move(kind=kind, uid=uid, shard=before, offset=offset)

    def drop(self, kind: str, uid: str) -> None:
        """The object is gone."""
        self.moves.pop((kind, uid), None)


def has_let_go(move: Move, shard: Shard, *, has_open_requests: bool) -> bool:
    """Whether the old shard can no longer act on what has moved."""
    if has_open_requests:
        return False
    return not shard.is_reigning or shard.input_offset >= move.offset
