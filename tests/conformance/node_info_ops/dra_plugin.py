"""Cases of claims on devices: the first check, and claims for extended resources."""

from typing import Any

from kai_es.kube.devices import DeviceClass
from kai_es.kube.labels import GPU_MICRO
from kai_es.kube.objects import PodGroup
from kai_es.scheduler.dra.extended import served, synthetic_claim
from kai_es.scheduler.flags import Flags
from kai_es.scheduler.reasons.render import general_text
from tests.conformance.node_info_ops import Input
from tests.conformance.node_info_ops.objects import claim_of, pod_of
from tests.conformance.node_info_ops.stage import Stage, node_of_state

NODE = node_of_state({"allocatable": {"gpus": GPU_MICRO}, "name": "node"})


def pre_check(case: Input, flags: Flags) -> dict[str, Any]:
    pod = pod_of(case["pod"])
    group = PodGroup(
        uid="job", namespace=pod.namespace, name="job", queue=case["job"]["queue"], min_member=1
    )
    stage = Stage(
        [NODE],
        pods=[pod],
        claims=[claim_of(raw) for raw in case["claims"]],
        classes=[DeviceClass(uid=name, name=name) for name in case["deviceClasses"]],
        group=group,
        dra_is_served=case["dynamicResources"],
        flags=flags,
    )
    task, ext = stage.tasks[0], stage.session.ext
    reasons = [reason for check in ext.pre_task if (reason := check(task)) is not None]
    claim = next((reason for reason in reasons if reason.code == "claim"), None)
    if claim is None:
        return {"passes": True}
    text = general_text(claim, f"{pod.namespace}/{pod.name}")
    return {"passes": False, "error": text}


def extended(case: Input, flags: Flags) -> dict[str, Any]:
    containers = pod_of(case["pod"]).spec.extended
    classes, offered = case["deviceClassByResource"], case["nodeAllocatable"]

    def offers(name: str) -> bool:
        return bool(float(offered.get(name, 0)))

    amounts = served(containers, classes)
    claim = synthetic_claim(containers, classes, offers=offers)
    return {
        "needsClaim": bool(amounts),
        "amounts": {name: count for name, count in amounts.items() if not offers(name)},
        "requests": [
            {"name": one.name, "deviceClass": one.device_class, "count": one.count}
            for one in claim.requests
        ],
        "mappings": [
            {"container": one.container, "resource": one.resource, "request": one.request}
            for one in claim.mappings
        ],
    }


OPS = {"claimsPreCheck": pre_check, "extendedResourceRequests": extended}
