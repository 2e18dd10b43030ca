"""JSON patch (RFC 6902), JSON merge patch (RFC 7386) and the common cases of strategic merge patch.

All functions leave their arguments as they are and return a new object.

Reference: k8s.io/apimachinery/pkg/util/strategicpatch; merge keys as in the `patchMergeKey` tags of
k8s.io/api/core/v1.
"""

import copy
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from kai_es.simulate import answers

OPERATIONS_MAX: Final = 10_000
"""Operations of one JSON patch, as in kube-apiserver."""

MERGE_KEYS: Final[Mapping[str, str]] = {
    "addresses": "type",
    "conditions": "type",
    "containers": "name",
    "env": "name",
    "ephemeralContainers": "name",
    "hostAliases": "ip",
    "hostIPs": "ip",
    "imagePullSecrets": "name",
    "initContainers": "name",
    "ownerReferences": "uid",
    "podIPs": "ip",
    "ports": "containerPort",
    "resourceClaims": "name",
    "schedulingGates": "name",
    "taints": "key",
    "topologySpreadConstraints": "topologyKey",
    "volumeDevices": "devicePath",
    "volumeMounts": "mountPath",
    "volumes": "name",
}
"""Lists of objects that are merged by a key; all other lists are replaced."""

_MERGED_VALUES: Final = ("finalizers",)
"""Lists of plain values that are merged as sets."""

_DIRECTIVE: Final = "$patch"
_DELETE_VALUES: Final = "$deleteFromPrimitiveList/"
_ORDER: Final = "$setElementOrder/"
_RETAIN_KEYS: Final = "$retainKeys"


def merge(target: Any, patch: Any) -> Any:
    """JSON merge patch: objects merge, null deletes, everything else replaces."""
    if not isinstance(patch, dict):
        return copy.deepcopy(patch)
    out = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            out.pop(key, None)
        else:
            out[key] = merge(out.get(key), value)
    return out


# -- strategic merge patch


def strategic(target: Any, patch: Any) -> Any:
    """Strategic merge patch: as merge patch, but some lists merge by key, and directives.

    Raises:
        ApiError: 400, a directive that is not known or an element without its merge key.
    """
    if not isinstance(patch, dict):
        return copy.deepcopy(patch)
    directive = patch.get(_DIRECTIVE, "merge")
    if directive not in ("merge", "replace", "delete"):
        raise answers.bad_request(f"Unknown patch type found: {directive}")
    if directive != "merge":
        kept = patch if directive == "replace" else {}
        return {k: copy.deepcopy(v) for k, v in kept.items() if k != _DIRECTIVE}
    out = dict(target) if isinstance(target, dict) else {}
    if _RETAIN_KEYS in patch:
        out = {k: v for k, v in out.items() if k in patch[_RETAIN_KEYS]}
    for key, value in patch.items():
        if key.startswith(_DELETE_VALUES):
            name = key.removeprefix(_DELETE_VALUES)
            out[name] = [v for v in out.get(name) or () if v not in value]
        elif value is None:
            out.pop(key, None)
        elif key not in (_DIRECTIVE, _RETAIN_KEYS) and not key.startswith(_ORDER):
            out[key] = _merge_value(key, out.get(key), value)
    return out


def _merge_value(key: str, target: Any, patch: Any) -> Any:
    if isinstance(patch, list):
        return _merge_list(key, target or [], patch)
    return strategic(target, patch)


def _merge_list(name: str, target: Sequence[Any], patch: Sequence[Any]) -> list[Any]:
    if name in _MERGED_VALUES:
        return [*target, *(v for v in patch if v not in target)]
    merge_key = MERGE_KEYS.get(name)
    if merge_key is None or not all(isinstance(v, dict) for v in (*target, *patch)):
        return copy.deepcopy(list(patch))
    if name == "ports" and any("port" in element for element in patch):
        merge_key = "port"  # ports of a Service, not of a container
    if any(element.get(_DIRECTIVE) == "replace" for element in patch):
        return copy.deepcopy([e for e in patch if e.get(_DIRECTIVE) != "replace"])
    out = list(target)
    patched = []
    for element in patch:
        if merge_key not in element:
            raise answers.bad_request(
                f"map: {element} does not contain declared merge key: {merge_key}"
            )
        at = next((i for i, e in enumerate(out) if e.get(merge_key) == element[merge_key]), None)
        if element.get(_DIRECTIVE) == "delete":
            if at is not None:
                del out[at]
        elif at is None:
            patched.append(strategic({}, element))
        else:
            patched.append(strategic(out.pop(at), element))
    order = [e[merge_key] for e in target]
    return _interleaved(out, patched, lambda e: _index_of(order, e[merge_key]))


