"""Records of the topic `snapshot`: batches of rows. Owner: the snapshot stream.

`snapshot` is the one total order of everything that happened; every view is a fold of it.
"""

from typing import TypeAlias

import msgspec

from kai_es.events.decisions import Cycle, GateChange, Reign, ReignEnd
from kai_es.events.objects import KindAlive
from kai_es.events.requests import AttemptFailed, Bound, Evicted, Refused
from kai_es.kube.objects import ClusterObject


class Upserted(msgspec.Struct, frozen=True, kw_only=True, tag="upserted"):
    """A valid version of an object. Ranked by (incarnation, uid, rv)."""

    rv: int
    incarnation: int
    obj: ClusterObject


class Removed(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="removed"):
    """An object is gone. A delete wins over an upsert of equal or lower rv."""

    kind: str
    uid: str
    rv: int
    incarnation: int
    namespace: str = ""
    name: str = ""


class Parked(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="parked"):
    """A version that could not be parsed; the last valid one stays in force.

    node, phase, requests: read leniently, so that the node of an unaccounted pod can be closed.
    source: `topic/partition/position` of the record.
    """

    kind: str
    uid: str
    rv: int
    incarnation: int
    namespace: str = ""
    name: str = ""
    error: str
    source: str = ""
    node: str = ""
    phase: str = ""
    requests: dict[str, int] = {}


class ParkingEnded(msgspec.Struct, frozen=True, kw_only=True, tag="parking-ended"):
    """An operator discarded a parked version (a retry comes as `Upserted`)."""

    kind: str
    uid: str
    rv: int
    incarnation: int


class KindListed(msgspec.Struct, frozen=True, kw_only=True, tag="kind-listed"):
    """`Listed` of one kind in one partition of `objects`."""

    partition: int
    kind: str
    rv: int
    incarnation: int
    served: bool = True


class AliveSeen(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="alive-seen"):
    """`Alive` of the informer in one partition of `objects`."""

    partition: int
    incarnation: int
    time: int
    kinds: tuple[KindAlive, ...]
    others: int = 0


Row: TypeAlias = (
    Upserted
    | Removed
    | Parked
    | ParkingEnded
    | KindListed
    | AliveSeen
    | Reign
    | ReignEnd
    | GateChange
    | Cycle
    | Bound
    | Evicted
    | AttemptFailed
    | Refused
)


class Cursor(msgspec.Struct, frozen=True, array_like=True):
    """Positions [start, stop) of one source partition that a batch covers."""

    topic: str
    partition: int
    start: int
    stop: int


class Origin(msgspec.Struct, frozen=True, array_like=True):
    """Where a row comes from: index into `Batch.cursors`, position there, its ingest time."""

    source: int
    position: int
    ingest_ms: int


class Batch(msgspec.Struct, frozen=True, kw_only=True, tag="batch"):
    """One record of `snapshot`.

    prev:    offset of the accepted batch that this one continues, −1 at first.
    time:    the log's clock, ms: max(previous accepted time, writer's clock).
    cursors: one per source partition, sorted by (topic, partition).
    origins: length of rows.
    """

    prev: int
    time: int
    cursors: tuple[Cursor, ...]
    rows: tuple[Row, ...]
    origins: tuple[Origin, ...]


class BatchHead(msgspec.Struct, frozen=True, kw_only=True, tag="batch"):
    """A batch without its rows, for readers that only need to know where the history stands."""

    prev: int
    time: int
    cursors: tuple[Cursor, ...]
