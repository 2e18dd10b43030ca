"""What the API does to an object on its way in: owned metadata, what an update may change, checks.

Only what clients of a scheduler can notice is checked. Values inside specs (quantities, schemas of
custom resources) are not, so that tests can put malformed objects in.

Reference: k8s.io/apiserver/pkg/registry/rest/{create,update,meta}.go,
k8s.io/apimachinery/pkg/api/validation/objectmeta.go.
"""

import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, Final

import msgspec

from kai_es.kube.times import rfc3339
from kai_es.simulate import answers, crds, pods
from kai_es.simulate.answers import Cause
from kai_es.simulate.kinds import DEFINITION, NAMESPACE, NODE, POD, PRIORITY_CLASS, Kind

Object = dict[str, Any]

SHOWN_MAX: Final = 200
"""Bytes of an object that an error shows."""
ANNOTATION_BYTES_MAX: Final = 256 * 1024
"""All annotations of one object, keys included, as in Kubernetes."""

_SUBDOMAIN: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_LABEL_VALUE: Final = re.compile(r"(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?")
_LABEL_KEY: Final = re.compile(r"([a-z0-9.-]{1,253}/)?([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]")
_SUBDOMAIN_RULE: Final = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or "
    "'.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used "
    "for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)
_LABEL_RULE: Final = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', "
    "and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or "
    "'12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
)
_OWNED: Final = ("uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds")
"""Metadata that only the API server changes; `generation` and `resourceVersion` besides."""
_SENT: Final = (
    "name",
    "generateName",
    "namespace",
    "labels",
    "annotations",
    "ownerReferences",
    "finalizers",
)
"""Metadata that is taken from the creator."""
_STRING_MAPS: Final = ("labels", "annotations")
_NODE_INFO: Final = (
    "machineID",
    "systemUUID",
    "bootID",
    "kernelVersion",
    "osImage",
    "containerRuntimeVersion",
    "kubeletVersion",
    "kubeProxyVersion",
    "operatingSystem",
    "architecture",
)
_CONDITION_TIMES: Final[Mapping[str, tuple[str, ...]]] = {
    POD.resource: ("lastProbeTime", "lastTransitionTime"),
    NODE.resource: ("lastHeartbeatTime", "lastTransitionTime"),
}
"""Times of conditions that are null where nobody gave them."""


def decode(kind: Kind, body: bytes) -> Object:
    """The object in a request body.

    Raises:
        ApiError: 400, not an object of this kind.
    """
    try:
        obj = msgspec.json.decode(body)
    except msgspec.DecodeError as error:
        raise answers.bad_request(
            f"the object provided is unrecognized (must be of type {kind.kind}): couldn't get "
            f"version/kind; json parse error: {error}"
        ) from error
    if not isinstance(obj, dict):
        raise answers.bad_request(
            f"the object provided is unrecognized (must be of type {kind.kind}): couldn't get "
            "version/kind; json parse error: not an object"
        )
    return typed(kind, obj)


def typed(kind: Kind, obj: Object) -> Object:
    """`obj` if it says that it is of this kind and has well-formed metadata.

    Raises:
        ApiError: 400, it does not.
    """
    _check_type(kind, obj)
    meta = obj.get("metadata")
    if meta is None:
        obj["metadata"] = meta = {}
    if not isinstance(meta, dict):
        raise answers.bad_request(f"{kind.kind} cannot be handled: metadata is not an object")
    for field in _STRING_MAPS:
        values = meta.get(field)
        if values is None:
            continue
        if not isinstance(values, dict) or not all(isinstance(v, str) for v in values.values()):
            raise answers.bad_request(
                f'{kind.kind} in version "{kind.version}" cannot be handled as a {kind.kind}: '
                f"metadata.{field} is not a map of strings"
            )
    return obj


