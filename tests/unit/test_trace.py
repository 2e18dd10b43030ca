"""The trace importer, on invented lines."""

from pathlib import Path

import pytest

from kai_es.kube.parse import parse
from kai_es.ports.errors import ConfigError
from kai_es.simulate.trace import import_trace
from kai_es.simulate.workload import Workload

NODES = """\
sn,cpu_milli,memory_mib,gpu,model
node-a,64000,262144,2,P100
node-b,128000,786432,8,G2
node-c,32000,131072,0,
"""
PODS = """\
name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time
pod-whole,8000,16384,2,1000,,LS,Running,500,700,520
pod-share,4000,8192,1,460,P100|G2|G2,BE,Failed,100,200,
pod-cpu,1500,4096,0,0,,Burstable,Running,600,,610
"""
SHORT_PODS = """\
name,cpu_milli,memory_mib,num_gpu,gpu_milli
pod-a,1000,1024,1,1000
pod-b,1000,1024,4,1000
"""


@pytest.fixture
def load(tmp_path: Path):
    def load(nodes: str = NODES, pods: str = PODS, **options) -> Workload:
        (tmp_path / "nodes.csv").write_text(nodes)
        (tmp_path / "pods.csv").write_text(pods)
        return import_trace(tmp_path / "nodes.csv", tmp_path / "pods.csv", **options)

    return load


def only_pods(workload: Workload) -> dict[str, dict]:
    assert all(len(job.pods) == 1 for job in workload.jobs)
    return {job.pods[0]["metadata"]["name"]: job.pods[0] for job in workload.jobs}


def requests(pod: dict) -> dict:
    return pod["spec"]["containers"][0]["resources"]["requests"]


def test_nodes_carry_their_sizes_and_model(load):
    a, b, c = load().nodes
    assert a["status"]["allocatable"] == {
        "cpu": "64000m",
        "memory": "262144Mi",
        "ephemeral-storage": "1Ti",
        "pods": "110",
        "nvidia.com/gpu": "2",
    }
    assert a["metadata"]["labels"]["nvidia.com/gpu.product"] == "P100"
    assert a["metadata"]["labels"]["nvidia.com/gpu.memory"] == "16384"
    assert "nvidia.com/gpu.memory" not in b["metadata"]["labels"]
    assert "nvidia.com/gpu" not in c["status"]["allocatable"]


def test_pods_ask_for_whole_gpus_shares_or_none(load):
    pods = only_pods(load())
    assert requests(pods["pod-whole"]) == {
        "cpu": "8000m",
        "memory": "16384Mi",
        "nvidia.com/gpu": "2",
    }
    assert requests(pods["pod-share"]) == {"cpu": "4000m", "memory": "8192Mi"}
    assert pods["pod-share"]["metadata"]["annotations"]["gpu-fraction"] == "0.46"
    assert "gpu-fraction" not in pods["pod-cpu"]["metadata"]["annotations"]


def test_gpu_spec_is_affinity_to_the_product(load):
    pods = only_pods(load())
    terms = pods["pod-share"]["spec"]["affinity"]["nodeAffinity"]
    [term] = terms["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    assert term["matchExpressions"] == [
        {"key": "nvidia.com/gpu.product", "operator": "In", "values": ["P100", "G2"]}
    ]
    assert "affinity" not in pods["pod-whole"]["spec"]


def test_queues_are_the_qos_classes_and_share_the_gpus(load):
    quotas = {q["metadata"]["name"]: q["spec"]["resources"]["gpu"]["quota"] for q in load().queues}
    assert quotas == {"trace": 10, "be": 1, "burstable": 0, "ls": 8}
    assert {j.group["spec"]["queue"] for j in load().jobs} == {"ls", "be", "burstable"}
    assert all(j.group["spec"]["minMember"] == 1 for j in load().jobs)


def test_without_speed_all_come_at_once_and_none_ends(load):
    workload = load()
    assert {job.at_ms for job in workload.jobs} == {0}
    assert not any("simulated-run-seconds" in str(p) for p in only_pods(workload).values())


