"""Nodes and pods of the fairness and jobs cases as rows of a snapshot."""

from collections.abc import Mapping
from typing import Any

from kai_es.kube.labels import GPU_MICRO
from kai_es.kube.objects import Node, Pod, PodSpec
from kai_es.snapshot.effective import TaskState
from tests.conformance import build


def amounts_of(raw: Mapping[str, Any] | None) -> dict[str, int]:
    """Node resources: `milliCpu`, `memory`, `gpus`, `scalars`, `mig`."""
    given = raw or {}
    return {
        "cpu": given.get("milliCpu", 0),
        "memory": given.get("memory", 0),
        "gpu": round(given.get("gpus", 0) * GPU_MICRO),
        **given.get("scalars", {}),
        **given.get("mig", {}),
    }


def node_of(raw: Mapping[str, Any], name: str) -> Node:
    labels = raw.get("labels") or {}
    count = labels.get("nvidia.com/gpu.count")
    return Node(
        uid=name,
        name=name,
        labels=labels,
        allocatable=amounts_of(raw.get("allocatable")),
        gpu_memory_mib=raw.get("gpuMemoryMiB", 100),
        gpu_count=-1 if count is None else int(count),
    )


def pod_of(raw: Mapping[str, Any], uid: str, **fields: Any) -> Pod:
    shape = build.shape_of(raw.get("resReq") or {}, raw.get("requestType", ""))
    spec = shape.spec
    scheduler = raw.get("schedulerName", "")
    return Pod(
        uid=uid,
        namespace=raw.get("namespace", ""),
        name=raw.get("name", uid),
        labels=raw.get("labels") or {},
        spec=PodSpec(
            requests=spec.requests,
            gpu=spec.gpu,
            request_type=spec.request_type,
            scheduler=scheduler,
        ),
        **fields,
    )


def state_of(raw: Mapping[str, Any], node: str) -> TaskState:
    accepted = build.gpu_request(raw.get("acceptedResource") or {})
    return TaskState(
        status=build.status_of(raw.get("status", "Pending")),
        node=node,
        gpu_groups=tuple(raw.get("gpuGroups") or ()),
        gpu_count=accepted.count,
        gpu_portion=round(accepted.portion * 100),
    )
