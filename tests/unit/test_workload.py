"""The workload generator: pure, so no cluster is needed."""

import pytest

from kai_es.kube.parse import parse
from kai_es.simulate.workload import GPU_RESOURCE, Sizes, Workload, generate


def gpus(job) -> list[int]:
    requests = [p["spec"]["containers"][0]["resources"]["requests"] for p in job.pods]
    return [int(r.get(GPU_RESOURCE, 0)) for r in requests]


@pytest.fixture(scope="module")
def demo() -> Workload:
    return generate(7)


def test_same_seed_same_workload():
    sizes = Sizes(n_nodes=5, n_jobs=20)
    assert generate(1, sizes) == generate(1, sizes)
    assert generate(1, sizes) != generate(2, sizes)


def test_demo_has_the_promised_sizes(demo: Workload):
    leaves = [q for q in demo.queues if q["spec"].get("parentQueue")]
    assert (len(demo.nodes), len(demo.jobs), len(leaves)) == (50, 400, 4)
    assert {q["spec"]["parentQueue"] for q in leaves} <= {
        q["metadata"]["name"] for q in demo.queues
    }


def test_demo_mixes_gangs_elastic_jobs_and_cpu_jobs(demo: Workload):
    forms = {(len(j.pods) > 1, j.group["spec"]["minMember"] == len(j.pods)) for j in demo.jobs}
    assert {(False, True), (True, True), (True, False)} <= forms
    assert any(sum(gpus(j)) == 0 for j in demo.jobs)
    assert {j.group["spec"]["priorityClassName"] for j in demo.jobs} == {
        "train",
        "build-preemptible",
        "build",
        "inference",
    }


def test_jobs_come_in_order_and_end_in_seconds(demo: Workload):
    times = [j.at_ms for j in demo.jobs]
    assert times == sorted(times)
    assert times[-1] < 30_000
    work = sum(sum(gpus(j)) * float(run_s(j)) for j in demo.jobs)
    total = sum(int(n["status"]["allocatable"].get(GPU_RESOURCE, 0)) for n in demo.nodes)
    assert work / total < 60, "GPU-seconds over GPUs: the demo has two minutes"


def run_s(job) -> str:
    return job.pods[0]["metadata"]["annotations"]["kai.scheduler/simulated-run-seconds"]


@pytest.mark.parametrize("sizes", [Sizes(1, 30, 1), Sizes(3, 50, 2), Sizes(5, 50, 3), Sizes()])
def test_every_job_fits_into_the_empty_cluster(sizes: Sizes):
    workload = generate(3, sizes)
    free = [int(n["status"]["allocatable"].get(GPU_RESOURCE, 0)) for n in workload.nodes]
    for job in workload.jobs:
        left = list(free)
        for n_gpus in gpus(job):
            at = next(i for i, have in enumerate(left) if have >= n_gpus)
            left[at] -= n_gpus


@pytest.mark.parametrize("sizes", [Sizes(2, 100, 4), Sizes()])
def test_jobs_that_cannot_be_preempted_fit_into_their_quota(sizes: Sizes):
    workload = generate(5, sizes)
    quotas = {
        q["metadata"]["name"]: q["spec"]["resources"]["gpu"]["quota"] for q in workload.queues
    }
    for job in workload.jobs:
        if job.group["spec"]["priorityClassName"] in ("build", "inference"):
            assert sum(gpus(job)) <= quotas[job.group["spec"]["queue"]]


def test_objects_are_what_the_informers_parse(demo: Workload):
    job = demo.jobs[0]
    for i, raw in enumerate(
        (*demo.nodes, *demo.queues, *demo.priority_classes, job.group, *job.pods)
    ):
        stored = raw | {"metadata": raw["metadata"] | {"uid": f"uid-{i}", "generation": 1}}
        assert parse(raw["kind"], stored).name == raw["metadata"]["name"]


@pytest.mark.parametrize("field", ["n_nodes", "n_jobs", "n_queues"])
def test_sizes_below_one_are_refused(field: str):
    with pytest.raises(ValueError, match=f"{field} is 0, want 1 or more"):
        Sizes(**{field: 0})
