"""The status writer with the whole circle around it, on a simulated cluster in virtual time."""

import asyncio
from collections import Counter

from kai_es.kube.labels import AS_OF, GROUP_STAMP, LAST_START, MIRROR
from kai_es.simulate.faults import Fault
from kai_es.simulate.kinds import BIND_REQUEST, KINDS, NODE, POD, POD_GROUP, PRIORITY_CLASS, QUEUE
from kai_es.simulate.workload import pod, pod_group
from tests.simulation.virtual import in_virtual_time

EVENT = next(kind for kind in KINDS if kind.kind == "Event" and not kind.group)
GPU = "nvidia.com/gpu"


async def furnish(circle, *, nodes=2, gpus=8):
    for n in range(nodes):
        await circle.create(NODE, a_node(f"node-{n}", gpus))
    for name, value in (("train", 50), ("high", 80), ("build", 100)):
        await circle.create(PRIORITY_CLASS, {"metadata": {"name": name}, "value": value})
    for name, parent in (("top", ""), ("team", "top")):
        await circle.create(QUEUE, a_queue(name, parent))


def a_node(name, gpus):
    has = {"cpu": "64", "memory": "512Gi", "pods": "110", GPU: str(gpus)}
    ready = {"type": "Ready", "status": "True", "reason": "KubeletReady"}
    return {
        "metadata": {"name": name, "labels": {"nvidia.com/gpu.memory": "40000"}},
        "status": {"capacity": has, "allocatable": has, "conditions": [ready]},
    }


def a_queue(name, parent=""):
    whole = {"quota": 0, "limit": -1, "overQuotaWeight": 1}
    spec = {"resources": {"cpu": whole, "memory": whole, "gpu": whole}}
    if parent:
        spec["parentQueue"] = parent
    return {
        "apiVersion": "scheduling.run.ai/v2",
        "kind": "Queue",
        "metadata": {"name": name},
        "spec": spec,
    }


async def submit(circle, name, *, pods=1, gpus=1, min_member=None, **group):
    """A job; its pods ask for one CPU and GPUs."""
    group = pod_group(
        name,
        namespace="ns",
        queue_name=group.pop("queue", "team"),
        min_member=min_member or pods,
        priority_class=group.pop("priority_class", "train"),
    )
    made = await circle.create(POD_GROUP, group)
    stamp = f"{made['metadata']['uid']}/{made['metadata']['generation']}"
    requests = {"cpu": "1", "memory": "1Gi", GPU: str(gpus)}
    for n in range(pods):
        one = pod(f"{name}-{n}", group, requests, run_s=3600)
        one["metadata"]["annotations"][GROUP_STAMP] = stamp
        await circle.create(POD, one)


def resources(circle, name):
    return circle.live(POD_GROUP)[name].get("status", {}).get("resourcesStatus", {})


def condition(obj, kind):
    found = [c for c in obj.get("status", {}).get("conditions", ()) if c["type"] == kind]
    return found[0] if found else None


def is_bound(circle, n):
    return sum("nodeName" in one["spec"] for one in circle.live(POD).values()) >= n


def events(circle):
    return Counter((e["involvedObject"]["name"], e["reason"]) for e in circle.live(EVENT).values())


