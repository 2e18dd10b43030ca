"""Texts of scheduler-core §11.2, §11.4, §12 and fairness §5, §6.5, word for word."""

import pytest

from kai_es.kube.conditions import waits_for_another_pool
from kai_es.kube.labels import GPU_MICRO, UNLIMITED
from kai_es.kube.objects import GpuRequest, PodGroup, SchedulingCondition
from kai_es.kube.times import duration_text, rfc3339
from kai_es.scheduler.fairness.vectors import Resource
from kai_es.scheduler.reasons import amounts, evictions, fit, quota, shortage
from kai_es.scheduler.reasons.fit import JobError, WaitingSet

GPU = GPU_MICRO


def test_over_limit():
    text = quota.over_limit_text(
        "gpu-queue", Resource.GPU, limit=8 * GPU, allocated=6 * GPU, requested=4 * GPU
    )
    assert text == (
        "gpu-queue quota has reached the allowable limit of GPUs. Limit is 8 GPUs, "
        "currently 6 GPUs allocated and workload requested 4 GPUs"
    )


def test_over_quota_prints_requested_devices_raw():
    text = quota.over_quota_text(
        "q", Resource.GPU, quota=GPU, allocated=333_333, requested=GPU * 4 // 3
    )
    assert text == (
        "Non-preemptible workload is over quota. Workload requested 1.333333 GPUs, but q quota is "
        "1 GPUs, while 0.333 GPUs are already allocated for non-preemptible pods. Use a "
        "preemptible workload to go over quota."
    )


