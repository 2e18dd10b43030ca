"""What controllers do that no test has: pods of jobs, pod groups of pods."""

import copy
from collections.abc import Iterator

from kai_es.kube.labels import GROUP_STAMP, POD_GROUP_ANNOTATION, QUEUE_LABEL, SCHEDULER_NAME
from tests.simulation.api_client import GROUPS, PODS, Api

PATHS = {
    "Pod": PODS,
    "PodGroup": GROUPS,
    "Job": "/apis/batch/v1/namespaces/{ns}/jobs",
    "Queue": "/apis/scheduling.run.ai/v2/queues",
    "PriorityClass": "/apis/scheduling.k8s.io/v1/priorityclasses",
    "Topology": "/apis/kai.scheduler/v1alpha1/topologies",
    "SchedulingShard": "/apis/kai.scheduler/v1/schedulingshards",
    "Config": "/apis/kai.scheduler/v1/configs",
}
BATCH_MINIMUM = "kai.scheduler/batch-min-member"
DELAY = "kai.scheduler/preemption-delay"
GRACE = "kai.scheduler/staleness-grace-period"


def apply(api: Api, objects: list[dict]) -> list[str]:
    """Create objects in the test's namespace, with the pods of jobs and the groups of pods.

    Returns:
        Names of the pods that are ours to schedule.
    """
    made = [api.ok("POST", PATHS[obj["kind"]], obj) for obj in objects if obj["kind"] != "Pod"]
    jobs = [obj for obj in made if obj.get("kind") == "Job"]
    pods = [obj for obj in objects if obj["kind"] == "Pod"]
    pods += [pod for job in jobs for pod in pods_of_job(job)]
    grouped: dict[str, dict] = {}
    for pod in pods:
        if pod["spec"].get("schedulerName") == SCHEDULER_NAME:
            _into_group(api, pod, jobs, grouped)
        api.ok("POST", PODS, pod)
    return [p["metadata"]["name"] for p in pods]


def pods_of_job(job: dict) -> Iterator[dict]:
    """What the job controller would create at first."""
    owner = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "name": job["metadata"]["name"],
        "uid": job["metadata"]["uid"],
        "controller": True,
    }
    for n in range(job["spec"].get("parallelism", 1)):
        pod = copy.deepcopy(job["spec"]["template"])
        pod["kind"] = "Pod"
        pod["metadata"] = {
            **pod.get("metadata", {}),
            "name": f"{owner['name']}-{n}",
            "ownerReferences": [owner],
        }
        yield pod


def _into_group(api: Api, pod: dict, jobs: list[dict], grouped: dict[str, dict]) -> None:
    """Do what the pod grouper would: a group per top owner, named in the pod."""
    meta = pod["metadata"]
    annotations = meta.setdefault("annotations", {})
    if POD_GROUP_ANNOTATION in annotations:
        return
    owner = next((r["name"] for r in meta.get("ownerReferences", ())), meta["name"])
    job = next((j["metadata"] for j in jobs if j["metadata"]["name"] == owner), meta)
    if owner not in grouped:
        grouped[owner] = api.ok("POST", GROUPS, _group(owner, pod, job))
    made = grouped[owner]["metadata"]
    annotations[POD_GROUP_ANNOTATION] = made["name"]
    annotations[GROUP_STAMP] = f"{made['uid']}/{made['generation']}"


def _group(owner: str, pod: dict, workload: dict) -> dict:
    labels = {**pod["metadata"].get("labels", {}), **workload.get("labels", {})}
    annotations = {**pod["metadata"]["annotations"], **workload.get("annotations", {})}
    spec = {
        "queue": labels.get(QUEUE_LABEL, "default-queue"),
        "minMember": int(annotations.get(BATCH_MINIMUM, 1)),
        "priorityClassName": labels.get("priorityClassName")
        or pod["spec"].get("priorityClassName", "train"),
    }
    if DELAY in annotations:
        spec["preemptionDelay"] = annotations[DELAY]
    if GRACE in annotations:
        spec["stalenessGracePeriod"] = annotations[GRACE]
    return {
        "apiVersion": "scheduling.run.ai/v2alpha2",
        "kind": "PodGroup",
        "metadata": {"name": f"pg-{owner}", "labels": {QUEUE_LABEL: spec["queue"]}},
        "spec": spec,
    }