def test_statuses_of_a_job_that_runs():
    async def life(circle):
        await furnish(circle)
        circle.start()
        await submit(circle, "job", pods=2, gpus=2)
        await circle.until(lambda: is_bound(circle, 2))
        await asyncio.sleep(15)
        held = {"cpu": "2", "memory": "2Gi", GPU: "4"}
        assert resources(circle, "job") == {"requested": held, "allocated": held}
        for name in ("team", "top"):
            status = circle.live(QUEUE)[name]["status"]
            assert status["allocated"] == status["requested"] == held
            assert "allocatedNonPreemptible" not in status
        assert circle.live(QUEUE)["top"]["status"]["childQueues"] == ["team"]
        one = circle.live(POD)["job-0"]
        assert condition(one, "PodBound")["status"] == "True"
        assert condition(one, "PodScheduled")["status"] == "True"
        assert condition(one, "PodBound")["message"].startswith("Pod bound successfully to node")
        assert int(one["metadata"]["annotations"][AS_OF]) > 0
        assert LAST_START not in circle.live(POD_GROUP)["job"]["metadata"].get("annotations", {})
        await asyncio.sleep(30)
        group = circle.live(POD_GROUP)["job"]
        assert LAST_START in group["metadata"]["annotations"]
        assert condition(group, AS_OF)["message"].isdigit()
        told = events(circle)
        assert told["job-0", "Scheduled"] == told["job-0", "Bound"] == 1
        writes = Counter((call.verb, call.resource, call.status) for call in circle.writes())
        assert not [key for key in writes if key[2] >= 300], writes
        per_group = [c for c in circle.writes() if c.resource == "podgroups.scheduling.run.ai"]
        assert len(per_group) == 2, per_group

    in_virtual_time(life)


def test_a_job_that_waits_is_told_why_and_a_placed_one_no_more():
    async def life(circle):
        await furnish(circle, nodes=1, gpus=2)
        circle.start()
        await submit(circle, "big", pods=2, gpus=2)
        await asyncio.sleep(20)
        group = circle.live(POD_GROUP)["big"]
        (waits,) = group["status"]["schedulingConditions"]
        assert waits["type"] == "UnschedulableOnNodePool"
        assert (waits["nodePool"], waits["transitionID"]) == ("default", "1")
        assert "Resources were found for 1 pods while 2 are required" in waits["message"]
        assert waits["reasons"][0]["reason"] == "PodSchedulingErrors"
        said = condition(circle.live(POD)["big-0"], "PodScheduled")
        assert (said["status"], said["reason"]) == ("False", "Unschedulable")
        told = events(circle)
        assert told["big", "Unschedulable"] >= 1
        assert told["big-1", "Unschedulable"] >= 1
        await circle.create(NODE, a_node("more", 8))
        await circle.until(lambda: is_bound(circle, 2))
        await asyncio.sleep(15)
        assert "schedulingConditions" not in circle.live(POD_GROUP)["big"]["status"]

    in_virtual_time(life)


def test_a_job_that_is_above_a_limit_is_shown_the_numbers_of_the_queue():
    async def life(circle):
        await furnish(circle)
        small = a_queue("small", "top")
        small["spec"]["resources"]["gpu"] = {"quota": 1, "limit": 3, "overQuotaWeight": 1}
        await circle.create(QUEUE, small)
        circle.start()
        await submit(circle, "runs", gpus=2, queue="small")
        await circle.until(lambda: is_bound(circle, 1))
        await submit(circle, "keeps", pods=2, gpus=1, queue="small", priority_class="build")
        await submit(circle, "many", pods=4, gpus=1, min_member=2, queue="small")
        await asyncio.sleep(20)
        details = {}
        for name in ("keeps", "many"):
            (waits,) = circle.live(POD_GROUP)[name]["status"]["schedulingConditions"]
            (reason,) = waits["reasons"]
            assert reason["reason"] == "OverLimit"
            details[name] = reason["details"]["queueDetails"]
        two = {"cpu": "2000m", "memory": str(2 * 2**30), GPU: "2"}
        nothing = {"cpu": "0m", "memory": "0", GPU: "0"}
        assert details["many"] == {
            "name": "small",
            "queueRequestedResources": {"cpu": "7000m", "memory": str(7 * 2**30), GPU: "8"},
            "queueDeservedResources": {"cpu": "0m", "memory": "0", GPU: "1"},
            "queueAllocatedResources": {"cpu": "1000m", "memory": str(2**30), GPU: "2"},
            "queueAllocatedNonPreemptibleResources": nothing,
            "queueResourceLimits": {"cpu": "-1m", "memory": "-1", GPU: "3"},
            "podGroupRequestedResources": two,
            "podGroupRequestedNonPreemptibleResources": nothing,
        }
        assert details["keeps"]["podGroupRequestedNonPreemptibleResources"] == two
        n_writes = len(circle.writes())
        await submit(circle, "later", gpus=1, queue="team")
        await circle.until(lambda: is_bound(circle, 2))
        await asyncio.sleep(30)
        again = [c for c in circle.writes()[n_writes:] if c.name in details]
        assert not again, "numbers that change are no news"

    in_virtual_time(life)


