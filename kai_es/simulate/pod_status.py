"""Pod statuses as kubelets write them, as strategic merge patches.

Reference: k8s.io/kubernetes/pkg/kubelet/kubelet_pods.go, status/generate.go.
"""

import zlib
from collections.abc import Sequence
from typing import Any

from kai_es.kube.labels import GPU_INDEX
from kai_es.kube.times import rfc3339

Object = dict[str, Any]


def running(pod: Object, now_ms: int) -> Object:
    """All containers run."""
    now = rfc3339(now_ms)
    state = {"running": {"startedAt": now}}
    address = zlib.crc32(pod["metadata"]["uid"].encode())
    pod_ip = f"10.{address >> 16 & 255}.{address >> 8 & 255}.{address & 255}"
    return {
        "status": {
            "phase": "Running",
            "startTime": now,
            "podIP": pod_ip,
            "podIPs": [{"ip": pod_ip}],
            "conditions": _conditions("True", now, ""),
            "containerStatuses": [_container(c, state, ready=True) for c in _containers(pod)],
        }
    }


def succeeded(pod: Object, now_ms: int) -> Object:
    """All containers have ended well."""
    return _ended(pod, "Succeeded", {"exitCode": 0, "reason": "Completed"}, now_ms)


def stopped(pod: Object, now_ms: int) -> Object:
    """All containers have been stopped, because the pod is deleted."""
    return _ended(pod, "Failed", {"exitCode": 143, "reason": "Error"}, now_ms)


def _ended(pod: Object, phase: str, how: Object, now_ms: int) -> Object:
    now = rfc3339(now_ms)
    reason = "PodFailed" if how["exitCode"] else "PodCompleted"
    started = (pod.get("status") or {}).get("startTime")
    ended = how | {"finishedAt": now} | ({"startedAt": started} if started else {})
    state = {"terminated": ended}
    return {
        "status": {
            "phase": phase,
            "conditions": _conditions("False", now, reason),
            "containerStatuses": [_container(c, state, ready=False) for c in _containers(pod)],
        }
    }


def refused(reason: str, message: str) -> Object:
    """The node does not admit the pod."""
    text = f"Pod was rejected: {message}"
    return {"status": {"phase": "Failed", "reason": reason, "message": text}}


def reserved(node: str, devices: Sequence[int]) -> Object:
    """What the program inside a reservation pod writes: the device that it got."""
    names = ",".join(f"GPU-{node}-{number}" for number in devices)
    return {"metadata": {"annotations": {GPU_INDEX: names}}}


def _containers(pod: Object) -> list[Object]:
    return list(pod["spec"].get("containers") or ())


def _container(container: Object, state: Object, *, ready: bool) -> Object:
    return {
        "name": container["name"],
        "image": container["image"],
        "imageID": "",
        "ready": ready,
        "started": ready,
        "restartCount": 0,
        "state": state,
    }


def _conditions(ready: str, now: str, reason: str) -> list[Object]:
    statuses = {"Initialized": "True", "ContainersReady": ready, "Ready": ready}
    return [
        {"type": kind, "status": status, "lastTransitionTime": now}
        | ({"reason": reason} if reason and kind != "Initialized" else {})
        for kind, status in statuses.items()
    ]
