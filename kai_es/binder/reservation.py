"""Reservation pods: what one looks like, and which of them, or of their users, have to go. Pure.

The device plugin of a node hands out whole GPUs. For each shared one (a GPU group) a reservation
pod asks for a GPU, tells which it got, and so keeps it from everybody else.

Reference: binder.md §10; pkg/binder/binding/resourcereservation.
"""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from kai_es.kube.labels import (
    APP_LABEL,
    DO_NOT_DISRUPT,
    GPU_GROUP_LABEL,
    GPU_INDEX,
    RESERVATION_APP,
)
from kai_es.kube.sharing import groups_of

GPU: Final = "nvidia.com/gpu"
CONTAINER: Final = "resource-reservation"
IMAGE: Final = "kai-es"
FAKE_IMAGE: Final = "ubuntu"
TIMEOUT_S: Final = 40
ENDED: Final = ("Succeeded", "Failed")
HOLDING: Final = ("Running", "Pending")


@dataclass(frozen=True, slots=True, kw_only=True)
class ReservationSettings:
    """How reservation pods are made; names and defaults as the reference's flags.

    image:   our own by default, whose program is named by an argument; any other is run as it is.
    timeout_s: how long a reservation pod may take to tell its GPU.
    resources: further requests and limits, {"requests": …, "limits": …}.
    fake_gpu: nodes without GPUs, for tests: the pod only sleeps, somebody else says which it got.
    scale_namespace: where the pods are with which a node autoscaler is asked for GPUs.
    """

    namespace: str = RESERVATION_APP
    service_account: str = RESERVATION_APP
    image: str = IMAGE
    app: str = RESERVATION_APP
    timeout_s: int = TIMEOUT_S
    resources: Mapping[str, Any] | None = None
    pod_security: Mapping[str, Any] | None = None
    container_security: Mapping[str, Any] | None = None
    runtime_class: str = ""
    fake_gpu: bool = False
    scale_namespace: str = "kai-scale-adjust"


def reservation_name(node: str, group: str) -> str:
    """The name of the one reservation pod of a group on a node."""
    digest = hashlib.sha256(f"{node}/{group}".encode()).hexdigest()
    return f"gpu-reservation-{digest[:16]}"


def reservation_pod(
    settings: ReservationSettings, *, node: str, group: str, tolerations: Sequence[Any]
) -> dict[str, Any]:
    """The pod that reserves a GPU of a node for a group.

    tolerations: of the pod for which it is made: it is placed past the scheduler, and must not be
    evicted from where its users may be.
    """
    spec: dict[str, Any] = {
        "nodeName": node,
        "serviceAccountName": settings.service_account,
        "containers": [_container(settings)],
    }
    if tolerations:
        spec["tolerations"] = [dict(one) for one in tolerations]
    if settings.runtime_class:
        spec["runtimeClassName"] = settings.runtime_class
    if settings.pod_security:
        spec["securityContext"] = dict(settings.pod_security)
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": reservation_name(node, group),
            "namespace": settings.namespace,
            "labels": {APP_LABEL: settings.app, GPU_GROUP_LABEL: group},
            "annotations": {DO_NOT_DISRUPT: "true"},
        },
        "spec": spec,
    }


def _container(settings: ReservationSettings) -> dict[str, Any]:
    more = settings.resources or {}
    resources = {}
    for field in ("requests", "limits"):
        others = {name: text for name, text in (more.get(field) or {}).items() if name != GPU}
        resources[field] = {**others, GPU: "1"}
    container: dict[str, Any] = {
        "name": CONTAINER,
        "image": FAKE_IMAGE if settings.fake_gpu else settings.image,
        "imagePullPolicy": "IfNotPresent",
        "resources": resources,
        "env": [
            {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}
            for name, path in (
                ("POD_NAME", "metadata.name"),
                ("POD_NAMESPACE", "metadata.namespace"),
            )
        ],
    }
    if settings.fake_gpu:
        container["command"] = ["sleep", "infinity"]
    elif settings.image.partition(":")[0].rpartition("/")[2] == IMAGE:
        container["args"] = [CONTAINER]
    if settings.container_security:
        container["securityContext"] = dict(settings.container_security)
    return container


def gpu_id(pod: Mapping[str, Any]) -> str:
    """The GPU that a reservation pod got, "" = it has not told yet."""
    return str((pod["metadata"].get("annotations") or {}).get(GPU_INDEX) or "")


# -- who has to go


class Holder(NamedTuple):
    """A pod that names shared GPUs: a reservation pod or a user of some.

    groups: that it names; of a reservation pod one.
    refusal: why it ended before it told its GPU, "" = it did not.
    """

    namespace: str
    name: str
    uid: str
    rv: int
    node: str
    phase: str
    is_deleting: bool
    groups: tuple[str, ...]
    is_reservation: bool
    refusal: str


def holder(pod: Mapping[str, Any], namespace: str) -> Holder:
    """What counts of a raw pod; `namespace` is that of reservation pods."""
    meta = pod["metadata"]
    return Holder(
        namespace=meta.get("namespace") or "",
        name=meta["name"],
        uid=meta.get("uid") or "",
        rv=int(meta.get("resourceVersion") or 0),
        node=(pod.get("spec") or {}).get("nodeName") or "",
        phase=(pod.get("status") or {}).get("phase") or "",
        is_deleting=bool(meta.get("deletionTimestamp")),
        groups=groups_of(pod),
        is_reservation=meta.get("namespace") == namespace,
        refusal=_refusal(pod),
    )


def _refusal(pod: Mapping[str, Any]) -> str:
    status = pod.get("status") or {}
    if status.get("phase") not in ENDED or gpu_id(pod):
        return ""
    return str(status.get("message") or status.get("reason") or f"phase is {status['phase']}")


class Doomed(NamedTuple):
    """Pods to delete: reservations that nobody uses, users whose reservation is lost."""

    reservations: tuple[Holder, ...]
    users: tuple[Holder, ...]


def to_delete(group: str, holders: Iterable[Holder], *, is_open: bool) -> Doomed:
    """What a group has too much.

    A user that runs without a reservation is on a GPU that anybody may be given. A reservation
    pod that has ended holds nothing; it counts as lost, other than in the reference.

    Args:
        group: the group.
        holders: at least all pods that name it.
        is_open: a request without a final result names it, so a user may be on its way.
    """
    of_group = [one for one in holders if group in one.groups]
    reservations = [one for one in of_group if one.is_reservation]
    ended = [one for one in reservations if one.phase in ENDED]
    users = [one for one in of_group if not one.is_reservation and one.phase in HOLDING]
    if len(ended) == len(reservations) and users:
        running = (one for one in users if one.phase == "Running" and not one.is_deleting)
        return Doomed(tuple(ended), tuple(running))
    if users or is_open:
        return Doomed(tuple(ended), ())
    return Doomed(tuple(reservations), ())


def groups_on(node: str, holders: Iterable[Holder]) -> tuple[str, ...]:
    """Groups that pods of a node name."""
    found = {group for one in holders if one.node == node for group in one.groups}
    return tuple(sorted(found))
