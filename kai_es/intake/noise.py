"""What of a raw object does not belong into the log: noise and secrets. Pure.

Reference: pkg/scheduler/cache/pod_transform.go (scheduler-core §4.1).
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final

Raw = dict[str, Any]

_LAST_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"
_CONTAINERS: Final = ("containers", "initContainers", "ephemeralContainers")
_CONTAINER_NOISE: Final = (
    "args",
    "command",
    "lifecycle",  # commands and headers of hooks and probes may hold secrets
    "livenessProbe",
    "readinessProbe",
    "startupProbe",
)
_DATA: Final = ("data", "binaryData", "stringData")
_HEAD: Final = ("apiVersion", "kind", "metadata")
_IDENTITY: Final = ("name", "namespace", "uid", "resourceVersion", "deletionTimestamp")


def strip(kind: str, raw: Raw) -> Raw:
    """`raw` without noise. Changes it in place, since it was decoded for this."""
    metadata = raw.get("metadata")
    if isinstance(metadata, dict):
        metadata.pop("managedFields", None)
        annotations = metadata.get("annotations")
        if isinstance(annotations, dict):
            annotations.pop(_LAST_APPLIED, None)
    more = _BY_KIND.get(kind)
    if more is not None:
        more(raw)
    return raw


def _strip_pod(raw: Raw) -> None:
    """Literal values of environments go, references to config maps and secrets stay."""
    spec = raw.get("spec")
    for name in _CONTAINERS:
        for container in _maps(spec, name):
            for noise in _CONTAINER_NOISE:
                container.pop(noise, None)
            env = container.get("env")
            if isinstance(env, list):
                container["env"] = [e for e in env if isinstance(e, dict) and "valueFrom" in e]


def _strip_node(raw: Raw) -> None:
    """Heartbeats change every node every few minutes; images are long and nobody reads them."""
    status = raw.get("status")
    if isinstance(status, dict):
        status.pop("images", None)
        for condition in _maps(status, "conditions"):
            condition.pop("lastHeartbeatTime", None)


def _strip_data(raw: Raw) -> None:
    for name in _DATA:
        raw.pop(name, None)


def _keep_name(raw: Raw) -> None:
    """That a config map exists is all that is read; leader election changes some every second."""
    for name in [name for name in raw if name not in _HEAD]:
        del raw[name]
    metadata = raw.get("metadata")
    if isinstance(metadata, dict):
        for name in [name for name in metadata if name not in _IDENTITY]:
            del metadata[name]


def _maps(parent: object, name: str) -> list[Raw]:
    items = parent.get(name) if isinstance(parent, dict) else None
    return [item for item in items if isinstance(item, dict)] if isinstance(items, list) else []


_BY_KIND: Final[Mapping[str, Callable[[Raw], None]]] = MappingProxyType(
    {"Pod": _strip_pod, "Node": _strip_node, "ConfigMap": _keep_name, "Secret": _strip_data}
)