def test_a_gang_without_its_pods_is_not_ready_and_has_no_condition():
    async def life(circle):
        await furnish(circle)
        circle.start()
        await submit(circle, "half", pods=1, min_member=3)
        await asyncio.sleep(15)
        assert "schedulingConditions" not in circle.live(POD_GROUP)["half"].get("status", {})
        assert events(circle)["half", "NotReady"] == 1
        assert not condition(circle.live(POD)["half-0"], "PodScheduled")

    in_virtual_time(life)


def test_a_pod_that_names_a_sub_group_that_is_not_there_is_told_so():
    """Nobody else of its group waits, so that no cycle says anything of it."""

    async def life(circle):
        await furnish(circle)
        await submit(circle, "job", pods=2, min_member=1)
        label = {"metadata": {"labels": {"kai.scheduler/subgroup-name": "nose"}}}
        await circle.patch(POD, "job-1", label, namespace="ns")
        circle.start()
        await circle.until(lambda: is_bound(circle, 1))
        await asyncio.sleep(15)
        lost = condition(circle.live(POD)["job-1"], "PodScheduled")
        assert (lost["status"], lost["reason"]) == ("False", "Unschedulable")
        words = 'Pod references subgroup "nose", which does not exist in PodGroup ns/job'
        assert lost["message"] == words
        assert events(circle)["job-1", "Unschedulable"] == 1
        subs = [{"name": "nose", "minMember": 1}]
        await circle.patch(POD_GROUP, "job", {"spec": {"subGroups": subs}}, namespace="ns")
        await circle.until(lambda: is_bound(circle, 2))

    in_virtual_time(life)


def n_cycles(circle):
    return circle.view.world.reigns.last_cycle("default")


def test_a_thousand_status_writes_start_no_cycle():
    """Also: what waits is written once, and nothing is written while nothing happens."""

    async def life(circle):
        await furnish(circle, nodes=1, gpus=1)
        for n in range(1_000):
            await submit(circle, f"job-{n}", gpus=2)
        circle.start()
        await circle.until(lambda: n_cycles(circle) > 0)
        await asyncio.sleep(2)
        before = n_cycles(circle)
        groups = circle.live(POD_GROUP)
        await circle.until(lambda: len(_conditioned(circle)) == len(groups), seconds=300)
        assert n_cycles(circle) == before
        await asyncio.sleep(30)
        done = len(circle.writes())
        await asyncio.sleep(60)
        assert n_cycles(circle) == before
        writes = [c for c in circle.writes()[done:] if c.resource != "events"]
        assert not writes
        kinds = Counter(call.resource for call in circle.writes())
        assert kinds["podgroups.scheduling.run.ai"] <= 2 * len(groups)
        assert kinds["pods"] == len(groups)

    in_virtual_time(life, kubelet=False)


def _conditioned(circle):
    return [g for g in circle.live(POD_GROUP).values() if g.get("status", {}).get(CONDITIONS)]


CONDITIONS = "schedulingConditions"


def test_a_standby_takes_over_and_repeats_nothing():
    async def life(circle):
        await furnish(circle)
        circle.start()
        circle.start_status("status-b")
        await submit(circle, "one")
        await circle.until(lambda: is_bound(circle, 1))
        await asyncio.sleep(45)
        n_before = len(circle.writes())
        assert not circle.writes("status-b")
        await circle.kill("status-a")
        await asyncio.sleep(40)
        repeated = circle.writes()[n_before:]
        assert {(c.resource, c.status) for c in repeated} <= {("events", 409)}
        await submit(circle, "two")
        await circle.until(lambda: is_bound(circle, 2))
        await asyncio.sleep(15)
        assert resources(circle, "two")["allocated"][GPU] == "1"
        assert {c.client for c in circle.writes()[n_before:]} == {"status-b"}

    in_virtual_time(life)


