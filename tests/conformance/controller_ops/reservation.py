"""Reservation pods: which of them, and of their users, stay."""

from kai_es.binder.reservation import groups_on, holder, to_delete
from kai_es.kube.sharing import is_group_label


def _sync(given, groups_of):
    objects = given["clusterObjects"]
    pods = [holder(o, given["reservationNamespace"]) for o in objects if o["kind"] == "Pod"]
    open_ = {
        group
        for o in objects
        if o["kind"] == "BindRequest" and o["status"].get("phase") not in ("Succeeded", "Failed")
        for group in o["spec"]["selectedGPUGroups"]
    }
    for group in groups_of(pods):
        doomed = to_delete(group, pods, is_open=group in open_)
        gone = {*doomed.reservations, *doomed.users}
        pods = [pod for pod in pods if pod not in gone]
    found = sorted((pod.namespace, pod.name) for pod in pods)
    return {"pods": [{"namespace": space, "name": name} for space, name in found]}


def _group(given, flags):
    return _sync(given, lambda _: (given["target"],))


def _node(given, flags):
    return _sync(given, lambda pods: groups_on(given["target"], pods))


def _all(given, flags):
    return _sync(given, lambda pods: sorted({group for pod in pods for group in pod.groups}))


def _labels(given, flags):
    labels = given["pod"]["metadata"].get("labels") or {}
    return {"labels": {key: text for key, text in labels.items() if not is_group_label(key)}}


OPS = {
    "syncGpuGroup": _group,
    "syncNode": _node,
    "syncAll": _all,
    "removeGpuGroupLabels": _labels,
}
