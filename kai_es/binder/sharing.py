"""Preparations of pods that share GPUs: reservation, config maps, memory limit.

Reference: binder.md §7, §9.3, §9.5, §10.3; pkg/binder/plugins/{gpusharing,hamicore}.
"""

import math
from collections.abc import Mapping
from typing import Any, Final

from kai_es.binder.plugins import MEMORY_LIMIT, SHARING
from kai_es.binder.preparation import NotReadyError, Order, PreparationError, of_plugin
from kai_es.binder.reservations import Reservations
from kai_es.events.requests import BindRequested
from kai_es.kube import sharing
from kai_es.kube.labels import GPU_MEMORY_LABEL
from kai_es.kube.sharing import ConfigMapNames, FractionContainer, SharingError
from kai_es.ports.cluster import Resource
from kai_es.ports.errors import AnswerError, ConflictError, GoneError

CONFIG_MAPS: Final = Resource("ConfigMap", "v1", "configmaps")
RESERVATION: Final = "reservation"
FRACTION: Final = "Fraction"
TRIES: Final = 5  # to write a config map that somebody else writes, too
_DIGITS_MAX: Final = 18

Raw = dict[str, Any]


class Reserving:
    """Reserves the shared GPUs of a pod and labels it with them; first of all preparations.

    Before a GPU is used anew, alone or shared, reservations of its node that nobody needs go.
    """

    name = RESERVATION
    failed = "failed to reserve GPUs: "

    def __init__(self, reservations: Reservations) -> None:
        self._reservations = reservations

    def concerns(self, request: BindRequested) -> bool:
        """See `Preparation.concerns`."""
        if request.gpu_groups or request.received == FRACTION:
            return True
        return request.gpu_count > 0 and self._reservations.may_have(request.node)

    async def prepare(self, order: Order) -> None:
        """See `Preparation.prepare`."""
        request = order.request
        if not request.gpu_groups:
            if request.received == FRACTION:
                text = "no SelectedGPUGroups for fractional pod: invalid binding request"
                raise PreparationError("invalid", text)
            await self._reservations.clear(order)
            return
        self._reservations.check_app(request.reservation_app)
        order.gpu_ids = await self._devices(order)
        labels = sharing.group_labels(request.gpu_groups)
        old = order.live["metadata"].get("labels") or {}
        changes: dict[str, str | None] = {k: v for k, v in labels.items() if old.get(k) != v}
        changes |= {k: None for k in old if sharing.is_group_label(k) and k not in labels}
        if changes:
            await order.patch_pod({"metadata": {"labels": changes}})

    async def _devices(self, order: Order) -> tuple[str, ...]:
        """GPUs of all groups; pods of all are made before the first is waited for."""
        found, waiting = [], None
        for group in order.request.gpu_groups:
            try:
                found.append(await self._reservations.device(order, group))
            except NotReadyError as exc:
                waiting = waiting or exc
            except (PreparationError, AnswerError) as exc:
                raise self._failure(order, group, exc) from exc
        if waiting is not None:
            raise waiting
        return tuple(found)

    def _failure(
        self, order: Order, group: str, exc: PreparationError | AnswerError
    ) -> PreparationError:
        if isinstance(exc, PreparationError):
            code, status, reason = exc.code, exc.answer.status, exc.answer.reason
            message = exc.answer.message
        else:
            code, status, reason, message = RESERVATION, exc.status, exc.reason, exc.message
        text = f"failed to reserve GPUs for pod {order.name} in gpu group {group}: {message}"
        return PreparationError(code, text, status=status, reason=reason)

    async def undo(self, order: Order) -> None:
        """See `Preparation.undo`.

        The pod's labels go in the write that closes it, a reservation pod once no open request
        names its group (`Reservations.closed`).
        """


class SharedGpus:
    """Writes into the config maps of a pod which GPUs it may see, and how much of each.

    cdi: devices are named as the container device interface does.
    """

    name = SHARING
    failed = of_plugin(SHARING)

    def __init__(self, *, cdi: bool) -> None:
        self._cdi = cdi

    def concerns(self, request: BindRequested) -> bool:
        """See `Preparation.concerns`."""
        return request.received == FRACTION

    async def prepare(self, order: Order) -> None:
        """See `Preparation.prepare`."""
        container, names = _names(order)
        portion = sharing.portion_text(order.request.gpu_portion)
        devices = {sharing.VISIBLE_DEVICES: sharing.devices_text(order.gpu_ids, cdi=self._cdi)}
        capabilities = {sharing.NUM_OF_GPUS: portion, sharing.PORTION: portion}
        if sharing.reads_visible_devices(container):
            await _write(order, names.capabilities, capabilities | devices)
            await _write(order, names.direct_env, {})
        else:
            await _write(order, names.capabilities, capabilities)
            await _write(order, names.direct_env, devices)

    async def undo(self, order: Order) -> None:
        """See `Preparation.undo`; once the pod is gone its config maps go with it."""
        if order.pod is None:
            return
        try:
            _, names = _names(order)
        except PreparationError:
            return
        for name in names:
            await _remove(order, name)