def _check_type(kind: Kind, obj: Object) -> None:
    """Built-in kinds may be left out, custom ones not."""
    version, said = obj.get("apiVersion", ""), obj.get("kind", "")
    if not kind.custom:
        if version not in ("", kind.api_version) or said not in ("", kind.kind):
            short = version.rpartition("/")[2] if isinstance(version, str) else ""
            raise answers.bad_request(
                f'{said} in version "{short}" cannot be handled as a {kind.kind}: it is none'
            )
    elif not version or not said:
        shown = msgspec.json.encode(obj)[:SHOWN_MAX].decode(errors="replace")
        raise answers.bad_request(
            f"the object provided is unrecognized (must be of type {kind.kind}): Object 'Kind' is "
            f"missing in '{shown}'"
        )
    elif version != kind.api_version:
        raise answers.bad_request(
            f"the API version in the data ({version}) does not match the expected API version "
            f"({kind.api_version})"
        )
    elif said != kind.kind:
        name = obj.get("metadata", {}).get("name", "")
        raise answers.other_kind(kind, said, name)


def _checked(kind: Kind, obj: Object, causes: list[Cause]) -> Object:
    if causes:
        raise answers.invalid(kind, obj["metadata"].get("name", ""), causes)
    return obj


def _ordered(kind: Kind, meta: Object, obj: Mapping[str, Any]) -> Object:
    out: Object = {"kind": kind.kind, "apiVersion": kind.api_version, "metadata": meta}
    for key, value in obj.items():
        if key not in out:
            out[key] = value
    return out


# -- create


def prepare_create(kind: Kind, sent: Object, *, uid: str, now_ms: int) -> Object:
    """A new object; `metadata.name` and `namespace` are settled already.

    Raises:
        ApiError: 422, the object is not valid.
    """
    meta = {k: v for k in _SENT if (v := sent["metadata"].get(k)) not in (None, "", {}, [])}
    meta |= {"uid": uid, "creationTimestamp": rfc3339(now_ms)}
    if kind.generation:
        meta["generation"] = 1
    obj = _ordered(kind, meta, sent)
    if kind.status_born is not None:
        obj.pop("status", None)
        if kind.status_born:
            obj["status"] = dict(kind.status_born)
    causes = _check_meta(meta)
    if kind is POD:
        causes += pods.check(obj)
        _checked(kind, obj, causes)
        pods.set_defaults(obj)
        pods.set_gated(obj, meta["creationTimestamp"])
    elif kind is NODE:
        _set_node_defaults(obj)
    elif kind is PRIORITY_CLASS:
        obj.setdefault("preemptionPolicy", "PreemptLowerPriority")
    elif kind is DEFINITION:
        causes += crds.check(obj)
        if not causes:
            crds.establish(obj, meta["creationTimestamp"])
    elif kind is NAMESPACE:
        obj.setdefault("spec", {}).setdefault("finalizers", ["kubernetes"])
        meta.setdefault("labels", {})["kubernetes.io/metadata.name"] = meta["name"]
    return _checked(kind, obj, causes)


def _set_node_defaults(obj: Object) -> None:
    """Fields that are always there, because the real server's types have no way to omit them."""
    obj.setdefault("spec", {})
    status = obj.setdefault("status", {})
    status.setdefault("daemonEndpoints", {"kubeletEndpoint": {"Port": 0}})
    status.setdefault("nodeInfo", dict.fromkeys(_NODE_INFO, ""))
    _set_condition_times(NODE, status)


def _set_condition_times(kind: Kind, status: Object) -> None:
    for condition in status.get("conditions") or ():
        for field in _CONDITION_TIMES.get(kind.resource, ()):
            condition.setdefault(field, None)


def _check_meta(meta: Object) -> list[Cause]:
    causes = []
    name = meta.get("name", "")
    if len(name) > 253 or not _SUBDOMAIN.fullmatch(name):
        causes.append(answers.invalid_value("metadata.name", name, _SUBDOMAIN_RULE))
    return causes + _check_maps(meta)