def test_what_somebody_else_writes_into_a_status_is_mended():
    async def life(circle):
        await furnish(circle)
        circle.start()
        await submit(circle, "job")
        await circle.until(lambda: is_bound(circle, 1))
        await asyncio.sleep(15)
        wrong = {"status": {"resourcesStatus": {"allocated": {GPU: "9", "foreign": "1"}}}}
        options = {"namespace": "ns", "subresource": "status"}
        await circle.patch(POD_GROUP, "job", wrong, **options)
        other = {"type": "Other", "status": "True"}
        await circle.patch(QUEUE, "team", {"status": {"requested": None}}, subresource="status")
        await asyncio.sleep(10)
        assert resources(circle, "job")["allocated"] == {"cpu": "1", "memory": "1Gi", GPU: "1"}
        assert circle.live(QUEUE)["team"]["status"]["requested"][GPU] == "1"
        await circle.patch(POD_GROUP, "job", {"status": {"conditions": [other]}}, **options)
        await circle.patch(POD_GROUP, "job", wrong, **options)
        await asyncio.sleep(10)
        group = circle.live(POD_GROUP)["job"]
        assert condition(group, "Other")
        assert condition(group, AS_OF)

    in_virtual_time(life)


def test_a_bind_that_fails_is_told_and_then_the_one_that_works():
    async def life(circle):
        await furnish(circle)
        circle.api.faults.rules = [
            Fault(action="error", code=422, reason="Invalid", subresource="binding")
        ]
        circle.start()
        await submit(circle, "job")
        told = ("job-0", "BindingError")
        await circle.until(lambda: events(circle)[told])
        await asyncio.sleep(4)
        said = condition(circle.live(POD)["job-0"], "PodBound")
        assert (said["status"], said["reason"]) == ("False", "BindingError")
        assert said["message"].startswith("Failed to bind pod ns/job-0 to node node-")
        circle.api.faults.rules = []
        await circle.until(lambda: is_bound(circle, 1))
        await asyncio.sleep(10)
        assert condition(circle.live(POD)["job-0"], "PodBound")["status"] == "True"

    in_virtual_time(life)


def test_a_victim_s_group_hears_who_took_its_place():
    async def life(circle):
        await furnish(circle, nodes=1, gpus=2)
        circle.start()
        await submit(circle, "low", gpus=2)
        await circle.until(lambda: is_bound(circle, 1))
        await asyncio.sleep(5)
        await submit(circle, "high", gpus=2, priority_class="high")
        evicted = ("low", "Evict")
        await circle.until(lambda: events(circle)[evicted])
        (event,) = [e for e in circle.live(EVENT).values() if e["reason"] == "Evict"]
        assert event["message"] == (
            "Pod ns/low-0 was preempted by higher priority workload ns/high"
        )
        assert event["metadata"]["annotations"] == {
            "num-evicted-pods": "1",
            "evictor-action-type": "preempt",
            "evictor-pod-group-name": "high",
            "evictor-pod-group-namespace": "ns",
        }

    in_virtual_time(life)


def test_bind_requests_are_shown_if_asked_for():
    async def life(circle):
        await furnish(circle)
        circle.start()
        await submit(circle, "job", gpus=2)
        await circle.until(lambda: is_bound(circle, 1))
        await asyncio.sleep(5)
        (shown,) = circle.live(BIND_REQUEST).values()
        one = circle.live(POD)["job-0"]
        assert shown["metadata"]["name"] == "job-0"
        assert shown["metadata"]["labels"][MIRROR] == "true"
        assert shown["metadata"]["labels"]["selected-node"] == one["spec"]["nodeName"]
        (owner,) = shown["metadata"]["ownerReferences"]
        assert owner["uid"] == one["metadata"]["uid"]
        assert shown["spec"] == {
            "podName": "job-0",
            "selectedNode": one["spec"]["nodeName"],
            "receivedResourceType": "Regular",
            "receivedGPU": {"count": 2, "portion": "1.00"},
        }
        assert shown["status"]["phase"] == "Succeeded"

    in_virtual_time(life, mirror=True)


