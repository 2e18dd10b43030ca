"""Shared GPUs on a real API server: reserved, told to the pods, freed when they have ended."""

from kai_es.kube.labels import (
    GPU_FRACTION,
    GPU_FRACTION_DEVICES,
    GPU_INDEX,
    GROUP_STAMP,
    POD_GROUP_ANNOTATION,
    RUN_SECONDS,
)
from kai_es.kube.parse_pod import parse_pod
from kai_es.kube.sharing import prepared
from tests.cluster.identities import install_roles
from tests.cluster.parts import furnish, running
from tests.simulation.api_client import GROUPS, PODS, Api, a_group, a_pod

RESERVATIONS = "/api/v1/namespaces/kai-resource-reservation/pods"
MAPS = "/api/v1/namespaces/{ns}/configmaps"


def share(api: Api, name: str, **annotations: str) -> None:
    """A pod that shares GPUs, as admission prepares it, with its group."""
    group = a_group(name)
    group["spec"]["minMember"] = 1
    meta = api.ok("POST", GROUPS, group)["metadata"]
    pod = a_pod(name, schedulerName="kai-scheduler")
    pod["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "1"}}
    pod["metadata"] |= {
        "namespace": api.namespace,
        "annotations": {
            POD_GROUP_ANNOTATION: name,
            GROUP_STAMP: f"{meta['uid']}/{meta['generation']}",
            **annotations,
        },
    }
    api.ok("POST", PODS, prepared(pod, f"{name}-maps"))


def phase(api: Api, name: str) -> str:
    return api.ok("GET", f"{PODS}/{name}")["status"]["phase"]


def reserved(api: Api) -> dict[str, str]:
    """GPU by group."""
    return {
        pod["metadata"]["labels"]["runai-gpu-group"]: pod["metadata"]["annotations"].get(GPU_INDEX)
        for pod in api.ok("GET", RESERVATIONS)["items"]
    }


async def test_devices_are_reserved_told_and_freed(cluster, kubeconfig, kubelet, tmp_path):
    install_roles(cluster)
    furnish(cluster, 1, gpus=2)
    async with running(kubeconfig, tmp_path / "instance") as parts:
        share(cluster, "half", **{GPU_FRACTION: "0.5"})
        share(cluster, "both", **{GPU_FRACTION: "0.5", GPU_FRACTION_DEVICES: "2"})
        await parts.until(lambda: {phase(cluster, n) for n in ("half", "both")} == {"Running"})
        gpus = reserved(cluster)
        assert len(set(gpus.values())) == 2
        for name, n_groups in (("half", 1), ("both", 2)):
            groups = parse_pod(cluster.ok("GET", f"{PODS}/{name}")).gpu_groups
            assert len(groups) == n_groups
            told = cluster.ok("GET", f"{MAPS}/{name}-maps-0")["data"]
            devices = sorted(told["NVIDIA_VISIBLE_DEVICES"].split(","))
            assert devices == sorted(gpus[group] for group in groups)
            assert told["GPU_PORTION"] == "0.50"
        cluster.ok("DELETE", f"{PODS}/both")
        await parts.until(lambda: len(reserved(cluster)) == 1)
        assert phase(cluster, "half") == "Running"
        share(cluster, "short", **{GPU_FRACTION: "0.5", RUN_SECONDS: "0.5"})
        await parts.until(lambda: phase(cluster, "short") == "Succeeded")
        cluster.ok("DELETE", f"{PODS}/half")
        await parts.until(lambda: not reserved(cluster))
