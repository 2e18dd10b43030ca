"""Cluster objects as kai-es knows them: normalised, frozen, amounts as integers.

These are the payload of snapshot rows. A field is here because `decide`, a projection or a report
reads it; everything else stays in the raw object of the `objects` topic. Times are milliseconds
since the epoch, 0 = unset. New fields are optional with a default (architecture §2, envelope).

Reference: pkg/scheduler/api/**, pkg/apis/**; fields per docs of each type.
"""

from typing import Any, TypeAlias

import msgspec

from kai_es.kube.devices import DeviceClass, ResourceClaim, ResourceSlice
from kai_es.kube.labels import GPU, NVIDIA_GPU
from kai_es.kube.topologies import NumaNode, Topology
from kai_es.kube.volumes import Claim, ConfigMap, CsiDriver, StorageCapacity, StorageClass, Volume


class Toleration(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One toleration; `seconds` is of no account to placement and is not kept."""

    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""


class Taint(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One taint of a node."""

    key: str
    value: str = ""
    effect: str


class GpuRequest(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a pod asks of GPU devices. Reference: resource_info/gpu_resource_requirment.go.

    count:      devices.
    portion:    share of each device as written (raw float; sums use two decimals), 1.0 = whole.
    memory_mib: memory of each device in MiB, 0 = not asked by memory.
    mig:        profile resource name -> instances.
    dra:        device class -> devices, from resource claims (resolved in the snapshot).
    """

    count: int = 0
    portion: float = 0.0
    memory_mib: int = 0
    mig: dict[str, int] = {}
    dra: dict[str, int] = {}


class ExtendedContainer(msgspec.Struct, frozen=True, array_like=True):
    """A container that asks for extended resources.

    index:    in init containers and containers, counted through.
    kind:     "" = container, "sidecar", "init" = runs alone, before the ones after it.
    requests: (resource, its place among the container's sorted request names, whole amount).
    """

    index: int
    name: str
    kind: str
    requests: tuple[tuple[str, int, int], ...]


class ContainerRequest(msgspec.Struct, frozen=True, array_like=True):
    """What one container of a pod asks for, in the units of `PodSpec.requests`.

    kind: "" = container, "sidecar", "init" = runs alone, before the ones after it.
    """

    kind: str
    requests: dict[str, int]


class PodSpec(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What of a pod decides where it may run; equal for all replicas of a workload.

    requests:      resource -> amount: cpu millicores, memory bytes, gpu in gpu_micro (whole
                   devices only; absent for Fraction and GpuMemory), pods 1, ephemeral-storage
                   bytes, MIG profiles in instances, other names milli-units. Init containers,
                   sidecars and overhead are counted in. Zero amounts are left out.
    gpu:           the GPU request behind `requests["gpu"]`, fractions and memory included.
    request_type:  Regular | Fraction | GpuMemory | MigInstance.
    node_selector: label -> value.
    affinity:      `spec.affinity` in the API's form (`kube.affinity`), None if unset.
    topology_spread: `spec.topologySpreadConstraints` likewise.
    host_ports:    (protocol, host IP, port) of containers and sidecars.
    start_host_ports: those of ordinary init containers; signature only.
    claims:        names of PersistentVolumeClaims mounted, ephemeral ones as `<pod>-<volume>`.
    ephemeral_claims: those of `claims` that are made for the pod and go with it.
    volumes:       other volumes, which bear on the signature only, as JSON without their names (no
                   config maps, secrets, API tokens).
    config_maps:   names of config maps the pod cannot start without.
    resource_claims: (name in the pod, claim name or template name, "claim" | "template").
    guaranteed:    its QoS class is Guaranteed.
    containers:    what each asks for, init containers first; () = there is one, with `requests`.
    overhead:      of the pod as a whole; only with `containers`.
    extended:      containers that ask for extended resources, which a device class may serve.
    """

    requests: dict[str, int]
    gpu: GpuRequest = GpuRequest()
    request_type: str = "Regular"
    legacy_mig: bool = False
    node_selector: dict[str, str] = {}
    affinity: Any = None
    tolerations: tuple[Toleration, ...] = ()
    topology_spread: Any = None
    host_ports: tuple[tuple[str, str, int], ...] = ()
    start_host_ports: tuple[tuple[str, str, int], ...] = ()
    claims: tuple[str, ...] = ()
    ephemeral_claims: tuple[str, ...] = ()
    volumes: tuple[str, ...] = ()
    config_maps: tuple[str, ...] = ()
    resource_claims: tuple[tuple[str, str, str], ...] = ()
    guaranteed: bool = False
    containers: tuple[ContainerRequest, ...] = ()
    overhead: dict[str, int] = {}
    extended: tuple[ExtendedContainer, ...] = ()
    scheduler: str = ""
    priority: int | None = None
    priority_class: str = ""


class Pod(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="Pod"):
    """A pod. Everything but `spec` changes during its life.

    node:        spec.nodeName, "" while unbound.
    group:       name of its pod group (annotation `pod-group-name`), "" = none.
    group_uid, group_generation: the stamp of the pod group it was grouped under, "" / 0 = none.
    sub_group:   label `kai.scheduler/subgroup-name`, "" = the pod set `default`.
    gated:       has scheduling gates.
    labels:      all labels; pod (anti-)affinity matches on them.
    annotations: those of `parse_pod.KEPT_ANNOTATIONS`; other annotations that are read have fields.
    gpu_groups:  shared-GPU groups from labels.
    received:    annotation `received-resource-type`.
    owner:       (kind, name) of the controlling owner, for reports.
    closed_request: annotation `kai.scheduler/closed-request`.
    scheduled, bound: conditions `PodScheduled` and `PodBound` (`kube.conditions.condition_text`),
                 "" = there is none. What the status writer has written; `decide` does not read it.
    claim_names: (name in the pod, claim made for it from a template), by name.
    """

    uid: str
    namespace: str
    name: str
    created_ms: int = 0
    deleted_ms: int = 0
    started_ms: int = 0
    phase: str = ""
    node: str = ""
    nominated_node: str = ""
    group: str = ""
    group_uid: str = ""
    group_generation: int = 0
    sub_group: str = ""
    gated: bool = False
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    gpu_groups: tuple[str, ...] = ()
    received: str = ""
    owner: tuple[str, str] = ("", "")
    closed_request: str = ""
    scheduled: str = ""
    bound: str = ""
    claim_names: tuple[tuple[str, str], ...] = ()
    spec: PodSpec

    @property
    def reserves_device(self) -> bool:
        """Whether it only keeps a whole GPU for those that share it, whatever its `app` label.

        It carries their group's label, asks for a GPU itself, and is in no pod group.
        """
        spec = self.spec
        is_whole = spec.request_type == "Regular" and spec.requests.get(GPU, 0) > 0
        return is_whole and bool(self.gpu_groups) and not self.group


class Node(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="Node"):
    """A node.

    allocatable, capacity: resource -> amount in the units of `PodSpec.requests`.
    conditions:  type -> status ("True" | "False" | "Unknown").
    gpu_memory_mib: per device, floored to a multiple of 100; 100 and `gpu_memory_synced` False
                 where the label is missing (reference scheduler-core §4.3).
    gpu_count:   label `nvidia.com/gpu.count`, −1 if absent or no integer.
    gpu_names:   names behind the amount `gpu` of `allocatable`, sorted; () = `nvidia.com/gpu`.
    """

    uid: str
    name: str
    created_ms: int = 0
    deleted_ms: int = 0
    labels: dict[str, str] = {}
    taints: tuple[Taint, ...] = ()
    unschedulable: bool = False
    allocatable: dict[str, int] = {}
    capacity: dict[str, int] = {}
    conditions: dict[str, str] = {}
    gpu_memory_mib: int = 100
    gpu_memory_synced: bool = False
    gpu_count: int = -1
    gpu_names: tuple[str, ...] = ()

    def offers(self, name: str) -> bool:
        """Whether a device plugin offers some of a resource, by its exact name."""
        if not name.endswith(GPU):
            return self.allocatable.get(name, 0) > 0
        return self.allocatable.get(GPU, 0) > 0 and name in (self.gpu_names or (NVIDIA_GPU,))


class TopologyConstraint(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Where the members of a (sub-)group must or should be together; "" = level not given."""

    topology: str
    required: str = ""
    preferred: str = ""


class SubGroup(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One entry of `spec.subGroups`; None = unset."""

    name: str
    parent: str | None = None
    min_member: int | None = None
    min_sub_group: int | None = None
    topology: TopologyConstraint | None = None


class SchedulingCondition(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An entry of `status.schedulingConditions`.

    The back-off rule reads pool and id; the rest is for the status writer, which writes the list
    as a whole. reasons: the list as JSON, "" = none; since: `lastTransitionTime`.
    """

    node_pool: str = ""
    transition_id: str = ""
    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""
    reasons: str = ""
    since: str = ""


class PodGroup(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="PodGroup"):
    """A gang. None = field unset in the object.

    stale_since_ms, last_start_ms, last_eviction_ms: annotations, read only for groups that no
    cycle of ours has marked yet (architecture §4, marks).
    resources:  `status.resourcesStatus` as JSON, keys sorted, "" = unset.
    conditions: `status.conditions` likewise, without that of the status writer (`as_of`).
    as_of:      snapshot offset that the status was computed from, 0 = unknown.
    """

    uid: str
    namespace: str
    name: str
    generation: int = 0
    created_ms: int = 0
    deleted_ms: int = 0
    labels: dict[str, str] = {}
    queue: str = ""
    min_member: int | None = None
    min_sub_group: int | None = None
    priority_class: str = ""
    preemptibility: str = ""
    preemption_delay_ms: int = 0
    staleness_grace_ms: int | None = None
    mark_unschedulable: bool = True
    scheduling_backoff: int | None = None
    topology: TopologyConstraint | None = None
    sub_groups: tuple[SubGroup, ...] = ()
    scheduling_conditions: tuple[SchedulingCondition, ...] = ()
    stale_since_ms: int = 0
    last_start_ms: int = 0
    last_eviction_ms: int = 0
    owner: tuple[str, str] = ("", "")
    resources: str = ""
    conditions: str = ""
    as_of: int = 0


class QueueShare(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Quota, limit and weight of one resource as written; −1 = unlimited.

    Units of the object: GPU devices, millicores, megabytes (10^6 bytes).
    """

    quota: float = 0.0
    limit: float = 0.0
    weight: float = 0.0


class QueueStatus(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What the status writer has written of a queue.

    totals:     `allocated`, `allocatedNonPreemptible`, `requested` and `childQueues` of the status
                as JSON, keys sorted, "" = none of them is set.
    conditions, as_of: as of a pod group.
    """

    totals: str = ""
    conditions: str = ""
    as_of: int = 0


class Queue(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="Queue"):
    """A node of the queue tree. Its identity in every reference to it is its name."""

    uid: str
    name: str
    created_ms: int = 0
    deleted_ms: int = 0
    labels: dict[str, str] = {}
    display_name: str = ""
    parent: str = ""
    priority: int = 100
    gpu: QueueShare = QueueShare()
    cpu: QueueShare = QueueShare()
    memory: QueueShare = QueueShare()
    preempt_min_runtime_ms: int | None = None
    reclaim_min_runtime_ms: int | None = None
    status: QueueStatus = QueueStatus()


class PriorityClass(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="PriorityClass"
):
    """A named priority."""

    uid: str
    name: str
    value: int
    global_default: bool = False
    deleted_ms: int = 0


class Namespace(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="Namespace"):
    """A namespace; pod affinity chooses namespaces by their labels."""

    uid: str
    name: str
    deleted_ms: int = 0
    labels: dict[str, str] = {}


class ShardConfig(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="ShardConfig"):
    """Configuration of one scheduler shard with every default resolved.

    `settings` is the canonical JSON object of `scheduler.config.ShardConfig`; the core parses it.
    """

    uid: str
    name: str
    settings: dict[str, Any]
    deleted_ms: int = 0


ClusterObject: TypeAlias = (
    Pod
    | Node
    | PodGroup
    | Queue
    | PriorityClass
    | ShardConfig
    | ResourceClaim
    | ResourceSlice
    | DeviceClass
    | Namespace
    | Topology
    | NumaNode
    | ConfigMap
    | Claim
    | Volume
    | StorageClass
    | CsiDriver
    | StorageCapacity
)


def kind_of(obj: ClusterObject) -> str:
    """The Kubernetes kind of an object, which is also its tag in a row."""
    return str(type(obj).__struct_config__.tag)
