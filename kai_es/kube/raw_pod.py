"""What is read of a raw Pod, as types (see `kube.shape`)."""

from typing import Any

import msgspec

from kai_es.kube.affinity import Affinity, TopologySpread
from kai_es.kube.resources import Quantity
from kai_es.kube.shape import Int32, Labels, Metadata


class _Camel(msgspec.Struct, rename="camel", gc=False):
    """Field names as in the API."""


class RawResources(_Camel):
    """`resources` of a container."""

    requests: dict[str, Quantity] | None = None


class RawPort(_Camel):
    """One of a container's ports."""

    host_port: Int32 | None = None
    protocol: str | None = None
    host_ip: str | None = msgspec.field(default=None, name="hostIP")


class RawReference(_Camel):
    """A reference to a config map or one of its keys; other references have the same form."""

    name: str = ""
    optional: bool | None = None


class RawValueFrom(_Camel):
    """`env[].valueFrom`."""

    config_map_key_ref: RawReference | None = None


class RawEnv(_Camel):
    """An entry of `env`."""

    value_from: RawValueFrom | None = None


class RawEnvFrom(_Camel):
    """An entry of `envFrom`."""

    config_map_ref: RawReference | None = None


class RawMount(_Camel):
    """An entry of `volumeMounts`."""

    name: str = ""


class RawContainer(_Camel):
    """A container of any of the three lists."""

    resources: RawResources | None = None
    ports: list[RawPort] | None = None
    env: list[RawEnv] | None = None
    env_from: list[RawEnvFrom] | None = None
    volume_mounts: list[RawMount] | None = None
    restart_policy: str | None = None
    name: str = ""


class RawClaimSource(_Camel):
    """`persistentVolumeClaim` of a volume."""

    claim_name: str = ""


class RawSource(_Camel):
    """An entry of `projected.sources`."""

    config_map: RawReference | None = None


class RawProjected(_Camel):
    """`projected` of a volume."""

    sources: list[RawSource] | None = None


class RawVolume(_Camel):
    """A volume; the kinds that no field names are kept raw."""

    name: str
    persistent_volume_claim: RawClaimSource | None = None
    ephemeral: dict[str, Any] | None = None
    config_map: RawReference | None = None
    projected: RawProjected | None = None
    secret: dict[str, Any] | None = None


class RawToleration(_Camel):
    """A toleration."""

    key: str | None = None
    operator: str | None = None
    value: str | None = None
    effect: str | None = None


class RawResourceClaim(_Camel):
    """An entry of `spec.resourceClaims`."""

    name: str
    resource_claim_name: str | None = None
    resource_claim_template_name: str | None = None


class RawSpec(_Camel):
    """`spec` of a pod."""

    containers: list[RawContainer] | None = None
    init_containers: list[RawContainer] | None = None
    ephemeral_containers: list[RawContainer] | None = None
    overhead: dict[str, Quantity] | None = None
    node_name: str | None = None
    node_selector: Labels | None = None
    affinity: Affinity | None = None
    tolerations: list[RawToleration] | None = None
    topology_spread_constraints: list[TopologySpread] | None = None
    volumes: list[RawVolume] | None = None
    resource_claims: list[RawResourceClaim] | None = None
    scheduling_gates: list[Any] | None = None
    scheduler_name: str | None = None
    priority: Int32 | None = None
    priority_class_name: str | None = None


class RawClaimName(_Camel):
    """An entry of `status.resourceClaimStatuses`."""

    name: str
    resource_claim_name: str | None = None


class RawStatus(_Camel):
    """`status` of a pod."""

    phase: str | None = None
    start_time: str | None = None
    nominated_node_name: str | None = None
    qos_class: str | None = None
    resource_claim_statuses: list[RawClaimName] | None = None
    conditions: Any = None


class RawPod(_Camel):
    """A pod."""

    metadata: Metadata
    spec: RawSpec | None = None
    status: RawStatus | None = None