def test_quantities_show_no_bound_and_whole_devices():
    assert quota.quantities((UNLIMITED,) * 3) == {
        "cpu": "-1m",
        "memory": "-1",
        "nvidia.com/gpu": "0",
    }
    assert quota.quantities((1500, 7, GPU * 5 // 2))["nvidia.com/gpu"] == "2"
    assert quota.quantities((0, 0, GPU // 2))["nvidia.com/gpu"] == "500m"


@pytest.mark.parametrize(
    ("amount", "text"),
    [(1500, "1.5"), (1000, "1"), (0, "0"), (1, "0.001"), (1999, "1.999"), (UNLIMITED, "Unlimited")],
)
def test_humanized(amount, text):
    assert amounts.humanized(amount, 1000) == text


def test_humanized_cuts():
    assert amounts.humanized(419_430_400, 10**9) == "0.419"


def test_durations_and_moments():
    shown = [duration_text(ms) for ms in (0, 250, 1500, 90_000, 3_600_000, -2000)]
    assert shown == ["0s", "250ms", "1.5s", "1m30s", "1h0m0s", "-2s"]
    assert rfc3339(1_782_900_600_999) == "2026-07-01T10:10:00Z"


def test_task_texts():
    counts = {
        "node(s) didn't have enough resources: GPUs": 2,
        "node is unschedulable": 1,
    }
    assert fit.task_text(counts) == (
        "no nodes with enough resources were found: 1 node is unschedulable. \n"
        "2 node(s) didn't have enough resources: GPUs."
    )
    assert fit.task_text({}) == fit.NO_NODE
    detail = shortage.detailed_text(
        shortage.Shortage(shortage.Kind.GPUS, "gpu", 2 * GPU, GPU, 2 * GPU),
        gpu=GpuRequest(count=2, portion=1.0),
        gang=False,
    )
    assert fit.task_detailed_text({"node-1": [detail]}) == (
        "\n<node-1>: Node didn't have enough resources: GPUs, requested: 2, used: 1, capacity: 2."
        "\nno nodes with enough resources were found."
    )


@pytest.mark.parametrize(
    ("gpu", "asked"),
    [
        (GpuRequest(count=2, portion=0.5), "2 X 0.5"),
        (GpuRequest(dra={"gpu.example.com": 3}), "3 as DRA gpu claims "),
        (GpuRequest(count=1, portion=0.333), "0.33"),
    ],
)
def test_requested_devices(gpu, asked):
    short = shortage.Shortage(shortage.Kind.GPUS, "gpu", 330_000, 0, GPU)
    assert f"requested: {asked}, used: 0, capacity: 1" in shortage.detailed_text(
        short, gpu=gpu, gang=False
    )


def test_shortages_of_a_node():
    found = shortage.node_shortages(
        {"cpu": 0, "memory": 5 * 10**9, "gpu": 2 * GPU, "pods": 1, "x.y/dev": 3000},
        {"cpu": 10, "memory": 10**9, "pods": 1},
        {"cpu": 5, "memory": 4 * 10**9, "gpu": GPU, "pods": 1},
        gpu=GpuRequest(count=2, portion=1.0),
        device_mib=100,
    )
    assert [one.resource for one in found] == ["gpu", "cpu", "memory", "pods", "x.y/dev"]
    texts = [shortage.detailed_text(one, gpu=GpuRequest(count=2), gang=False) for one in found]
    assert texts[2] == (
        "Node didn't have enough resources: memory, requested: 5, used: 1, capacity: 4"
    )
    assert texts[3] == "Node didn't have enough resource: pods, requested: 1, used: 1, capacity: 1"
    gang = shortage.detailed_text(found[2], gpu=GpuRequest(), gang=True)
    assert gang == (
        "Node didn't have enough resources: memory, taking all considerations into account"
    )


def test_mig_request_hides_the_gpu_row():
    found = shortage.node_shortages(
        {"cpu": 1, "gpu": GPU, "nvidia.com/mig-1g.5gb": 1},
        {},
        {"cpu": 1},
        gpu=GpuRequest(mig={"nvidia.com/mig-1g.5gb": 1}),
        device_mib=100,
    )
    assert [shortage.short_text(one) for one in found] == [
        "node(s) didn't have enough of mig profile: nvidia.com/mig-1g.5gb"
    ]


def test_job_texts():
    single = [JobError.of("OverLimit", "q quota has reached it")]
    assert fit.job_text(single) == "OverLimit: q quota has reached it."
    assert fit.job_text([]) == "Unable to schedule podgroup"
    twice = [JobError.of(fit.TOO_SMALL, "too small", "a")] * 2
    assert fit.job_text(twice) == "Unable to schedule podgroup: 2 too small."
    assert fit.job_detailed_text(twice) == (
        "\nUnable to schedule podgroup.\nsubgroup a: too small.\nsubgroup a: too small."
    )


def test_not_placed():
    tail = "due to: no room"
    assert fit.not_placed_text("n/p", "no room", placed=1, needed=None) == (
        f"Resources were not found for pod n/p {tail}"
    )
    assert fit.not_placed_text("n/p", "no room", placed=1, needed=3) == (
        "Resources were found for 1 pods while 3 are required for gang scheduling. "
        f"Additional pods cannot be scheduled {tail}"
    )
    assert fit.not_placed_text("n/p", "no room", placed=1, needed=3, sub_group="s") == (
        "Resources were found for 1 pods from all sub-groups while sub-group s requires 3 pods for "
        f"gang scheduling. Additional pods cannot be scheduled in this sub-group {tail}"
    )


def test_not_ready():
    assert fit.not_ready_text([WaitingSet("default", 3, 2, 1)]) == (
        "Job is not ready for scheduling. Waiting for 3 pods, currently 2 exist, 1 are gated"
    )
    sets = [WaitingSet("a", 2, 1, 0), WaitingSet("b", 1, 0, 0)]
    assert fit.not_ready_text(sets) == (
        "Job is not ready for scheduling. Waiting for 2 pods for SubGroup a, currently 1 exist, "
        "0 are gated. Waiting for 1 pods for SubGroup b, currently 0 exist, 0 are gated."
    )


def test_domain_of_a_topology():
    error = shortage.domain_pods_error("rack1", room=3, needed=4, sub_group="")
    assert error.detailed == "<rack1>: node-group rack1 can allocate only 3 of 4 required pods"
    short = shortage.domain_shortages({"gpu": GPU, "pods": 1}, {})
    assert shortage.domain_error("z1", short, "").detailed == (
        "<z1>: z1 didn't have enough resource: GPUs, requested: 1, available: 0, "
        "z1 didn't have enough resource: pods, requested: 1, available: 0"
    )


def test_reclaim_message():
    victim = evictions.QueueLine(
        "team-a",
        (8000, 32_500_000_000, 4 * GPU),
        (UNLIMITED, UNLIMITED, 2 * GPU),
        (16_000, 64 * 10**9, GPU * 7 // 2),
        100,
    )
    text = evictions.reclaimed_text("ns/p", "ns/j", victim, victim)
    line = (
        "team-a uses <GPU: 4, CPU: 8 (cores), memory: 32.5 (GB)> with a quota of <GPU: 2, CPU: "
        "Unlimited (cores), memory: Unlimited (GB)>, fair-share of <GPU: 3, CPU: 16 (cores), "
        "memory: 64 (GB)> and queue priority of <100>."
    )
    assert text == f"Pod ns/p was preempted by workload ns/j.\n{line}\n{line}"
    assert evictions.reclaimed_text("ns/p", "ns/j", None, victim) == (
        "Pod ns/p was preempted by workload ns/j."
    )


def test_other_evictions():
    assert evictions.preempted_text("n/p", "n/j") == (
        "Pod n/p was preempted by higher priority workload n/j"
    )
    assert evictions.moved_text("n/p") == (
        "Pod n/p was preempted and rescheduled due to bin packing "
        "(resource consolidation) procedure"
    )
    head = "Workload doesn't meet the minimum required number of pods"
    tail = ", evicting remaining pod: n/p"
    assert evictions.stale_text("n/p", minimum=2) == f"{head} (2){tail}"
    assert evictions.stale_text("n/p", minimum=2, sub_group="s") == (
        f"{head} (2) in sub-group s{tail}"
    )
    assert evictions.stale_text("n/p", minimum=None, sub_group="s") == (
        f"{head} in sub-group s{tail}"
    )


@pytest.mark.parametrize(
    ("backoff", "conditions", "waits"),
    [
        (1, (("a", "1"), ("default", "2")), True),
        (1, (("a", "3"), ("default", "2")), False),
        (1, (("default", "x"),), True),
        (1, (("a", ""), ("default", "")), False),
        (1, (), False),
        (None, (("default", "1"),), False),
        (-1, (("default", "1"),), False),
    ],
)
def test_group_with_back_off_waits_for_another_pool(backoff, conditions, waits):
    group = PodGroup(
        uid="u",
        namespace="n",
        name="g",
        scheduling_backoff=backoff,
        scheduling_conditions=tuple(
            SchedulingCondition(node_pool=pool, transition_id=number) for pool, number in conditions
        ),
    )
    assert waits_for_another_pool(group, "kai.scheduler/node-pool") == waits