def test_a_group_whose_binds_are_always_refused_lets_others_by_and_hears_why():
    """Field case 35: one GPU, and a webhook that never lets the first in order have it."""

    async def life(circle):
        await furnish(circle, nodes=1, gpus=1)
        text = 'admission webhook "policy.example.com" denied the request: no'
        circle.api.faults.rules = [
            Fault(action="error", code=403, subresource="binding", name="first-0", message=text)
        ]
        await submit(circle, "first")
        await submit(circle, "second")
        circle.start()
        await circle.until(lambda: is_bound(circle, 1))
        await asyncio.sleep(60)
        pods = circle.live(POD)
        assert "nodeName" in pods["second-0"]["spec"]
        assert "nodeName" not in pods["first-0"]["spec"]
        cycles = [
            circle.view.world.requests.of_pod(pods[name]["metadata"]["uid"])[-1].cycle
            for name in ("first-0", "second-0")
        ]
        assert 0 < cycles[1] - cycles[0] <= 3
        told = events(circle)
        assert (told["first-0", "BindingError"], told["first-0", "Bound"]) == (1, 0)
        said = condition(pods["first-0"], "PodBound")
        assert (said["status"], text in said["message"]) == ("False", True)
        group = circle.view.world.objects.live["PodGroup"]
        (first,) = [row for row in group.values() if row.obj.name == "first"]
        assert circle.view.world.reigns.reasons["default"][first.obj.uid].reasons

    in_virtual_time(life)


def late(resource, seconds):
    """The status writer's next write of a status is under way for long."""
    return Fault(
        action="delay",
        delay_ms=1000 * seconds,
        resource=resource,
        verb="patch",
        subresource="status",
        client="status",
        times=1,
    )


def test_a_late_word_that_a_pod_waits_is_not_taken_once_it_is_bound():
    """Race 14 of the reference's list (docs/races.md)."""

    async def life(circle):
        await furnish(circle, nodes=1, gpus=2)
        circle.api.faults.rules = [late("pods", 8)]
        circle.start()
        await submit(circle, "big", gpus=8)
        await circle.until(lambda: circle.api.faults.rules[0].acted)
        await circle.create(NODE, a_node("more", 8))
        await circle.until(lambda: is_bound(circle, 1))
        await asyncio.sleep(20)
        refused = [c for c in circle.writes() if (c.resource, c.status) == ("pods", 409)]
        assert refused
        assert condition(circle.live(POD)["big-0"], "PodScheduled")["status"] == "True"

    in_virtual_time(life)


def test_the_outcome_of_one_bind_request_is_not_written_into_another():
    """Race 6: the object was made anew by somebody while the write was under way."""

    async def life(circle):
        await furnish(circle)
        circle.api.faults.rules = [late("bindrequests.scheduling.run.ai", 5)]
        circle.start()
        await submit(circle, "job")
        await circle.until(lambda: circle.api.faults.rules[0].acted)
        (shown,) = circle.live(BIND_REQUEST).values()
        await circle.delete(BIND_REQUEST, "job-0", namespace="ns")
        meta = {"name": "job-0", "namespace": "ns"}
        kept = {key: shown[key] for key in ("apiVersion", "kind", "spec")}
        await circle.create(BIND_REQUEST, {"metadata": meta, **kept})
        await asyncio.sleep(20)
        (other,) = circle.live(BIND_REQUEST).values()
        assert "status" not in other
        assert MIRROR not in other["metadata"].get("labels", {})

    in_virtual_time(life, mirror=True)
