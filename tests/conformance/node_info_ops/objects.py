"""Raw objects of cases, which often lack what every object of an API server has."""

from collections.abc import Mapping
from typing import Any

from kai_es.kube.devices import ResourceClaim
from kai_es.kube.objects import Node, Pod
from kai_es.kube.parse import parse

Raw = Mapping[str, Any]


def _named(raw: Raw, name: str) -> dict[str, Any]:
    metadata = {"name": name, "namespace": "", **(raw.get("metadata") or {})}
    metadata.setdefault("uid", f"{metadata['namespace']}/{metadata['name']}")
    return {**raw, "metadata": metadata}


def pod_of(raw: Raw) -> Pod:
    """A pod; ports and owners of cases may be none that an API server would take."""
    named = _named(raw, "pod")
    metadata = named["metadata"]
    if "ownerReferences" in metadata:
        owners = [{"kind": "Job", "apiVersion": "v1", **one} for one in metadata["ownerReferences"]]
        named["metadata"] = {**metadata, "ownerReferences": owners}
    found = parse("Pod", named)
    assert isinstance(found, Pod)
    return found


def node_of(raw: Raw) -> Node:
    found = parse("Node", _named(raw, "node"))
    assert isinstance(found, Node)
    return found


def claim_of(raw: Raw) -> ResourceClaim:
    without = {key: value for key, value in raw.items() if key != "apiVersion"}
    found = parse("ResourceClaim", _named(without, "claim"))
    assert isinstance(found, ResourceClaim)
    return found
