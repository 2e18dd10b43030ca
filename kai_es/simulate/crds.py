"""CustomResourceDefinitions: kinds that clients bring along.

A definition's storage version is served as long as the definition is there. Schemas, conversion
and further versions are not looked at. The kinds of KAI are served without a definition.

Reference: k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1/types.go.
"""

from typing import Any, Final

from kai_es.simulate import answers
from kai_es.simulate.answers import Cause
from kai_es.simulate.database import Database
from kai_es.simulate.kinds import DEFINITION, Kind, custom

_CONDITIONS: Final = (
    {"type": "NamesAccepted", "status": "True", "reason": "NoConflicts"},
    {"type": "Established", "status": "True", "reason": "InitialNamesAccepted"},
)


def check(obj: dict[str, Any]) -> list[Cause]:
    """What is wrong with a definition."""
    spec = obj.get("spec") or {}
    names = spec.get("names") or {}
    causes = [
        answers.required(f"spec.{field}") for field in ("group", "scope") if not spec.get(field)
    ]
    causes += [
        answers.required(f"spec.names.{field}")
        for field in ("kind", "plural")
        if not names.get(field)
    ]
    if not any(v.get("storage") and v.get("name") for v in spec.get("versions") or ()):
        why = "must have exactly one version marked as storage version"
        causes.append(answers.invalid_value("spec.versions", spec.get("versions"), why))
    expected = f"{names.get('plural')}.{spec.get('group')}"
    if not causes and obj["metadata"].get("name") != expected:
        why = 'must be spec.names.plural+"."+spec.group'
        causes.append(answers.invalid_value("metadata.name", obj["metadata"].get("name"), why))
    return causes


def establish(obj: dict[str, Any], now: str) -> None:
    """Enter what the controllers of the real API server would enter within a moment."""
    names = obj["spec"]["names"]
    conditions = [c | {"lastTransitionTime": now, "message": ""} for c in _CONDITIONS]
    obj["status"] = {
        "acceptedNames": dict(names),
        "conditions": conditions,
        "storedVersions": [_storage_version(obj)["name"]],
    }


def kind_of(obj: dict[str, Any]) -> Kind:
    """The kind that a definition defines."""
    spec, version = obj["spec"], _storage_version(obj)
    has_status = "status" in (version.get("subresources") or {})
    return custom(
        spec["group"],
        version["name"],
        spec["names"]["kind"],
        spec["names"]["plural"],
        namespaced=spec["scope"] == "Namespaced",
        status=has_status,
        short=tuple(spec["names"].get("shortNames") or ()),
        **({} if has_status else {"status_born": None}),
    )


def _storage_version(obj: dict[str, Any]) -> dict[str, Any]:
    return next(v for v in obj["spec"]["versions"] if v.get("storage"))


def stored_kinds(database: Database) -> list[Kind]:
    """The kinds that the definitions in the file define."""
    return [kind_of(obj) for obj in database.live(DEFINITION.resource)]