def test_speed_divides_the_times(load):
    workload = load(speed=10)
    assert [(j.group["metadata"]["name"], j.at_ms) for j in workload.jobs] == [
        ("pod-share", 0),
        ("pod-whole", 40_000),
        ("pod-cpu", 50_000),
    ]
    runs = {
        name: p["metadata"]["annotations"].get("kai.scheduler/simulated-run-seconds")
        for name, p in only_pods(workload).items()
    }
    assert runs == {"pod-share": "10.000", "pod-whole": "18.000", "pod-cpu": None}


def test_limit_takes_the_first_rows(load):
    assert set(only_pods(load(limit=2))) == {"pod-whole", "pod-share"}


def test_file_without_times_and_qos_needs_speed_max(load):
    assert {q["metadata"]["name"] for q in load(pods=SHORT_PODS).queues} == {"trace", "be"}
    with pytest.raises(ConfigError, match=r"pods\.csv, line 1: no column creation_time"):
        load(pods=SHORT_PODS, speed=1)


def test_objects_are_what_the_informers_parse(load):
    workload = load(speed=2)
    parts = [*workload.nodes, *workload.queues]
    for job in workload.jobs:
        parts += [job.group, *job.pods]
    for i, raw in enumerate(parts):
        stored = raw | {"metadata": raw["metadata"] | {"uid": f"u{i}", "generation": 1}}
        assert parse(raw["kind"], stored).name == raw["metadata"]["name"]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            "node-a,64000",
            "node-a,64k",
            r"nodes\.csv, line 2, column cpu_milli: '64k' is not a whole",
        ),
        ("node-b,", "node-a,", r"nodes\.csv, line 3, column sn: 'node-a' is there twice"),
        ("node-c,32000", "Node C,32000", r"line 4, column sn: 'Node C' is no name"),
        (",8,G2", ",8,", r"line 3, column model: '' is no GPU model"),
        ("sn,", "serial,", r"nodes\.csv, line 1: no column sn; the first line must name"),
        ("node-c,32000,131072,0,", "node-c,32000", r"nodes\.csv, line 4: 2 columns instead of 5"),
        ("262144,2", "262144,-2", r"line 2, column gpu: '-2' is not a whole number"),
    ],
)
def test_malformed_nodes_are_named(load, old: str, new: str, message: str):
    with pytest.raises(ConfigError, match=message):
        load(nodes=NODES.replace(old, new))


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            "1,460",
            "1,1460",
            r"pods\.csv, line 3, column gpu_milli: '1460' does not go with num_gpu 1",
        ),
        ("0,0,,B", "0,500,,B", r"line 4, column gpu_milli: '500' does not go with num_gpu 0"),
        ("2,1000", "2,", r"line 2, column gpu_milli: '' is not a whole number"),
        ("500,700", "500,soon", r"line 2, column deletion_time: 'soon' is not a time"),
        ("500,700", "500,510", r"line 2, column deletion_time: '510' is before the pod's start"),
        ("500,700", "nan,700", r"line 2, column creation_time: 'nan' is not a time"),
        (",LS,", ",L S,", r"line 2, column qos: 'L S' is no name for a queue"),
        ("pod-cpu,", "pod-whole,", r"line 4, column name: 'pod-whole' is there twice"),
        (PODS, PODS.splitlines()[0], r"pods\.csv: no pods"),
        (PODS, "", r"pods\.csv, line 1: no column name"),
    ],
)
def test_malformed_pods_are_named(load, old: str, new: str, message: str):
    with pytest.raises(ConfigError, match=message):
        load(pods=PODS.replace(old, new), speed=1)


def test_unreadable_files_are_named(tmp_path: Path, load):
    with pytest.raises(ConfigError, match=r"none\.csv: .*No such file"):
        import_trace(tmp_path / "none.csv", tmp_path / "none.csv")
    load()
    (tmp_path / "pods.csv").write_bytes(PODS.encode().replace(b"LS", b"L\xff"))
    with pytest.raises(ConfigError, match=r"pods\.csv: .*give a CSV file"):
        import_trace(tmp_path / "nodes.csv", tmp_path / "pods.csv")
    with pytest.raises(ConfigError, match="--speed 0"):
        load(speed=0)
