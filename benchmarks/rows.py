"""Shape `rows`: records of `objects` as stored bytes to snapshot rows."""

from time import perf_counter
from typing import Any

import msgspec

from kai_es.events.codec import decode, encode, pack, unpack
from kai_es.events.objects import ObjectSeen
from kai_es.kube.parse import parse
from projectors.objects import rows_of

N_OBJECTS = 20_000
POD: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {
        "namespace": "team-a",
        "creationTimestamp": "2026-01-01T00:00:00Z",
        "generateName": "train-",
        "labels": {"app": "train", "kai.scheduler/queue": "team-a", "training/role": "worker"},
        "annotations": {"pod-group-name": "pg-train", "kubernetes.io/config.source": "api"},
        "ownerReferences": [
            {
                "apiVersion": "batch/v1",
                "kind": "Job",
                "name": "train",
                "uid": "j",
                "controller": True,
            }
        ],
    },
    "spec": {
        "schedulerName": "kai-scheduler",
        "priority": 50,
        "priorityClassName": "train",
        "restartPolicy": "Never",
        "serviceAccountName": "default",
        "nodeSelector": {"pool": "a"},
        "containers": [
            {
                "name": "main",
                "image": "registry/train:1",
                "resources": {
                    "requests": {"cpu": "8", "memory": "64Gi", "nvidia.com/gpu": "1"},
                    "limits": {"nvidia.com/gpu": "1"},
                },
                "env": [{"name": f"VAR_{n}"} for n in range(8)],
                "volumeMounts": [{"name": "data", "mountPath": "/data"}],
            }
        ],
        "tolerations": [
            {"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute"},
            {"key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute"},
        ],
        "volumes": [
            {"name": "data", "persistentVolumeClaim": {"claimName": "data"}},
            {"name": "kube-api-access-abcde", "projected": {"sources": []}},
        ],
    },
    "status": {
        "phase": "Running",
        "startTime": "2026-01-01T00:00:10Z",
        "conditions": [{"type": "Ready", "status": "True"}],
    },
}


def record(n: int) -> bytes:
    """The stored bytes of the n-th pod."""
    metadata = {**POD["metadata"], "name": f"train-{n}", "uid": f"uid-{n}"}
    spec = {**POD["spec"], "nodeName": f"node-{n % 500}"}
    seen = ObjectSeen(
        kind="Pod",
        uid=f"uid-{n}",
        namespace="team-a",
        name=f"train-{n}",
        rv=n,
        incarnation=1,
        object={**POD, "metadata": metadata, "spec": spec},
    )
    envelope = pack(
        seen, topic="objects", record_id=str(n), event_time=n, ingest_time=n, producer="bench"
    )
    return encode(envelope, "objects")


def run() -> dict[str, Any]:
    """Objects per second from bytes to rows, and parsed alone; bytes of one record and row."""
    records = [record(n) for n in range(N_OBJECTS)]
    started = perf_counter()
    rows = [rows_of(unpack(decode(r)), partition=0, event_ms=0) for r in records]
    whole_s = perf_counter() - started
    raws = [unpack(decode(record)).object for record in records]
    started = perf_counter()
    for raw in raws:
        parse("Pod", raw)
    parse_s = perf_counter() - started
    assert len(rows) == N_OBJECTS
    return {
        "per_s": round(N_OBJECTS / whole_s),
        "wall_ms": round(whole_s * 1000),
        "parsed_per_s": round(N_OBJECTS / parse_s),
        "record_bytes": len(records[0]),
        "row_bytes": len(msgspec.msgpack.encode(rows[0][0])),
    }
