"""What the API server says about itself: version, groups, resources.

Reference: k8s.io/apiserver/pkg/endpoints/discovery.
"""

from collections.abc import Sequence
from typing import Any, Final

from kai_es.simulate.kinds import Kind, KindTable

GIT_VERSION: Final = "v1.36.3"
"""The version whose behaviour is simulated."""

VERSION: Final = {
    "major": "1",
    "minor": "36",
    "gitVersion": GIT_VERSION,
    "gitCommit": "simulated",
    "gitTreeState": "clean",
    "buildDate": "1970-01-01T00:00:00Z",
    "goVersion": "none",
    "compiler": "none",
    "platform": "simulated",
}
_VERBS: Final = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")
_SUBRESOURCES: Final = {
    "binding": ("Binding", ("create",)),
    "eviction": ("Eviction", ("create",)),
    "finalize": ("Namespace", ("update",)),
}


def find(table: KindTable, path: Sequence[str]) -> dict[str, Any] | None:
    """The document at `/api…` or `/apis…`, None if there is none."""
    if path[0] == "api":
        if path[1:]:
            return _resources(table, "", path[1]) if len(path) == 2 else None
        return {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []}
    groups = table.groups()
    if len(path) == 1:
        named = [_group(name, list(versions)) for name, versions in groups.items() if name]
        return {"kind": "APIGroupList", "apiVersion": "v1", "groups": named}
    if path[1] not in groups or len(path) > 3:
        return None
    if len(path) == 3:
        return _resources(table, path[1], path[2])
    return {"kind": "APIGroup", "apiVersion": "v1"} | _group(path[1], list(groups[path[1]]))


def _group(name: str, versions: Sequence[str]) -> dict[str, Any]:
    entries = [{"groupVersion": f"{name}/{v}", "version": v} for v in versions]
    return {"name": name, "versions": entries, "preferredVersion": entries[0]}


def _resources(table: KindTable, group: str, version: str) -> dict[str, Any] | None:
    kinds = table.groups().get(group, {}).get(version)
    if not kinds:
        return None
    resources: list[dict[str, Any]] = []
    for kind in kinds:
        resources.append(_resource(kind))
        if kind.status:
            verbs = ("get", "patch", "update")
            resources.append(_subresource(kind, "status", kind.kind, verbs))
        resources += [_subresource(kind, name, *_SUBRESOURCES[name]) for name in kind.subresources]
    return {
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": f"{group}/{version}" if group else version,
        "resources": resources,
    }


def _resource(kind: Kind) -> dict[str, Any]:
    out: dict[str, Any] = {
        "name": kind.plural,
        "singularName": kind.kind.lower(),
        "namespaced": kind.namespaced,
        "kind": kind.kind,
        "verbs": list(_VERBS),
    }
    return out | ({"shortNames": list(kind.short)} if kind.short else {})


def _subresource(kind: Kind, name: str, shown: str, verbs: Sequence[str]) -> dict[str, Any]:
    return {
        "name": f"{kind.plural}/{name}",
        "singularName": "",
        "namespaced": kind.namespaced,
        "kind": shown,
        "verbs": list(verbs),
    }
