"""What the log already holds of one kind, and what a list or a watch adds to it. Pure.

Equal to a diff of two maps uid -> version; that a stream of differences folds to the live objects
is shown by `tests/property/test_intake.py`.
"""

from collections.abc import Iterable
from hashlib import blake2b
from typing import Any, Final, NamedTuple

import msgspec

from kai_es.events.objects import ObjectDeleted, ObjectSeen
from kai_es.intake.index import IndexedObject
from kai_es.intake.kinds import Source
from kai_es.intake.noise import strip

_DIGEST_BYTES: Final = 16
_encoder: Final = msgspec.json.Encoder(order="deterministic")


class Version(NamedTuple):
    """The last version of an object that was taken in. `digest` only where heartbeats occur."""

    rv: int
    incarnation: int
    namespace: str
    name: str
    digest: bytes = b""


class RestoredError(Exception):
    """A resourceVersion fell: etcd was restored from a backup, and history forks here."""


class UnusableError(ValueError):
    """An object without uid or numeric resourceVersion: nothing can be said about it in the log."""


class Known:
    """Objects of one kind by uid, and the highest resourceVersion seen of it.

    All methods are synchronous: what they return must reach the log, in this order, before
    anything later does; whoever cannot do that starts over from `objects.index`.

    A restore that nobody noticed while it happened is found by numbers that fell. Not found is an
    object that was written at the same number, differently, before and after.
    """

    def __init__(self, source: Source) -> None:
        self.source = source
        self.versions: dict[str, Version] = {}
        self.rv = 0
        self.complete = 0
        """Everything that is live and not newer than this is in `versions`."""
        self.incarnation = 0
        """The one that `rv` and `complete` belong to."""

    def enter(self, incarnation: int) -> None:
        """Go on in an incarnation; numbers of another one say nothing in it."""
        if incarnation != self.incarnation:
            self.incarnation = incarnation
            self.rv = self.complete = 0

    def restore(self, record: IndexedObject) -> None:
        """An object as `objects.index` has it."""
        digest = digest_of(record.content()) if self.source.heartbeats else b""
        self.versions[record.uid] = Version(
            record.rv, record.incarnation, record.namespace, record.name, digest
        )

    def proceed(self, incarnation: int, rv: int) -> None:
        """Go on where the log had come to: in `incarnation`, complete up to `rv`.

        Single objects may be newer: of a list that was not finished.
        """
        self.incarnation = incarnation
        same = [v.rv for v in self.versions.values() if v.incarnation == incarnation]
        self.rv = max(rv, *same, 0)
        self.complete = rv

    def listed(self, raw: dict[str, Any]) -> ObjectSeen | None:
        """An object of a list; None = the log has it.

        Raises:
            RestoredError: it is older than the version known, or it should have been known.
            UnusableError: see there.
        """
        uid, rv = _identity(raw)
        known = self.versions.get(uid)
        if known is None and rv <= self.complete:
            raise RestoredError(
                f"{self.source.kind} {uid} of {rv} is back, all was known up to {self.complete}"
            )
        if known is not None and known.incarnation == self.incarnation and rv < known.rv:
            raise RestoredError(f"{self.source.kind} {uid}: {rv} is listed, {known.rv} was known")
        return self._seen(uid, rv, raw)

    def changed(self, raw: dict[str, Any]) -> ObjectSeen | None:
        """An added or modified object of a watch; None = the log has it or a later one.

        Raises:
            UnusableError: see there.
        """
        uid, rv = _identity(raw)
        self.reached(rv)
        known = self.versions.get(uid)
        if known is not None and known.incarnation == self.incarnation and rv < known.rv:
            return None
        return self._seen(uid, rv, raw)

    def deleted(self, raw: dict[str, Any]) -> ObjectDeleted | None:
        """A deleted object of a watch, whose resourceVersion is that of the deletion.

        None = the log never had it, or a list has shown the deletion before.

        Raises:
            UnusableError: see there.
        """
        uid, rv = _identity(raw)
        self.reached(rv)
        known = self.versions.get(uid)
        if known is None or (known.incarnation == self.incarnation and rv < known.rv):
            return None
        return self._gone(uid, rv, synthetic=False)

    def reached(self, rv: int) -> None:
        """All that happened up to `rv` has been taken in."""
        self.rv = self.complete = max(self.rv, rv)

    def missing(self, seen: Iterable[str], rv: int) -> list[ObjectDeleted]:
        """Synthetic deletes after a complete list of `seen` uids at `rv`, by uid.

        An object that is newer than the list is no gap in it.
        """
        gone = self.versions.keys() - set(seen)
        return [
            self._gone(uid, rv, synthetic=True)
            for uid in sorted(gone)
            if (self.versions[uid].incarnation, self.versions[uid].rv) <= (self.incarnation, rv)
        ]

    def _seen(self, uid: str, rv: int, raw: dict[str, Any]) -> ObjectSeen | None:
        known, incarnation = self.versions.get(uid), self.incarnation
        current = known is not None and known.incarnation == incarnation
        if current and known is not None and known.rv == rv:
            return None
        source = self.source
        kind = source.kind
        if source.resolve is None:
            raw["apiVersion"] = source.resource.api_version  # items of lists come without
            raw["kind"] = kind
            obj = strip(kind, raw)
        else:
            obj = source.resolve(raw)
        metadata = raw["metadata"]
        namespace, name = _text(metadata.get("namespace")), _text(metadata.get("name"))
        digest = digest_of(obj) if source.heartbeats else b""
        self.versions[uid] = Version(rv, incarnation, namespace, name, digest)
        if digest and current and known is not None and digest == known.digest:
            return None
        return ObjectSeen(
            kind=kind,
            uid=uid,
            namespace=namespace,
            name=name,
            rv=rv,
            incarnation=incarnation,
            object=obj,
        )

    def _gone(self, uid: str, rv: int, *, synthetic: bool) -> ObjectDeleted:
        known = self.versions.pop(uid)
        return ObjectDeleted(
            kind=self.source.kind,
            uid=uid,
            namespace=known.namespace,
            name=known.name,
            rv=rv,
            incarnation=self.incarnation,
            synthetic=synthetic,
        )


def digest_of(obj: dict[str, Any]) -> bytes:
    """Digest of an object's content, its resourceVersion aside."""
    metadata = obj.get("metadata")
    if isinstance(metadata, dict) and "resourceVersion" in metadata:
        content = {k: v for k, v in metadata.items() if k != "resourceVersion"}
        obj = {**obj, "metadata": content}
    return blake2b(_encoder.encode(obj), digest_size=_DIGEST_BYTES).digest()


def rv_of(raw: dict[str, Any]) -> int:
    """The resourceVersion as a number.

    Raises:
        UnusableError: it is none.
    """
    metadata = raw.get("metadata")
    text = metadata.get("resourceVersion") if isinstance(metadata, dict) else None
    if not isinstance(text, str) or not text.isascii() or not text.isdigit():
        raise UnusableError(f"resourceVersion is {text!r}, want a number")
    return int(text)


def _identity(raw: dict[str, Any]) -> tuple[str, int]:
    rv = rv_of(raw)
    uid = raw["metadata"].get("uid")
    if not isinstance(uid, str) or not uid:
        raise UnusableError(f"uid of {raw['metadata'].get('name')!r} is {uid!r}, want a text")
    return uid, rv


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""