class MemoryLimit:
    """Writes beside them how much memory of each GPU a pod may take."""

    name = MEMORY_LIMIT
    failed = of_plugin(MEMORY_LIMIT)

    def concerns(self, request: BindRequested) -> bool:
        """See `Preparation.concerns`."""
        return request.received == FRACTION

    async def prepare(self, order: Order) -> None:
        """See `Preparation.prepare`; without a limit to tell it does nothing."""
        node = await order.nodes.node(order.request.node)
        limit_mib = _limit_mib(node.labels if node else {}, order.request.gpu_portion)
        if limit_mib:
            _, names = _names(order)
            await _write(order, names.capabilities, {sharing.MEMORY_LIMIT: f"{limit_mib}m"})

    async def undo(self, order: Order) -> None:
        """See `Preparation.undo`: it goes with the config map."""


def _limit_mib(labels: Mapping[str, str], portion: int) -> int:
    """Share of the memory of a node's GPUs; 0 = not known."""
    text = labels.get(GPU_MEMORY_LABEL, "")
    if not (text.isascii() and text.isdigit() and len(text) <= _DIGITS_MAX):
        return 0
    return math.trunc(float(int(text)) * (portion / 100))


def _names(order: Order) -> tuple[FractionContainer, ConfigMapNames]:
    """The pod's container and its config maps.

    Raises:
        PreparationError: it has none.
    """
    try:
        container = sharing.fraction_container(order.live)
        return container, sharing.config_map_names(order.live, container)
    except SharingError as exc:
        text = f"failed to create capabilities configmap: {exc}"
        raise PreparationError(SHARING, text) from exc


async def _write(order: Order, name: str, data: Mapping[str, str]) -> None:
    """Make the config map with `data`, or put it into the pod's own one.

    One of another owner is the pod's from now on, and nothing of its data stays.
    """
    cluster, space = order.cluster, order.request.namespace
    owner = {
        "apiVersion": "v1",
        "kind": "Pod",
        "name": order.request.pod,
        "uid": order.request.pod_uid,
    }
    body: Raw = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": space, "ownerReferences": [owner]},
        "data": dict(data),
    }
    for attempt in range(TRIES):
        try:
            await cluster.create(CONFIG_MAPS, space, body)
            return
        except ConflictError as exc:
            if exc.reason != "AlreadyExists" or attempt == TRIES - 1:
                raise
        try:
            await _overwrite(order, name, body)
            return
        except (ConflictError, GoneError):
            continue  # made anew or changed meanwhile


async def _overwrite(order: Order, name: str, body: Raw) -> None:
    cluster, space = order.cluster, order.request.namespace
    live = await cluster.get(CONFIG_MAPS, space, name)
    meta, data = live["metadata"], dict(body["data"])
    if _owners(live) != _owners(body):
        ours = {**meta, "ownerReferences": body["metadata"]["ownerReferences"]}
        await cluster.replace(CONFIG_MAPS, space, name, {**live, "metadata": ours, "data": data})
        return
    old = live.get("data") or {}
    if sharing.OLD_VISIBLE_DEVICES in old and sharing.VISIBLE_DEVICES in data:
        data[sharing.OLD_VISIBLE_DEVICES] = data[sharing.VISIBLE_DEVICES]
    changes = {key: text for key, text in data.items() if old.get(key) != text}
    if changes:
        await cluster.patch(
            CONFIG_MAPS,
            space,
            name,
            {"data": changes},
            uid=meta["uid"],
            rv=int(meta["resourceVersion"]),
        )


async def _remove(order: Order, name: str) -> None:
    """Delete a config map of the pod; one that is not its own stays."""
    cluster, space = order.cluster, order.request.namespace
    for _ in range(TRIES):
        try:
            live = await cluster.get(CONFIG_MAPS, space, name)
            if order.request.pod_uid not in {uid for *_, uid in _owners(live)}:
                return
            meta = live["metadata"]
            await cluster.delete(
                CONFIG_MAPS, space, name, uid=meta["uid"], rv=int(meta["resourceVersion"])
            )
            return
        except GoneError:
            return
        except ConflictError:
            continue


def _owners(obj: Raw) -> set[tuple[str, str, str, str]]:
    owners = obj["metadata"].get("ownerReferences") or ()
    return {(o["apiVersion"], o["kind"], o["name"], o["uid"]) for o in owners}
