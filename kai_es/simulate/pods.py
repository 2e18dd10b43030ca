"""What the API knows of pods: defaults, checks, priority, binding, disruption budgets.

Reference: k8s.io/kubernetes/pkg/apis/core/{v1/defaults,validation/validation}.go,
pkg/registry/core/pod/{strategy,storage/storage,storage/eviction}.go.
"""

import copy
from collections.abc import Iterable, Mapping
from typing import Any, Final

from kai_es.simulate import answers, selectors
from kai_es.simulate.answers import ApiError, Cause
from kai_es.simulate.kinds import POD
from kai_es.simulate.store import Stored

Object = dict[str, Any]

GRACE_S_DEFAULT: Final = 30
NOT_READY_S: Final = 300
"""How long a pod tolerates a node that is not ready, as DefaultTolerationSeconds admits it."""

_TOLERATED: Final = tuple(
    {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": NOT_READY_S}
    for key in ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
)
_MUTABLE_SPEC: Final = ("activeDeadlineSeconds", "terminationGracePeriodSeconds")
_IMMUTABLE: Final = (
    "pod updates may not change fields other than `spec.containers[*].image`,"
    "`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only "
    "additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it "
    "to be set to 1 if it was previously negative)"
)
TERMINAL: Final = ("Succeeded", "Failed")


def containers(spec: Mapping[str, Any]) -> Iterable[Object]:
    """Init containers and containers."""
    yield from spec.get("initContainers") or ()
    yield from spec.get("containers") or ()


def set_defaults(obj: Object) -> None:
    """Fill in what the API server fills in, as far as schedulers and kubelets read it."""
    spec = obj["spec"]
    spec.setdefault("restartPolicy", "Always")
    spec.setdefault("terminationGracePeriodSeconds", GRACE_S_DEFAULT)
    spec.setdefault("dnsPolicy", "ClusterFirst")
    spec.setdefault("securityContext", {})
    spec.setdefault("schedulerName", "default-scheduler")
    spec.setdefault("enableServiceLinks", True)
    for container in containers(spec):
        container.setdefault("imagePullPolicy", _pull_policy(container.get("image", "")))
        container.setdefault("terminationMessagePath", "/dev/termination-log")
        container.setdefault("terminationMessagePolicy", "File")
        resources = container.setdefault("resources", {})
        limits = resources.get("limits")
        if limits:
            # A request that is not given is the limit.
            resources["requests"] = limits | (resources.get("requests") or {})
    tolerations = spec.get("tolerations") or []
    missing = [t for t in _TOLERATED if not any(_tolerates(have, t["key"]) for have in tolerations)]
    spec["tolerations"] = [*tolerations, *(dict(t) for t in missing)]
    obj.setdefault("status", {}).setdefault("qosClass", _qos_class(spec))


def set_gated(obj: Object, now: str) -> None:
    """A new pod with scheduling gates says so in a condition."""
    if obj["spec"].get("schedulingGates"):
        condition = {
            "type": "PodScheduled",
            "status": "False",
            "lastProbeTime": None,
            "lastTransitionTime": now,
            "reason": "SchedulingGated",
            "message": "Scheduling is blocked due to non-empty scheduling gates",
        }
        obj["status"]["conditions"] = [condition]


def _pull_policy(image: str) -> str:
    tag = image.rpartition("/")[2].partition("@")[0].partition(":")[2]
    return "Always" if tag in ("", "latest") and "@" not in image else "IfNotPresent"


def _tolerates(toleration: Mapping[str, Any], key: object) -> bool:
    return toleration.get("key") in (key, None, "") and toleration.get("effect") in (
        "NoExecute",
        None,
        "",
    )


def _qos_class(spec: Mapping[str, Any]) -> str:
    guaranteed, any_resource = True, False
    for container in containers(spec):
        resources = container.get("resources") or {}
        requests, limits = resources.get("requests") or {}, resources.get("limits") or {}
        for name in ("cpu", "memory"):
            any_resource |= name in requests or name in limits
            guaranteed &= name in limits and requests.get(name) == limits[name]
    if not any_resource:
        return "BestEffort"
    return "Guaranteed" if guaranteed else "Burstable"


def check(obj: Object) -> list[Cause]:
    """What is wrong with a new pod."""
    spec = obj.get("spec")
    if not isinstance(spec, dict):
        return [answers.required("spec.containers")]
    causes = []
    if not spec.get("containers"):
        causes.append(answers.required("spec.containers"))
    for part in ("initContainers", "containers"):
        for i, container in enumerate(spec.get(part) or ()):
            causes += [
                answers.required(f"spec.{part}[{i}].{field}")
                for field in ("name", "image")
                if not container.get(field)
            ]
    if spec.get("schedulingGates") and spec.get("nodeName"):
        causes.append(
            answers.forbidden_field(
                "spec.nodeName", "cannot be set until all schedulingGates have been cleared"
            )
        )
    return causes


def check_update(obj: Object, old: Object) -> list[Cause]:
    """What is wrong with an update of a pod's spec."""
    new_spec, old_spec = obj.get("spec") or {}, old["spec"]
    if new_spec == old_spec:
        return []
    munged = copy.deepcopy(new_spec)
    for field in _MUTABLE_SPEC:
        _take_over(munged, old_spec, field)
    _take_over_images(munged, old_spec)
    if _contains(munged, old_spec, "tolerations"):
        _take_over(munged, old_spec, "tolerations")
    if not _contains(old_spec, munged, "schedulingGates"):
        return [answers.forbidden_field("spec.schedulingGates", "only deletion is allowed")]
    _take_over(munged, old_spec, "schedulingGates")
    if old_spec.get("schedulingGates"):
        # While it is gated a pod may still be told where to go.
        for field in ("nodeSelector", "affinity"):
            _take_over(munged, old_spec, field)
    return [answers.forbidden_field("spec", _IMMUTABLE)] if munged != old_spec else []


def _contains(spec: Mapping[str, Any], other: Mapping[str, Any], field: str) -> bool:
    """Whether the list `spec.field` has all elements of the other's."""
    return all(element in (spec.get(field) or ()) for element in other.get(field) or ())


def _take_over_images(spec: Object, old: Mapping[str, Any]) -> None:
    for part in ("containers", "initContainers"):
        parts, old_parts = spec.get(part) or (), old.get(part) or ()
        if len(parts) == len(old_parts):
            for container, old_container in zip(parts, old_parts, strict=True):
                container["image"] = old_container.get("image")


def _take_over(spec: Object, old: Mapping[str, Any], field: str) -> None:
    if field in old:
        spec[field] = old[field]
    else:
        spec.pop(field, None)


def set_priority(obj: Object, classes: Iterable[Object]) -> None:
    """What the admission plugin Priority does.

    Raises:
        ApiError: 403, there is no such class, or `spec.priority` says something else.
    """
    spec, name = obj["spec"], obj["metadata"].get("name", "")
    wanted = spec.get("priorityClassName", "")
    chosen: Object | None = None
    for candidate in classes:
        if candidate["metadata"]["name"] == wanted or (
            not wanted and candidate.get("globalDefault")
        ):
            chosen = candidate
    if chosen is None and wanted in SYSTEM_CLASSES:
        chosen = {"metadata": {"name": wanted}, "value": SYSTEM_CLASSES[wanted]}
    if chosen is None and wanted:
        raise answers.forbidden(POD, name, f"no PriorityClass with name {wanted} was found")
    value = int(chosen["value"]) if chosen else 0
    if spec.get("priority") not in (None, value):
        raise answers.forbidden(
            POD,
            name,
            f"the integer value of priority ({spec['priority']}) must not be provided in pod spec; "
            f"priority admission controller computed {value} from the given PriorityClass name",
        )
    spec["priority"] = value
    if chosen:
        spec["priorityClassName"] = chosen["metadata"]["name"]
    policy = (chosen or {}).get("preemptionPolicy", "PreemptLowerPriority")
    spec.setdefault("preemptionPolicy", policy)


SYSTEM_CLASSES: Final[Mapping[str, int]] = {
    "system-node-critical": 2_000_001_000,
    "system-cluster-critical": 2_000_000_000,
}
"""Classes that exist in every cluster."""


# -- binding


def bind(stored: Stored, name: str, binding: Mapping[str, Any], now: str) -> Object:
    """The pod bound as `binding` says; a node that does not exist is accepted.

    Raises:
        ApiError: 400, not a binding of this pod; 409, the pod cannot be bound (any more).
    """
    meta, target = binding.get("metadata") or {}, binding.get("target") or {}
    if meta.get("name", "") not in ("", name):
        raise answers.bad_request("name in URL does not match name in Binding object")
    if target.get("kind", "") not in ("", "Node"):
        raise answers.internal(
            f'target.kind: Unsupported value: "{target["kind"]}": supported values: "Node", '
            '"<empty>"'
        )
    if not target.get("name"):
        raise answers.internal("target.name: Required value")
    check_preconditions(
        stored,
        name,
        uid=str(meta.get("uid") or ""),
        resource_version=str(meta.get("resourceVersion") or ""),
    )
    obj = stored.object()
    if why := _unbindable(obj, name):
        raise answers.conflict(POD, name, why, "binding")
    obj["spec"]["nodeName"] = target["name"]
    for part in ("annotations", "labels"):
        if meta.get(part):
            obj["metadata"][part] = (obj["metadata"].get(part) or {}) | meta[part]
    status = obj.setdefault("status", {})
    conditions = [c for c in status.get("conditions") or () if c["type"] != "PodScheduled"]
    scheduled = {
        "type": "PodScheduled",
        "status": "True",
        "lastProbeTime": None,
        "lastTransitionTime": now,
    }
    status["conditions"] = [*conditions, scheduled]
    return obj


def _unbindable(obj: Object, name: str) -> str:
    spec = obj["spec"]
    if "deletionTimestamp" in obj["metadata"]:
        return f"pod {name} is being deleted, cannot be assigned to a host"
    if spec.get("nodeName"):
        return f'pod {name} is already assigned to node "{spec["nodeName"]}"'
    if spec.get("schedulingGates"):
        return f"pod {name} has non-empty .spec.schedulingGates"
    return ""


def check_preconditions(stored: Stored, name: str, *, uid: str, resource_version: str) -> None:
    """Check what a binding demands of the pod; "" = anything.

    Raises:
        ApiError: 409.
    """
    if uid and uid != stored.uid:
        why = f"UID in precondition: {uid}, UID in object meta: {stored.uid}"
        raise answers.conflict(POD, name, answers.storage_error(f"pods/{stored.key}", why))
    if resource_version and resource_version != str(stored.rv):
        why = (
            f"ResourceVersion in precondition: {resource_version}, ResourceVersion in object "
            f"meta: {stored.rv}"
        )
        raise answers.conflict(POD, name, answers.storage_error(f"pods/{stored.key}", why))


# -- eviction


def check_budgets(pod: Stored, peers: Iterable[Stored], budgets: Iterable[Object]) -> None:
    """Whether the pod may be evicted now.

    There is no disruption controller here: what a budget allows is counted on the spot, unless
    somebody has written the status of the budget for its present generation.

    Raises:
        ApiError: 429, a budget forbids it; 500, more than one budget covers the pod.
    """
    obj = pod.object()
    if _phase(obj) in (*TERMINAL, "Pending") or "deletionTimestamp" in obj["metadata"]:
        return
    covering = [b for b in budgets if _covers(b, pod)]
    if len(covering) > 1:
        raise answers.internal(
            "This pod has more than one PodDisruptionBudget, which the eviction subresource does "
            "not support."
        )
    for budget in covering:
        allowed, desired, healthy = _allowed(budget, [p for p in peers if _covers(budget, p)])
        if allowed <= 0:
            raise _over_budget(budget["metadata"]["name"], desired, healthy)


def _over_budget(name: str, desired: int, healthy: int) -> ApiError:
    text = f"The disruption budget {name} needs {desired} healthy pods and has {healthy} currently"
    return answers.too_many_requests(
        "Cannot evict pod as it would violate the pod's disruption budget.",
        0,
        [Cause("", "DisruptionBudget", text)],
    )


def _covers(budget: Object, pod: Stored) -> bool:
    selector = (budget.get("spec") or {}).get("selector")
    if selector is None or pod.key.partition("/")[0] != budget["metadata"]["namespace"]:
        return False
    return all(r.holds(pod.labels) for r in selectors.of_label_selector(selector))


def _allowed(budget: Object, peers: list[Stored]) -> tuple[int, int, int]:
    status, spec = budget.get("status") or {}, budget["spec"]
    if status.get("observedGeneration") == budget["metadata"].get("generation"):
        fields = ("disruptionsAllowed", "desiredHealthy", "currentHealthy")
        allowed, desired, healthy = (int(status.get(field, 0)) for field in fields)
        return allowed, desired, healthy
    objects = [p.object() for p in peers]
    expected = sum(_phase(o) not in TERMINAL for o in objects)
    healthy = sum(
        _phase(o) == "Running" and "deletionTimestamp" not in o["metadata"] for o in objects
    )
    if "minAvailable" in spec:
        desired = _scaled(spec["minAvailable"], expected)
    else:
        desired = max(0, expected - _scaled(spec.get("maxUnavailable", 0), expected))
    return healthy - desired, desired, healthy


def _scaled(value: int | str, total: int) -> int:
    if isinstance(value, int):
        return value
    # Rounded up, for minAvailable and maxUnavailable alike.
    return -(-int(value.rstrip("%")) * total // 100)


def _phase(obj: Object) -> str:
    return str((obj.get("status") or {}).get("phase", ""))
