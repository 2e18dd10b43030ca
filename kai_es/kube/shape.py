"""The part of a raw object that is read, with types: wrong ones become `InvalidObjectError`.

A parser declares what it reads as a struct and nothing else; msgspec checks names and types. In
Go's JSON `null` means unset, so every optional field here takes it.
"""

import re
from typing import Annotated, Any, Final, TypeVar

import msgspec

from kai_es.kube.errors import InvalidObjectError

_T = TypeVar("_T")

Int32 = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]
Count32 = Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]
Int64 = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
NonEmpty = Annotated[str, msgspec.Meta(min_length=1)]
Labels = dict[str, str]

_SHOWN: Final = 80  # characters of a wrong value that a message repeats
_AT: Final = re.compile(r"(.*?)(?: - at `(?:key in )?\$\.?(.*)`)?", re.DOTALL)
_STEP: Final = re.compile(r"([^.\[\]]+)|\[([0-9]+)\]")


class Owner(msgspec.Struct, gc=False):
    """An entry of `metadata.ownerReferences`."""

    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool | None = None


class Metadata(msgspec.Struct, rename="camel", gc=False):
    """What is read of `metadata` of every kind.

    The API server sets a uid on everything; files of objects may lack it, then kind and name serve.
    """

    name: NonEmpty
    uid: str = ""
    namespace: str | None = None
    generation: Int64 | None = None
    labels: Labels | None = None
    annotations: Labels | None = None
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    owner_references: list[Owner] | None = None


def shaped(kind: str, raw: object, shape: type[_T]) -> _T:
    """`raw` as a `shape`.

    Raises:
        InvalidObjectError: a field that is read has a wrong type or value.
    """
    try:
        return msgspec.convert(raw, shape)
    except msgspec.ValidationError as exc:
        raise InvalidObjectError(label_of(kind, raw), _problem(str(exc), raw)) from exc


def uid_of(kind: str, metadata: Metadata) -> str:
    """The object's uid, or a stable stand-in for it."""
    return metadata.uid or uid_stand_in(kind, metadata.namespace or "", metadata.name)


def uid_stand_in(kind: str, namespace: str, name: str) -> str:
    """What serves as uid of an object that no API server has seen."""
    return f"{kind}/{namespace}/{name}"


def label_of(kind: str, raw: object) -> str:
    """Kind and `namespace/name` of an object, however broken it is."""
    metadata = raw.get("metadata") if isinstance(raw, dict) else None
    metadata = metadata if isinstance(metadata, dict) else {}
    name = metadata.get("name")
    namespace = metadata.get("namespace")
    label = name if isinstance(name, str) and name else "(without a name)"
    return f"{kind} {namespace}/{label}" if isinstance(namespace, str) else f"{kind} {label}"


def _problem(message: str, raw: object) -> str:
    """Take `Expected X, got Y - at $.path` as field, value, and what would be right."""
    match = _AT.fullmatch(message)
    assert match is not None, "the pattern takes every text"
    complaint, path = match[1], match[2] or "the object"
    wanted = complaint.removeprefix("Expected ").split(", got")[0].replace("`", "")
    if "missing required field" in complaint:
        name = complaint.rsplit("`", 2)[-2]
        return f"{path}.{name} is missing, want it set"
    if "[...]" in path:  # msgspec does not name keys of maps
        return f"{path} is of a wrong type, want {wanted}"
    return f"{path} is {_shown(_at(raw, path))}, want {wanted}"


def _at(raw: Any, path: str) -> object:
    for name, index in _STEP.findall(path):
        if name and isinstance(raw, dict):
            raw = raw.get(name)
        elif index and isinstance(raw, list) and int(index) < len(raw):
            raw = raw[int(index)]
    return raw


def _shown(value: object) -> str:
    if isinstance(value, dict | list):
        return f"a {'map' if isinstance(value, dict) else 'list'}"
    if isinstance(value, int) and value.bit_length() > _SHOWN:
        return "a very large number"
    text = repr(value)
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "…"
