"""Kubernetes events of decisions and their outcomes, in the reference's words. Pure.

Reference: pkg/scheduler/cache, pkg/binder/controllers (apis §8.6).
"""

import hashlib
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from kai_es.events.decisions import Bind, Cycle, Evict, Pipeline
from kai_es.events.requests import AttemptFailed, Bound, Evicted, Refused, Result, is_final
from kai_es.kube.labels import DEFAULT_NODE_POOL, SCHEDULER_NAME
from kai_es.kube.objects import Pod, PodGroup, ShardConfig
from kai_es.kube.parse import KINDS
from kai_es.kube.times import rfc3339
from kai_es.ports.cluster import Resource
from kai_es.snapshot.world import World
from kai_es.status.pods import BINDING_ERROR, BOUND, binding_error_text, bound_text, error_of
from kai_es.status.said import NORMAL, WARNING

EVENTS: Final = Resource("Event", "v1", "events")
BINDER: Final = "binder"

NAME_MAX: Final = 230
"""Characters of an object's name in that of its event, which has 253 in all."""
MESSAGE_MAX: Final = 8192
"""Characters of a message; a longer one is no help in a terminal, and etcd keeps every byte."""


class About(NamedTuple):
    """The object of an event."""

    kind: str
    namespace: str
    name: str
    uid: str


class KubeEvent(NamedTuple):
    """An event. `ident`: what tells it from another with the same words, e.g. a request's id."""

    about: About
    type: str
    reason: str
    message: str
    component: str
    time_ms: int
    ident: str = ""
    annotations: tuple[tuple[str, str], ...] = ()

    @property
    def name(self) -> str:
        """Deterministic, so that it is written once, by whomever."""
        text = "\n".join((self.about.uid, self.reason, self.message, self.ident))
        digest = hashlib.sha256(text.encode()).hexdigest()[:16]
        return f"{self.about.name[:NAME_MAX]}.{digest}"

    @property
    def is_warning(self) -> bool:
        """Whether somebody should look."""
        return self.type == WARNING

    def raw(self) -> dict[str, Any]:
        """As the API takes it."""
        about = self.about
        time = rfc3339(self.time_ms)
        metadata: dict[str, Any] = {"name": self.name, "namespace": about.namespace}
        if self.annotations:
            metadata["annotations"] = dict(self.annotations)
        return {
            "apiVersion": EVENTS.api_version,
            "kind": EVENTS.kind,
            "metadata": metadata,
            "involvedObject": {
                "apiVersion": KINDS[about.kind].api_version,
                "kind": about.kind,
                "namespace": about.namespace,
                "name": about.name,
                "uid": about.uid,
            },
            "type": self.type,
            "reason": self.reason,
            "message": self.message[:MESSAGE_MAX],
            "source": {"component": self.component},
            "reportingComponent": self.component,
            "reportingInstance": "",
            "firstTimestamp": time,
            "lastTimestamp": time,
            "count": 1,
        }


def about_pod(pod: Pod) -> About:
    """A pod as the object of an event."""
    return About("Pod", pod.namespace, pod.name, pod.uid)


def about_group(group: PodGroup) -> About:
    """A pod group as the object of an event."""
    return About("PodGroup", group.namespace, group.name, group.uid)


def scheduler_of(world: World, shard: str) -> str:
    """Name of a shard's scheduler."""
    return str(_settings(world.snapshot.config(shard)).get("scheduler_name", SCHEDULER_NAME))


def of_cycle(cycle: Cycle, world: World) -> Iterator[KubeEvent]:
    """What the operations of a cycle are told as."""
    component = scheduler_of(world, cycle.shard)
    settings = _settings(world.snapshot.config(cycle.shard))
    pool = str(settings.get("node_pool_value") or DEFAULT_NODE_POOL)
    for op in cycle.decision.ops:
        pod = About("Pod", op.namespace, op.pod, op.pod_uid)
        name = f"{op.namespace}/{op.pod}"
        ident = f"{cycle.shard}/{cycle.cycle}"
        match op:
            case Bind():
                text = f"Successfully assigned pod {name} to node {op.node} at node-pool {pool}"
                yield KubeEvent(
                    pod, NORMAL, "Scheduled", text, component, cycle.inputs.now_ms, ident
                )
            case Pipeline():
                text = f"Pod {name} was pipelined to node {op.node}"
                yield KubeEvent(pod, NORMAL, "Pipelined", text, component, cycle.inputs.now_ms)
            case Evict():
                group = _group(world, op.group_uid)
                if group is None or not op.message:
                    continue
                yield KubeEvent(
                    about_group(group),
                    NORMAL,
                    "Evict",
                    op.message,
                    component,
                    cycle.inputs.now_ms,
                    f"{ident}/{op.pod_uid}",
                    _evictor(op, _group(world, op.beneficiary)),
                )


def of_result(result: Result, world: World, time_ms: int) -> Iterator[KubeEvent]:
    """What the outcome of a bind request is told as."""
    if isinstance(result, Evicted) or not is_final(result):
        return
    entry = world.objects.get("Pod", result.pod_uid)
    request = next(
        (r for r in world.requests.of_pod(result.pod_uid) if r.id == result.request_id), None
    )
    if entry is None or request is None or request.evict:
        return
    pod = entry.obj
    assert isinstance(pod, Pod)
    ident = result.request_id
    match result:
        case Bound():
            text = bound_text(result.node)
            yield KubeEvent(about_pod(pod), NORMAL, BOUND, text, BINDER, time_ms, ident)
        case AttemptFailed() | Refused():
            name = f"{pod.namespace}/{pod.name}"
            text = binding_error_text(name, request.node, error_of(result))
            yield KubeEvent(about_pod(pod), WARNING, BINDING_ERROR, text, BINDER, time_ms, ident)


def _evictor(op: Evict, beneficiary: PodGroup | None) -> tuple[tuple[str, str], ...]:
    found = [("num-evicted-pods", str(op.gang_size)), ("evictor-action-type", op.action)]
    if beneficiary is not None:
        found += [
            ("evictor-pod-group-name", beneficiary.name),
            ("evictor-pod-group-namespace", beneficiary.namespace),
        ]
    return tuple(found)


def _group(world: World, uid: str) -> PodGroup | None:
    entry = world.objects.get("PodGroup", uid) if uid else None
    return entry.obj if entry is not None and isinstance(entry.obj, PodGroup) else None


def _settings(config: ShardConfig | None) -> Mapping[str, Any]:
    return config.settings if config is not None else {}
