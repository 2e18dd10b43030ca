"""The one table of kinds that the simulated API server serves.

Adding a kind is adding a row. What differs between kinds in the way the API treats them (status
subresource, generation, selectable fields, …) is a column here, so that no verb asks for a kind by
name, pods and namespaces aside (`strategy.py`, `pods.py`).

Reference: reference/apis.md §1 for the kinds of KAI.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from typing import Any, Final

DROPPED: Final[Mapping[str, Any]] = MappingProxyType({})
"""`Kind.status_born` of kinds whose status starts absent, whatever the creator wrote."""


@dataclass(frozen=True)
class Kind:
    """One kind of object.

    namespaced:    lives in a namespace.
    custom:        comes from a CustomResourceDefinition: list items carry kind and apiVersion, no
                   strategic merge patch, an update must carry a resourceVersion.
    status:        has the status subresource: status changes there and nowhere else.
    status_born:   status of a new object; None = as written by the creator.
    generation:    `metadata.generation` is kept.
    fields:        selectable fields besides `metadata.name` and `metadata.namespace`.
    indexed:       one of `fields` by which lists are found without a look at every object, as the
                   real server does.
    unconditional: an update without resourceVersion is allowed.
    subresources:  further subresources, for discovery.
    """

    group: str
    version: str
    kind: str
    plural: str
    namespaced: bool = True
    custom: bool = False
    status: bool = False
    status_born: Mapping[str, Any] | None = None
    generation: bool = False
    fields: tuple[str, ...] = ()
    indexed: str = ""
    unconditional: bool = True
    short: tuple[str, ...] = ()
    subresources: tuple[str, ...] = ()

    @cached_property
    def resource(self) -> str:
        """Plural with group, as messages write it: `queues.scheduling.run.ai`."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @cached_property
    def api_version(self) -> str:
        """`v1` or `group/version`."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @cached_property
    def head(self) -> bytes:
        """First bytes of every stored body, see `Stored.body`."""
        return f'{{"kind":"{self.kind}","apiVersion":"{self.api_version}",'.encode()

    @cached_property
    def field_paths(self) -> tuple[tuple[str, ...], ...]:
        """`fields`, each as its keys."""
        return tuple(tuple(field.split(".")) for field in self.fields)

    @cached_property
    def path(self) -> str:
        """URL path of the cluster-wide collection."""
        root = f"/apis/{self.group}" if self.group else "/api"
        return f"{root}/{self.version}/{self.plural}"

    @cached_property
    def index_number(self) -> int | None:
        """Which of `fields` is indexed."""
        return self.fields.index(self.indexed) if self.indexed else None

    def serves(self, subresource: str) -> bool:
        """Whether objects of this kind have it."""
        return subresource in self.subresources or (subresource == "status" and self.status)

    def __hash__(self) -> int:
        return hash((self.group, self.plural))


POD_FIELDS: Final = (
    "spec.nodeName",
    "status.phase",
    "spec.schedulerName",
    "spec.restartPolicy",
    "spec.serviceAccountName",
    "status.nominatedNodeName",
    "status.podIP",
)
EVENT_FIELDS: Final = (
    "involvedObject.kind",
    "involvedObject.namespace",
    "involvedObject.name",
    "involvedObject.uid",
    "reason",
    "type",
    "reportingComponent",
)
PENDING: Final = MappingProxyType({"phase": "Pending"})


def custom(group: str, version: str, kind: str, plural: str, **columns: Any) -> Kind:
    """A kind as a CustomResourceDefinition with a status subresource declares it."""
    row: dict[str, Any] = {
        "custom": True,
        "status": True,
        "status_born": DROPPED,
        "generation": True,
        "unconditional": False,
    }
    return Kind(group, version, kind, plural, **row | columns)


def _workload(group: str, kind: str, plural: str) -> Kind:
    return Kind(group, "v1", kind, plural, status=True, status_born=DROPPED, generation=True)


NODE: Final = Kind(
    "",
    "v1",
    "Node",
    "nodes",
    namespaced=False,
    status=True,
    fields=("spec.unschedulable",),
    short=("no",),
)
POD: Final = Kind(
    "",
    "v1",
    "Pod",
    "pods",
    status=True,
    status_born=PENDING,
    generation=True,
    fields=POD_FIELDS,
    indexed="spec.nodeName",
    short=("po",),
    subresources=("binding", "eviction"),
)
NAMESPACE: Final = Kind(
    "",
    "v1",
    "Namespace",
    "namespaces",
    namespaced=False,
    status=True,
    status_born=MappingProxyType({"phase": "Active"}),
    fields=("status.phase",),
    short=("ns",),
    subresources=("finalize",),
)
PRIORITY_CLASS: Final = Kind(
    "scheduling.k8s.io",
    "v1",
    "PriorityClass",
    "priorityclasses",
    namespaced=False,
    generation=True,
    short=("pc",),
)
DISRUPTION_BUDGET: Final = Kind(
    "policy",
    "v1",
    "PodDisruptionBudget",
    "poddisruptionbudgets",
    status=True,
    status_born=MappingProxyType(
        {"disruptionsAllowed": 0, "currentHealthy": 0, "desiredHealthy": 0, "expectedPods": 0}
    ),
    generation=True,
    short=("pdb",),
)
QUEUE: Final = custom("scheduling.run.ai", "v2", "Queue", "queues", namespaced=False)
POD_GROUP: Final = custom("scheduling.run.ai", "v2alpha2", "PodGroup", "podgroups", short=("pg",))
BIND_REQUEST: Final = custom("scheduling.run.ai", "v1alpha2", "BindRequest", "bindrequests")

DEFINITION: Final = Kind(
    "apiextensions.k8s.io",
    "v1",
    "CustomResourceDefinition",
    "customresourcedefinitions",
    namespaced=False,
    status=True,
    status_born=DROPPED,
    generation=True,
    short=("crd",),
)

KINDS: Final = (
    NODE,
    POD,
    NAMESPACE,
    Kind("", "v1", "Event", "events", fields=EVENT_FIELDS, short=("ev",)),
    Kind("events.k8s.io", "v1", "Event", "events", fields=("regarding.name", "reason", "type")),
    Kind("", "v1", "ConfigMap", "configmaps", short=("cm",)),
    Kind("", "v1", "Secret", "secrets", fields=("type",)),
    Kind("", "v1", "ServiceAccount", "serviceaccounts", short=("sa",)),
    Kind("", "v1", "Service", "services", status=True, short=("svc",)),
    Kind(
        "",
        "v1",
        "PersistentVolumeClaim",
        "persistentvolumeclaims",
        status=True,
        status_born=PENDING,
        short=("pvc",),
    ),
    Kind(
        "",
        "v1",
        "PersistentVolume",
        "persistentvolumes",
        namespaced=False,
        status=True,
        status_born=PENDING,
        short=("pv",),
    ),
    PRIORITY_CLASS,
    DISRUPTION_BUDGET,
    Kind("coordination.k8s.io", "v1", "Lease", "leases", unconditional=False),
    Kind("storage.k8s.io", "v1", "StorageClass", "storageclasses", namespaced=False, short=("sc",)),
    Kind("storage.k8s.io", "v1", "CSIDriver", "csidrivers", namespaced=False),
    Kind("storage.k8s.io", "v1", "CSINode", "csinodes", namespaced=False),
    Kind("storage.k8s.io", "v1", "CSIStorageCapacity", "csistoragecapacities"),
    Kind(
        "storage.k8s.io",
        "v1",
        "VolumeAttachment",
        "volumeattachments",
        namespaced=False,
        status=True,
        status_born=DROPPED,
    ),
    Kind("resource.k8s.io", "v1", "DeviceClass", "deviceclasses", namespaced=False),
    Kind(
        "resource.k8s.io",
        "v1",
        "ResourceClaim",
        "resourceclaims",
        status=True,
        status_born=DROPPED,
    ),
    Kind("resource.k8s.io", "v1", "ResourceClaimTemplate", "resourceclaimtemplates"),
    Kind(
        "resource.k8s.io",
        "v1",
        "ResourceSlice",
        "resourceslices",
        namespaced=False,
        fields=("spec.nodeName", "spec.driver"),
    ),
    _workload("batch", "Job", "jobs"),
    _workload("batch", "CronJob", "cronjobs"),
    _workload("apps", "Deployment", "deployments"),
    _workload("apps", "ReplicaSet", "replicasets"),
    _workload("apps", "StatefulSet", "statefulsets"),
    _workload("apps", "DaemonSet", "daemonsets"),
    DEFINITION,
    QUEUE,
    POD_GROUP,
    BIND_REQUEST,
    custom("kai.scheduler", "v1", "SchedulingShard", "schedulingshards", namespaced=False),
    custom("kai.scheduler", "v1", "Config", "configs", namespaced=False),
    custom(
        "kai.scheduler",
        "v1alpha1",
        "Topology",
        "topologies",
        namespaced=False,
        status=False,
        status_born=None,
    ),
    custom(
        "topology.node.k8s.io",
        "v1alpha2",
        "NodeResourceTopology",
        "noderesourcetopologies",
        namespaced=False,
        status=False,
        status_born=None,
        generation=False,
    ),
)


class KindTable:
    """Kinds by URL: group, version, plural."""

    def __init__(self, kinds: Iterable[Kind] = KINDS) -> None:
        self._by_path: dict[tuple[str, str, str], Kind] = {}
        for kind in kinds:
            self.add(kind)

    @property
    def kinds(self) -> tuple[Kind, ...]:
        """All kinds, in the order in which they were added."""
        return tuple(self._by_path.values())

    def add(self, kind: Kind) -> bool:
        """Serve a kind; False = its resource is served already, in this version or another."""
        if any(kind.resource == known.resource for known in self._by_path.values()):
            return False
        self._by_path[kind.group, kind.version, kind.plural] = kind
        return True

    def remove(self, kind: Kind) -> None:
        """Serve a kind no more."""
        del self._by_path[kind.group, kind.version, kind.plural]

    def find(self, group: str, version: str, plural: str) -> Kind | None:
        """The kind served at this path, None if there is none."""
        return self._by_path.get((group, version, plural))

    def groups(self) -> dict[str, dict[str, list[Kind]]]:
        """Group → version → kinds, in table order; the core group is ""."""
        out: dict[str, dict[str, list[Kind]]] = {}
        for kind in self.kinds:
            out.setdefault(kind.group, {}).setdefault(kind.version, []).append(kind)
        return out
