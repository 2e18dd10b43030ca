"""Raw PodGroup to `PodGroup`. Reference: pkg/apis/scheduling/v2alpha2 (apis §3)."""

import re
from typing import Any, Final

import msgspec

from kai_es.kube.conditions import json_text, split_conditions
from kai_es.kube.labels import LAST_EVICTION, LAST_START, STALE_SINCE, TOP_OWNER
from kai_es.kube.objects import PodGroup, SchedulingCondition, SubGroup, TopologyConstraint
from kai_es.kube.parse_pod import owner_of
from kai_es.kube.shape import Count32, Int32, Metadata, NonEmpty, shaped, uid_of
from kai_es.kube.times import duration_ms, time_ms, time_ms_or_unset

KIND: Final = "PodGroup"

_YAML_LINE: Final = re.compile(r"^(kind|name):[ \t]*(['\"]?)([^'\"\n]*?)\2[ \t]*$", re.MULTILINE)


class _Camel(msgspec.Struct, rename="camel", gc=False):
    """Field names as in the API."""


class RawConstraint(_Camel):
    """A `topologyConstraint`."""

    topology: str | None = None
    required_topology_level: str | None = None
    preferred_topology_level: str | None = None


class RawSubGroup(_Camel):
    """An entry of `spec.subGroups`."""

    name: NonEmpty
    parent: str | None = None
    min_member: Count32 | None = None
    min_sub_group: Count32 | None = None
    topology_constraint: RawConstraint | None = None


class RawGroupSpec(_Camel):
    """`spec` of a pod group."""

    queue: str | None = None
    min_member: Count32 | None = None
    min_sub_group: Count32 | None = None
    priority_class_name: str | None = None
    preemptibility: str | None = None
    preemption_delay: str | None = None
    staleness_grace_period: str | None = None
    mark_unschedulable: bool | None = None
    scheduling_backoff: Int32 | None = None
    topology_constraint: RawConstraint | None = None
    sub_groups: list[RawSubGroup] | None = None


class RawSchedulingCondition(_Camel):
    """An entry of `status.schedulingConditions`."""

    node_pool: str | None = None
    transition_id: str | None = msgspec.field(default=None, name="transitionID")
    type: str | None = None
    status: str | None = None
    reason: str | None = None
    message: str | None = None
    reasons: Any = None
    last_transition_time: str | None = None


class RawGroupStatus(_Camel):
    """`status` of a pod group."""

    scheduling_conditions: list[RawSchedulingCondition] | None = None
    resources_status: Any = None
    conditions: Any = None


class RawGroup(_Camel):
    """A pod group."""

    metadata: Metadata
    spec: RawGroupSpec | None = None
    status: RawGroupStatus | None = None


def parse_group(raw: object) -> PodGroup:
    """A pod group.

    Raises:
        InvalidObjectError: a field that is read has a wrong type or value.
    """
    shape = shaped(KIND, raw, RawGroup)
    metadata = shape.metadata
    what = f"PodGroup {metadata.namespace}/{metadata.name}"
    spec = shape.spec or RawGroupSpec()
    status = shape.status or RawGroupStatus()
    annotations = metadata.annotations or {}
    delay, grace = spec.preemption_delay, spec.staleness_grace_period
    conditions, as_of = split_conditions(status.conditions)
    return PodGroup(
        uid=uid_of(KIND, metadata),
        namespace=metadata.namespace or "",
        name=metadata.name,
        generation=metadata.generation or 0,
        created_ms=time_ms(
            metadata.creation_timestamp, what=what, field="metadata.creationTimestamp"
        ),
        deleted_ms=time_ms(
            metadata.deletion_timestamp, what=what, field="metadata.deletionTimestamp"
        ),
        labels=metadata.labels or {},
        queue=spec.queue or "",
        min_member=spec.min_member,
        min_sub_group=spec.min_sub_group,
        priority_class=spec.priority_class_name or "",
        preemptibility=spec.preemptibility or "",
        preemption_delay_ms=(
            duration_ms(delay, what=what, field="spec.preemptionDelay") if delay else 0
        ),
        staleness_grace_ms=(
            duration_ms(grace, what=what, field="spec.stalenessGracePeriod") if grace else None
        ),
        mark_unschedulable=spec.mark_unschedulable is not False,
        scheduling_backoff=spec.scheduling_backoff,
        topology=_constraint(spec.topology_constraint),
        sub_groups=tuple(
            SubGroup(
                name=sub.name,
                parent=sub.parent,
                min_member=sub.min_member,
                min_sub_group=sub.min_sub_group,
                topology=_constraint(sub.topology_constraint),
            )
            for sub in spec.sub_groups or ()
        ),
        scheduling_conditions=tuple(
            _scheduling_condition(condition) for condition in status.scheduling_conditions or ()
        ),
        stale_since_ms=time_ms_or_unset(annotations.get(STALE_SINCE)),
        last_start_ms=time_ms_or_unset(annotations.get(LAST_START)),
        last_eviction_ms=time_ms_or_unset(annotations.get(LAST_EVICTION)),
        owner=_top_owner(annotations.get(TOP_OWNER)) or owner_of(metadata),
        resources=json_text(status.resources_status),
        conditions=conditions,
        as_of=as_of,
    )


def _scheduling_condition(raw: RawSchedulingCondition) -> SchedulingCondition:
    return SchedulingCondition(
        node_pool=raw.node_pool or "",
        transition_id=raw.transition_id or "",
        type=raw.type or "",
        status=raw.status or "",
        reason=raw.reason or "",
        message=raw.message or "",
        reasons=json_text(raw.reasons),
        since=raw.last_transition_time or "",
    )


def _constraint(raw: RawConstraint | None) -> TopologyConstraint | None:
    """Levels without a topology do nothing (apis §3.3)."""
    if raw is None or not raw.topology:
        return None
    return TopologyConstraint(
        topology=raw.topology,
        required=raw.required_topology_level or "",
        preferred=raw.preferred_topology_level or "",
    )


def _top_owner(text: str | None) -> tuple[str, str] | None:
    """Kind and name in the grouper's annotation: flat YAML, one `key: value` a line."""
    found = {key: value for key, _, value in _YAML_LINE.findall(text)} if text else {}
    kind = found.get("kind", "")
    return (kind, found.get("name", "")) if kind else None
