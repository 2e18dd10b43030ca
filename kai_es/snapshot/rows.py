"""The state of a `World` as typed rows: what a checkpoint holds.

Rows are compared, digested and stored; columns are not. Everything derived (columns, names, stamps,
closed nodes) is made again from them.
"""

from typing import TypeAlias

import msgspec

from kai_es.events.decisions import Reason
from kai_es.events.snapshot import AliveSeen, KindListed, Parked, ParkingEnded
from kai_es.snapshot.lifecycle import Outcome, Request
from kai_es.snapshot.pools import Move
from kai_es.snapshot.ranking import Live
from kai_es.snapshot.reigns import Shard
from kai_es.snapshot.standing import Mark


class LogRow(msgspec.Struct, frozen=True, kw_only=True, tag="log", omit_defaults=True):
    """Where in the log the state is: last accepted batch, its time, next source positions.

    cursors: (topic, partition, position), sorted.
    risen:   see `Liveness`; left out if it is −1.
    """

    offset: int
    time: int
    incarnation: int
    cursors: tuple[tuple[str, int, int], ...]
    risen: int = -1


class TombstoneRow(msgspec.Struct, frozen=True, kw_only=True, tag="tombstone"):
    """A deleted uid that is still remembered."""

    kind: str
    uid: str
    rv: int
    incarnation: int
    time_ms: int


class EarlyRow(msgspec.Struct, frozen=True, kw_only=True, tag="early-result"):
    """Results of a request whose cycle is still to come."""

    request_id: str
    outcome: Outcome


class BackoffRow(msgspec.Struct, frozen=True, kw_only=True, tag="backoff"):
    """Back-off of one pod group for one reason code."""

    group_uid: str
    code: str
    cycles: tuple[tuple[int, str], ...]
    not_before_ms: int


class ReasonsRow(msgspec.Struct, frozen=True, kw_only=True, tag="reasons"):
    """Reasons of a pod group that hold, and the cycle of the shard that introduced them."""

    shard: str
    group_uid: str
    cycle: int
    reasons: tuple[Reason, ...]


StateRow: TypeAlias = (
    LogRow
    | Live
    | TombstoneRow
    | Parked
    | ParkingEnded
    | Request
    | EarlyRow
    | Mark
    | BackoffRow
    | ReasonsRow
    | Shard
    | Move
    | KindListed
    | AliveSeen
)

encoder = msgspec.msgpack.Encoder(order="deterministic")
"""The one encoding of rows for digests: equal rows give equal bytes; floats as IEEE-754."""
