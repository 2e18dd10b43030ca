"""Statuses on a real API server: its status subresources, patches by type, events."""

from kai_es.kube.labels import AS_OF, GROUP_STAMP, MIRROR, POD_GROUP_ANNOTATION
from tests.cluster.parts import CIRCLE, a_queue, furnish, running
from tests.simulation.api_client import GROUPS, PODS, Api, a_group, a_pod

GPU = "nvidia.com/gpu"
EVENTS = "/api/v1/namespaces/{ns}/events"
BIND_REQUESTS = "/apis/scheduling.run.ai/v1alpha2/namespaces/{ns}/bindrequests"


def job(api: Api, name: str, gpus: int, **spec: str) -> None:
    """A pod group and its pod."""
    group = a_group(name)
    group["spec"] |= spec
    meta = api.ok("POST", GROUPS, group)["metadata"]
    pod = a_pod(f"{name}-0", schedulerName="kai-scheduler")
    pod["metadata"]["annotations"] = {
        POD_GROUP_ANNOTATION: name,
        GROUP_STAMP: f"{meta['uid']}/{meta['generation']}",
    }
    pod["spec"]["containers"][0]["resources"]["limits"][GPU] = str(gpus)
    api.ok("POST", PODS, pod)


def conditions(obj: dict) -> dict[str, dict]:
    return {one["type"]: one for one in obj.get("status", {}).get("conditions", ())}


def resources(api: Api, name: str) -> dict:
    status = api.ok("GET", f"{GROUPS}/{name}").get("status", {})
    return status.get("resourcesStatus", {})


def waits(api: Api, name: str) -> list[dict]:
    """Its scheduling conditions."""
    return api.ok("GET", f"{GROUPS}/{name}").get("status", {}).get("schedulingConditions", [])


def unschedulable(api: Api, name: str) -> bool:
    scheduled = conditions(api.ok("GET", f"{PODS}/{name}")).get("PodScheduled", {})
    return (scheduled.get("status"), scheduled.get("reason")) == ("False", "Unschedulable")


def reasons(api: Api) -> set[str]:
    return {event["reason"] for event in api.ok("GET", EVENTS)["items"]}


def mirrored(api: Api, name: str) -> dict:
    return api.ok("GET", f"{BIND_REQUESTS}/{name}")


async def test_statuses_on_a_real_server(cluster, kubeconfig, kubelet, tmp_path):
    furnish(cluster, 1)
    small = a_queue("small", parent="department")
    small["spec"]["resources"]["gpu"] = {"quota": 1, "limit": 1, "overQuotaWeight": 1}
    cluster.ok("POST", "/apis/scheduling.run.ai/v2/queues", small)
    names = (*CIRCLE, "status")
    async with running(
        kubeconfig, tmp_path / "instance", names, mirror_bind_requests=True
    ) as parts:
        job(cluster, "runs", 2)
        job(cluster, "waits", 9)
        job(cluster, "limited", 2, queue="small")
        held = {"cpu": "1", GPU: "2"}
        await parts.until(lambda: resources(cluster, "runs").get("allocated") == held)
        await parts.until(lambda: waits(cluster, "waits") and waits(cluster, "limited"))
        (reason,) = waits(cluster, "limited")[0]["reasons"]
        assert reason["details"]["queueDetails"]["queueResourceLimits"][GPU] == "1"
        await parts.until(lambda: "PodBound" in conditions(cluster.ok("GET", f"{PODS}/runs-0")))
        runs = cluster.ok("GET", f"{PODS}/runs-0")
        assert conditions(runs)["PodBound"]["status"] == "True"
        assert conditions(runs)["PodScheduled"]["status"] == "True"
        assert runs["metadata"]["annotations"][AS_OF].isdigit()
        await parts.until(lambda: unschedulable(cluster, "waits-0"))
        group = cluster.ok("GET", f"{GROUPS}/runs")
        assert conditions(group)[AS_OF]["message"].isdigit()
        for name in ("team-a", "department"):
            path = f"/apis/scheduling.run.ai/v2/queues/{name}"
            await parts.until(
                lambda path=path: cluster.ok("GET", path).get("status", {}).get("allocated") == held
            )
        await parts.until(lambda: {"Scheduled", "Bound", "Unschedulable"} <= reasons(cluster))
        await parts.until(lambda: mirrored(cluster, "runs-0").get("status"))
        shown = mirrored(cluster, "runs-0")
        assert shown["metadata"]["labels"][MIRROR] == "true"
        assert shown["status"] == {"phase": "Succeeded"}
