"""Records of the topics `objects` and `objects.index`. Owner: informers."""

from typing import Any

import msgspec


class ObjectSeen(msgspec.Struct, frozen=True, kw_only=True, tag="object-seen"):
    """One version of one Kubernetes object, raw without noise. Key: `<kind>/<uid>`.

    rv compares as an integer within one kind and incarnation.
    """

    kind: str
    uid: str
    namespace: str
    name: str
    rv: int
    incarnation: int
    object: dict[str, Any]


class ObjectDeleted(msgspec.Struct, frozen=True, kw_only=True, tag="object-deleted"):
    """The object is gone. `synthetic`: found missing in a list whose rv this carries."""

    kind: str
    uid: str
    namespace: str
    name: str
    rv: int
    incarnation: int
    synthetic: bool = False


class Listed(msgspec.Struct, frozen=True, kw_only=True, tag="listed"):
    """A list of this kind, complete up to `rv`, has been appended. In every partition.

    served: False = the API server has no such kind (404); it counts as an empty list.
    """

    kind: str
    rv: int
    incarnation: int
    served: bool = True


class KindAlive(msgspec.Struct, frozen=True, array_like=True):
    """Last rv appended and time of the last event or bookmark of one kind's watch."""

    kind: str
    rv: int
    seen_ms: int


class Alive(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="alive"):
    """The informer lives; every 2 s in every partition.

    In `objects.index` (key `Alive`) it tells a restarted informer how far history had come.

    others: open BindRequest objects of another scheduler.
    """

    incarnation: int
    kinds: tuple[KindAlive, ...]
    others: int = 0


class ParkedAction(msgspec.Struct, frozen=True, kw_only=True, tag="parked-action"):
    """An operator's answer to a parked version. Key: `Parked/<uid>`.

    action: "retry" carries the live object and at equal rv beats the parked version; "discard"
    gives the version up.
    """

    kind: str
    uid: str
    rv: int
    incarnation: int
    action: str
    object: dict[str, Any] | None = None


ObjectRecord = ObjectSeen | ObjectDeleted | Listed | Alive | ParkedAction