def _check_maps(meta: Object) -> list[Cause]:
    causes = []
    for key, value in (meta.get("labels") or {}).items():
        if not _is_label(key, value):
            causes.append(answers.invalid_value("metadata.labels", value or key, _LABEL_RULE))
    notes = meta.get("annotations") or {}
    if sum(len(k) + len(v) for k, v in notes.items()) > ANNOTATION_BYTES_MAX:
        reason = f"Too long: may not be more than {ANNOTATION_BYTES_MAX} bytes"
        causes.append(Cause("metadata.annotations", "FieldValueTooLong", reason))
    return causes


@lru_cache(maxsize=65_536)
def _is_label(key: str, value: str) -> bool:
    return (
        len(value) <= 63
        and len(key.rpartition("/")[2]) <= 63
        and _LABEL_VALUE.fullmatch(value) is not None
        and _LABEL_KEY.fullmatch(key) is not None
    )


# -- update


def prepare_update(kind: Kind, sent: Object, old: Object, *, subresource: str) -> Object:
    """`sent` reduced to what this request may change of `old`; uids are equal already.

    Raises:
        ApiError: 422, a change that is not allowed.
    """
    meta = _updated_meta(sent["metadata"], old["metadata"])
    if subresource == "status":
        obj = _with_status(kind, sent, old, meta)
    elif subresource == "finalize":
        obj = _ordered(kind, dict(old["metadata"]), old)
        obj["spec"] = dict(sent.get("spec") or {})
    else:
        obj = _ordered(kind, meta, sent)
        if kind.status:
            obj.pop("status", None)
            if "status" in old:
                obj["status"] = old["status"]
    causes = [
        *_check_maps(meta),
        *_check_finalizers(meta, old["metadata"]),
        *_check_deletion(sent["metadata"], old["metadata"]),
    ]
    check = _UPDATE_CHECKS.get(kind.resource)
    if check is not None and not subresource:
        if kind is POD:
            pods.set_defaults(obj)
        causes += check(obj, old)
    if kind.generation and _spec(obj) != _spec(old):
        obj["metadata"]["generation"] = old["metadata"].get("generation", 0) + 1
    return _checked(kind, obj, causes)


def _updated_meta(sent: Object, old: Object) -> Object:
    meta = {k: v for k in _SENT if (v := sent.get(k)) not in (None, "", {}, [])}
    meta |= {k: old[k] for k in ("name", "namespace", *_OWNED) if k in old}
    meta |= {k: old[k] for k in ("generation", "resourceVersion") if k in old}
    return meta


def _with_status(kind: Kind, sent: Object, old: Object, meta: Object) -> Object:
    # The status of a custom resource is all that its status subresource changes; built-in kinds
    # let labels and annotations through.
    obj = _ordered(kind, dict(old["metadata"]) if kind.custom else meta, old)
    obj.pop("status", None)
    if sent.get("status") is not None:
        obj["status"] = sent["status"]
        _set_condition_times(kind, obj["status"])
    return obj


def _spec(obj: Object) -> Object:
    return {k: v for k, v in obj.items() if k not in ("metadata", "status")}


def _check_finalizers(meta: Object, old: Object) -> list[Cause]:
    if "deletionTimestamp" not in old:
        return []
    added = [f for f in meta.get("finalizers", ()) if f not in old.get("finalizers", ())]
    if not added:
        return []
    shown = ", ".join(f'"{finalizer}"' for finalizer in added)
    why = (
        "no new finalizers can be added if the object is being deleted, found new finalizers "
        f"[]string{{{shown}}}"
    )
    return [answers.forbidden_field("metadata.finalizers", why)]


def _check_deletion(sent: Object, old: Object) -> list[Cause]:
    said = sent.get("deletionTimestamp")
    if not said or said == old.get("deletionTimestamp"):
        return []
    return [answers.invalid_value("metadata.deletionTimestamp", said, "field is immutable")]


def _check_priority_class(obj: Object, old: Object) -> list[Cause]:
    if obj.get("value") == old.get("value"):
        return []
    return [answers.forbidden_field("value", "may not be changed in an update.")]


_UPDATE_CHECKS: Final[Mapping[str, Callable[[Object, Object], list[Cause]]]] = {
    POD.resource: pods.check_update,
    PRIORITY_CLASS.resource: _check_priority_class,
}
