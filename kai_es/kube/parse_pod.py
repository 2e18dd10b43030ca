"""Raw Pod to `Pod`.

Reference: pkg/scheduler/api/pod_info/pod_info.go (scheduler-core §4.1, §4.6, §5.3, §7.7).
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

from kai_es.kube.conditions import condition_text
from kai_es.kube.errors import InvalidObjectError
from kai_es.kube.labels import (
    CLOSED_REQUEST,
    GPU_GROUP_LABEL,
    GPU_GROUPS_PREFIX,
    GROUP_STAMP,
    NUMA_OBSERVED,
    NUMA_PREDICTED,
    POD_GROUP_ANNOTATION,
    RECEIVED_RESOURCE_TYPE,
    SHARED_GPU_CONFIG_MAP,
    SUB_GROUP_LABEL,
    USER_LABEL,
)
from kai_es.kube.objects import ExtendedContainer, Pod, PodSpec, Toleration
from kai_es.kube.pod_requests import asked, by_container
from kai_es.kube.raw_pod import RawContainer, RawPod, RawReference, RawResources, RawSpec, RawStatus
from kai_es.kube.resources import extended_requests, requested
from kai_es.kube.shape import Metadata, shaped, uid_of
from kai_es.kube.times import time_ms

KIND: Final = "Pod"
KEPT_ANNOTATIONS: Final = (NUMA_OBSERVED, NUMA_PREDICTED, SHARED_GPU_CONFIG_MAP, USER_LABEL)
"""Annotations that stay in `Pod.annotations`; all others that are read have a field."""

_TOKEN_VOLUME: Final = "kube-api-access-"  # projected by the API server into every pod
_ALWAYS: Final = "Always"
_GUARANTEED: Final = "Guaranteed"
_STAMP_PARTS: Final = 2
_json: Final = msgspec.json.Encoder(order="deterministic")


def parse_pod(raw: object) -> Pod:
    """A pod.

    Raises:
        InvalidObjectError: a field that is read has a wrong type or value.
    """
    shape = shaped(KIND, raw, RawPod)
    metadata = shape.metadata
    what = f"Pod {metadata.namespace}/{metadata.name}"
    spec = shape.spec or _NO_SPEC
    status = shape.status or _NO_STATUS
    labels = metadata.labels or {}
    annotations = metadata.annotations or {}
    group_uid, group_generation = _stamp(annotations.get(GROUP_STAMP, ""))
    return Pod(
        uid=uid_of(KIND, metadata),
        namespace=metadata.namespace or "",
        name=metadata.name,
        created_ms=time_ms(
            metadata.creation_timestamp, what=what, field="metadata.creationTimestamp"
        ),
        deleted_ms=time_ms(
            metadata.deletion_timestamp, what=what, field="metadata.deletionTimestamp"
        ),
        started_ms=time_ms(status.start_time, what=what, field="status.startTime"),
        phase=status.phase or "",
        node=spec.node_name or "",
        nominated_node=status.nominated_node_name or "",
        group=annotations.get(POD_GROUP_ANNOTATION, ""),
        group_uid=group_uid,
        group_generation=group_generation,
        sub_group=labels.get(SUB_GROUP_LABEL, ""),
        gated=bool(spec.scheduling_gates),
        labels=labels,
        annotations={key: annotations[key] for key in KEPT_ANNOTATIONS if key in annotations},
        gpu_groups=_gpu_groups(labels),
        received=annotations.get(RECEIVED_RESOURCE_TYPE, ""),
        owner=owner_of(metadata),
        closed_request=annotations.get(CLOSED_REQUEST, ""),
        scheduled=condition_text(status.conditions, "PodScheduled"),
        bound=condition_text(status.conditions, "PodBound"),
        claim_names=_claim_names(status) if status.resource_claim_statuses else (),
        spec=_spec(spec, raw, metadata.name, annotations, qos=status.qos_class or "", what=what),
    )


def read_leniently(raw: object) -> tuple[str, str, dict[str, int]]:
    """Node, phase and requests of a pod that does not parse, as far as they can be told.

    Equal to what `parse_pod` finds where those fields are valid. A container or an amount that
    makes no sense counts as nothing.
    """
    raw_spec = _map(raw, "spec")
    node = raw_spec.get("nodeName")
    phase = _map(raw, "status").get("phase")
    annotations = _map(_map(raw, "metadata"), "annotations")
    spec = RawSpec(
        containers=_lenient_containers(raw_spec.get("containers")),
        init_containers=_lenient_containers(raw_spec.get("initContainers")),
        overhead=_lenient_amounts(raw_spec.get("overhead")),
    )
    texts = {key: text for key, text in annotations.items() if isinstance(text, str)}
    try:
        requests = asked(spec, texts, what="").requests
    except InvalidObjectError:  # sums beyond all measure, a nonsensical annotation
        requests = {}
    return (
        node if isinstance(node, str) else "",
        phase if isinstance(phase, str) else "",
        requests,
    )


_NO_SPEC: Final = RawSpec()
_NO_STATUS: Final = RawStatus()


def owner_of(metadata: Metadata) -> tuple[str, str]:
    """Kind and name of the controlling owner, ("", "") without one."""
    for owner in metadata.owner_references or ():
        if owner.controller:
            return owner.kind, owner.name
    return "", ""


def _spec(
    spec: RawSpec, raw: Any, name: str, annotations: Mapping[str, str], *, qos: str, what: str
) -> PodSpec:
    need = asked(spec, annotations, what=what)
    containers = by_container(spec, need, what=what)
    raw_spec = raw.get("spec") or {}
    return PodSpec(
        requests=need.requests,
        gpu=need.gpu,
        request_type=need.request_type,
        legacy_mig=need.legacy_mig,
        node_selector=spec.node_selector or {},
        affinity=msgspec.to_builtins(spec.affinity) if spec.affinity else None,
        tolerations=tuple(
            Toleration(
                key=t.key or "",
                operator=t.operator or "Equal",
                value=t.value or "",
                effect=t.effect or "",
            )
            for t in spec.tolerations or ()
        ),
        topology_spread=(
            msgspec.to_builtins(spec.topology_spread_constraints)
            if spec.topology_spread_constraints
            else None
        ),
        host_ports=_host_ports([*(spec.containers or ()), *_sidecars(spec)]),
        start_host_ports=_host_ports(_starters(spec)),
        claims=tuple(_claims(spec, name)),
        ephemeral_claims=tuple(_ephemeral_claims(spec, name)),
        volumes=_other_volumes(spec, raw_spec),
        config_maps=_config_maps(spec, annotations.get(SHARED_GPU_CONFIG_MAP)),
        resource_claims=tuple(
            (claim.name, claim.resource_claim_name, "claim")
            if claim.resource_claim_name
            else (claim.name, claim.resource_claim_template_name or "", "template")
            for claim in spec.resource_claims or ()
        ),
        guaranteed=qos == _GUARANTEED,
        containers=containers,
        overhead=(
            dict(requested(spec.overhead, what=what, field="spec.overhead")) if containers else {}
        ),
        extended=_extended(spec, what=what),
        scheduler=spec.scheduler_name or "",
        priority=spec.priority,
        priority_class=spec.priority_class_name or "",
    )


def _claim_names(status: RawStatus) -> tuple[tuple[str, str], ...]:
    """Claims made from templates; a template that needs none has no name."""
    return tuple(
        sorted(
            (one.name, one.resource_claim_name)
            for one in status.resource_claim_statuses or ()
            if one.resource_claim_name
        )
    )


def _extended(spec: RawSpec, *, what: str) -> tuple[ExtendedContainer, ...]:
    """Containers that ask for extended resources, init containers first."""
    starters = spec.init_containers or ()
    found = []
    for index, container in enumerate((*starters, *(spec.containers or ()))):
        requests = container.resources.requests if container.resources is not None else None
        asked_for = extended_requests(requests, what=what) if requests else ()
        if asked_for:
            kind = ""
            if index < len(starters):
                kind = "sidecar" if container.restart_policy == _ALWAYS else "init"
            found.append(ExtendedContainer(index, container.name, kind, asked_for))
    return tuple(found)


def _stamp(text: str) -> tuple[str, int]:
    """Uid and generation of `<uid>/<generation>`; anything else is no stamp and holds nothing."""
    parts = text.rsplit("/", 1) if text else ()
    if len(parts) != _STAMP_PARTS or not parts[1].isascii() or not parts[1].isdigit():
        return "", 0
    return parts[0], int(parts[1][:18])


def _gpu_groups(labels: Mapping[str, str]) -> tuple[str, ...]:
    """Groups of shared devices, the plain label first, others by key.

    compat: the reference finds none without the plain label (Q-5).
    """
    if not labels:
        return ()
    plain = labels.get(GPU_GROUP_LABEL)
    groups = [] if plain is None else [plain]
    groups += [
        labels[key]
        for key in sorted(key for key in labels if key.startswith(GPU_GROUPS_PREFIX))
        if labels[key] != plain
    ]
    return tuple(groups)


def _sidecars(spec: RawSpec) -> list[RawContainer]:
    return [c for c in spec.init_containers or () if c.restart_policy == _ALWAYS]


def _starters(spec: RawSpec) -> list[RawContainer]:
    return [c for c in spec.init_containers or () if c.restart_policy != _ALWAYS]


def _host_ports(containers: Iterable[RawContainer]) -> tuple[tuple[str, str, int], ...]:
    return tuple(
        (port.protocol or "TCP", port.host_ip or "", port.host_port)
        for container in containers
        for port in container.ports or ()
        if port.host_port and port.host_port > 0
    )


def _claims(spec: RawSpec, pod: str) -> Iterable[str]:
    for volume in spec.volumes or ():
        if volume.persistent_volume_claim is not None:
            yield volume.persistent_volume_claim.claim_name
        elif volume.ephemeral is not None:
            yield f"{pod}-{volume.name}"


def _ephemeral_claims(spec: RawSpec, pod: str) -> Iterable[str]:
    for volume in spec.volumes or ():
        if volume.persistent_volume_claim is None and volume.ephemeral is not None:
            yield f"{pod}-{volume.name}"


def _other_volumes(spec: RawSpec, raw_spec: Mapping[str, Any]) -> tuple[str, ...]:
    """Volumes as JSON without their names, save claims, config maps, secrets and the API token."""
    others = []
    for volume, raw in zip(spec.volumes or (), raw_spec.get("volumes") or (), strict=True):
        if (
            volume.persistent_volume_claim is None
            and volume.ephemeral is None
            and volume.config_map is None
            and volume.secret is None
            and not (volume.projected is not None and volume.name.startswith(_TOKEN_VOLUME))
        ):
            others.append(_json.encode({k: v for k, v in raw.items() if k != "name"}).decode())
    return tuple(others)


def _config_maps(spec: RawSpec, exempt: str | None) -> tuple[str, ...]:
    """Config maps without which the pod cannot start, by name (reference plugins §3.6).

    Those whose names start with `exempt` are made by the binder.
    """
    names = {ref.name for ref in _references(spec) if ref is not None and not ref.optional}
    if not names:
        return ()
    return tuple(sorted(n for n in names if exempt is None or not n.startswith(exempt)))


def _references(spec: RawSpec) -> Iterable[RawReference | None]:
    """References to config maps by environments and by mounted volumes."""
    mounted: set[str] = set()
    for containers in (spec.init_containers, spec.containers, spec.ephemeral_containers):
        for container in containers or ():
            for env in container.env or ():
                if env.value_from is not None:
                    yield env.value_from.config_map_key_ref
            for source in container.env_from or ():
                yield source.config_map_ref
            mounted.update(mount.name for mount in container.volume_mounts or ())
    for volume in spec.volumes or ():
        if volume.name in mounted:
            yield volume.config_map
            if volume.projected is not None:
                yield from (source.config_map for source in volume.projected.sources or ())


def _map(raw: object, key: str) -> Mapping[str, Any]:
    value = raw.get(key) if isinstance(raw, dict) else None
    return value if isinstance(value, dict) else {}


def _lenient_containers(raw: object) -> list[RawContainer]:
    containers = []
    for container in raw if isinstance(raw, list) else ():
        requests = _map(_map({"c": container}, "c"), "resources").get("requests")
        policy = container.get("restartPolicy") if isinstance(container, dict) else None
        containers.append(
            RawContainer(
                resources=RawResources(requests=_lenient_amounts(requests)),
                restart_policy=policy if isinstance(policy, str) else None,
            )
        )
    return containers


def _lenient_amounts(raw: object) -> dict[str, str | int | float]:
    amounts: dict[str, str | int | float] = {}
    for name, value in raw.items() if isinstance(raw, dict) else ():
        try:
            one = msgspec.convert({name: value}, dict[str, str | int | float])
            requested(one, what="", field="")
        except (msgspec.ValidationError, InvalidObjectError):
            continue
        amounts.update(one)
    return amounts
