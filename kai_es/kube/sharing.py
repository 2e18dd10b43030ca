"""How a pod is told which shared GPUs it got: container, environment, config maps, volume.

The admission webhook prepares a pod so when it is made; the binder fills the config maps before it
binds it. Objects are raw JSON.

Reference: binder.md §3.3, §9.2, §9.3; pkg/binder/common, pkg/common/resources.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from kai_es.kube.labels import (
    GPU_FRACTION_CONTAINER,
    GPU_GROUP_LABEL,
    GPU_GROUPS_PREFIX,
    SHARED_GPU_CONFIG_MAP,
)

Raw = Mapping[str, Any]

VISIBLE_DEVICES: Final = "NVIDIA_VISIBLE_DEVICES"
OLD_VISIBLE_DEVICES: Final = "RUNAI-VISIBLE-DEVICES"
"""Key that pods of old releases read."""
PORTION: Final = "GPU_PORTION"
NUM_OF_GPUS: Final = "RUNAI_NUM_OF_GPUS"
"""Deprecated name of the portion."""
MEMORY_LIMIT: Final = "CUDA_DEVICE_MEMORY_LIMIT"
DIRECT_ENV: Final = "-evar"
CDI_DEVICE: Final = "k8s.device-plugin.nvidia.com/gpu="
VOLUME: Final = "-vol"
_NO_VOLUME_NAME: Final = re.compile(r"[^a-z0-9-]+")


class SharingError(ValueError):
    """A pod that cannot be told: no such container, or no config map named."""


class FractionContainer(NamedTuple):
    """The container that gets the shared GPU.

    number: among the containers of its type.
    """

    type: str
    number: int
    raw: Raw

    @property
    def is_init(self) -> bool:
        """Whether it runs before the regular ones."""
        return self.type == "InitContainer"


def fraction_container(pod: Raw) -> FractionContainer:
    """The container that the pod's annotation names; the first regular one without it.

    Raises:
        SharingError: there is none.
    """
    spec, name = pod["spec"], _annotations(pod).get(GPU_FRACTION_CONTAINER, "")
    regular = spec.get("containers") or ()
    if not name:
        if not regular:
            raise SharingError("no containers in the pod")
        return FractionContainer("RegularContainer", 0, regular[0])
    kinds = (("InitContainer", spec.get("initContainers") or ()), ("RegularContainer", regular))
    for kind, containers in kinds:
        for index, container in enumerate(containers):
            if container["name"] == name:
                return FractionContainer(kind, index, container)
    raise SharingError(f"container with name {name} not found for fraction request")


class ConfigMapNames(NamedTuple):
    """Names of a pod's two config maps."""

    capabilities: str
    direct_env: str


def config_map_names(pod: Raw, container: FractionContainer) -> ConfigMapNames:
    """The names that the admission webhook has settled.

    Raises:
        SharingError: it has settled none.
    """
    prefix = _annotations(pod).get(SHARED_GPU_CONFIG_MAP)
    if not prefix:
        meta = pod["metadata"]
        raise SharingError(
            "failed to get capabilities configmap name: no desired configmap name found in pod "
            f"{meta['namespace']}/{meta['name']} annotations"
        )
    name = f"{prefix}-{'i' if container.is_init else ''}{container.number}"
    return ConfigMapNames(name, name + DIRECT_ENV)


def reads_visible_devices(container: FractionContainer) -> bool:
    """Whether the container takes its devices from the capabilities map by an environment key."""
    return any(
        one.get("name") == VISIBLE_DEVICES and (one.get("valueFrom") or {}).get("configMapKeyRef")
        for one in container.raw.get("env") or ()
    )


def devices_text(gpu_ids: Sequence[str], *, cdi: bool) -> str:
    """Devices as the container runtime wants them named."""
    return ",".join((CDI_DEVICE + gpu_id) if cdi else gpu_id for gpu_id in gpu_ids)


def portion_text(hundredths: int) -> str:
    """A share of a device, with two decimals."""
    return f"{hundredths // 100}.{hundredths % 100:02d}"


# -- labels


def group_labels(groups: Sequence[str]) -> dict[str, str]:
    """The labels of a pod that uses shared devices (binder.md §3.2)."""
    if len(groups) == 1:
        return {GPU_GROUP_LABEL: groups[0]}
    return {GPU_GROUPS_PREFIX + group: group for group in groups}


def is_group_label(key: str) -> bool:
    """Whether a label names a shared device."""
    return key == GPU_GROUP_LABEL or key.startswith(GPU_GROUPS_PREFIX)


def groups_of(pod: Raw) -> tuple[str, ...]:
    """Shared devices that the pod's labels name, of one or of several devices."""
    labels = pod["metadata"].get("labels") or {}
    return tuple(labels[key] for key in sorted(labels) if is_group_label(key))


# -- what admission prepares


def with_env(container: Raw, variable: Raw) -> dict[str, Any]:
    """The container with a variable, in the place of one of its name."""
    others = [one for one in container.get("env") or () if one["name"] != variable["name"]]
    return {**container, "env": [*others, dict(variable)]}


def with_config_map_volume(spec: Raw, *, volume: str, config_map: str) -> dict[str, Any]:
    """The pod spec with a config map as volume, in the place of one of its name."""
    others = [one for one in spec.get("volumes") or () if one["name"] != volume]
    return {**spec, "volumes": [*others, {"name": volume, "configMap": {"name": config_map}}]}


def volume_name(config_map: str) -> str:
    """Name of the volume of a config map; names of maps may have dots, those of volumes not."""
    return _NO_VOLUME_NAME.sub("-", (config_map + VOLUME).lower()).strip("-")


def prepared(pod: Raw, prefix: str) -> dict[str, Any]:
    """The pod as the admission webhook leaves it, its config maps beginning with `prefix`.

    Raises:
        SharingError: it names a container that it does not have.
    """
    meta = pod["metadata"]
    annotations = {SHARED_GPU_CONFIG_MAP: prefix, **_annotations(pod)}
    pod = {**pod, "metadata": {**meta, "annotations": annotations}}
    chosen = fraction_container(pod)
    names = config_map_names(pod, chosen)
    container = dict(chosen.raw)
    for key in (VISIBLE_DEVICES, NUM_OF_GPUS, PORTION):
        source = {"configMapKeyRef": {"name": names.capabilities, "key": key}}
        container = with_env(container, {"name": key, "valueFrom": source})
    direct = {"configMapRef": {"name": names.direct_env, "optional": False}}
    if direct not in (container.get("envFrom") or ()):
        container["envFrom"] = [*(container.get("envFrom") or ()), direct]
    field = "initContainers" if chosen.is_init else "containers"
    containers = list(pod["spec"][field])
    containers[chosen.number] = container
    spec = with_config_map_volume(
        {**pod["spec"], field: containers},
        volume=volume_name(names.capabilities),
        config_map=names.capabilities,
    )
    return {**pod, "spec": spec}


def _annotations(pod: Raw) -> Mapping[str, str]:
    return (pod.get("metadata") or {}).get("annotations") or {}
