"""Changes of statuses as merge patches."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec

from kai_es.ports.cluster import Resource

Document = Mapping[str, Any]


class Patch(NamedTuple):
    """A merge patch of one object, or of its subresource."""

    resource: Resource
    namespace: str
    name: str
    changes: dict[str, Any]
    subresource: str = ""


class PodConditions(NamedTuple):
    """Conditions of a pod that are set, the others stay; with annotations."""

    namespace: str
    name: str
    conditions: tuple[dict[str, Any], ...]
    annotations: Mapping[str, str]


Write = Patch | PodConditions


def decoded(text: str) -> dict[str, Any]:
    """A part of a status as rows keep it (`kube.conditions.json_text`)."""
    found: dict[str, Any] = msgspec.json.decode(text) if text else {}
    return found


def difference(old: Document, new: Document) -> dict[str, Any]:
    """The merge patch that makes `new` of `old`; {} = they are equal."""
    changes: dict[str, Any] = {name: None for name in old if name not in new}
    for name, value in new.items():
        before = old.get(name)
        if before == value:
            continue
        if isinstance(before, dict) and isinstance(value, dict):
            changes[name] = difference(before, value)
        else:
            changes[name] = value
    return changes