def _interleaved(kept: list[Any], patched: list[Any], place: Callable[[Any], int]) -> list[Any]:
    """Both lists as one: in the order that elements had before, new ones as early as possible."""
    out = []
    rest = list(kept)
    for element in patched:
        while rest and 0 <= place(rest[0]) < place(element):
            out.append(rest.pop(0))
        out.append(element)
    return out + rest


def _index_of(order: Sequence[Any], key: Any) -> int:
    return order.index(key) if key in order else -1


# -- JSON patch


def json_patch(target: Any, operations: Any) -> Any:
    """JSON patch.

    Raises:
        ApiError: 400, not a list of operations; 422, an operation cannot be applied.
    """
    if not isinstance(operations, list) or not all(isinstance(o, dict) for o in operations):
        raise answers.bad_request("error decoding patch: a JSON patch is a list of operations")
    if len(operations) > OPERATIONS_MAX:
        raise answers.too_large(OPERATIONS_MAX)
    out = copy.deepcopy(target)
    for operation in operations:
        apply = _OPERATIONS.get(operation.get("op", ""))
        if apply is None or not isinstance(operation.get("path"), str):
            raise answers.unprocessable()
        try:
            out = apply(out, operation)
        except (KeyError, IndexError, TypeError, ValueError) as error:
            raise answers.unprocessable() from error
    return out


def _tokens(pointer: str) -> list[str]:
    if pointer and not pointer.startswith("/"):
        raise ValueError(pointer)
    return [t.replace("~1", "/").replace("~0", "~") for t in pointer.split("/")[1:]]


def _read(document: Any, tokens: Sequence[str]) -> Any:
    for token in tokens:
        document = (
            document[_index(document, token)] if isinstance(document, list) else document[token]
        )
    return document


def _index(elements: Sequence[Any], token: str) -> int:
    index = int(token)
    if not 0 <= index < len(elements):
        raise IndexError(token)
    return index


def _add(document: Any, operation: Mapping[str, Any]) -> Any:
    return _insert(document, _tokens(operation["path"]), copy.deepcopy(operation["value"]))


def _insert(document: Any, tokens: Sequence[str], value: Any) -> Any:
    if not tokens:
        return value
    parent, last = _read(document, tokens[:-1]), tokens[-1]
    if isinstance(parent, list):
        index = len(parent) if last == "-" else int(last)
        if not 0 <= index <= len(parent):
            raise IndexError(last)
        parent.insert(index, value)
    else:
        parent[last] = value
    return document


def _remove(document: Any, operation: Mapping[str, Any]) -> Any:
    _take(document, _tokens(operation["path"]))
    return document


def _take(document: Any, tokens: Sequence[str]) -> Any:
    parent, last = _read(document, tokens[:-1]), tokens[-1]
    return parent.pop(_index(parent, last)) if isinstance(parent, list) else parent.pop(last)


def _replace(document: Any, operation: Mapping[str, Any]) -> Any:
    # compat: a field that is not there is added, as the real server's library does.
    tokens = _tokens(operation["path"])
    if not tokens:
        return copy.deepcopy(operation["value"])
    parent, last = _read(document, tokens[:-1]), tokens[-1]
    value = copy.deepcopy(operation["value"])
    if isinstance(parent, list):
        parent[_index(parent, last)] = value
    else:
        parent[last] = value
    return document


def _move(document: Any, operation: Mapping[str, Any]) -> Any:
    value = _take(document, _tokens(operation["from"]))
    return _insert(document, _tokens(operation["path"]), value)


def _copy(document: Any, operation: Mapping[str, Any]) -> Any:
    value = copy.deepcopy(_read(document, _tokens(operation["from"])))
    return _insert(document, _tokens(operation["path"]), value)


def _test(document: Any, operation: Mapping[str, Any]) -> Any:
    try:
        value = _read(document, _tokens(operation["path"]))
    except (KeyError, IndexError):
        value = None
    if value != operation.get("value"):
        raise answers.unprocessable()
    return document


_OPERATIONS: Final[Mapping[str, Callable[[Any, Mapping[str, Any]], Any]]] = {
    "add": _add,
    "remove": _remove,
    "replace": _replace,
    "move": _move,
    "copy": _copy,
    "test": _test,
}
