import pytest

from kai_es.kube.errors import InvalidObjectError
from kai_es.kube.objects import GpuRequest, Toleration
from kai_es.kube.parse_pod import parse_pod, read_leniently

GIB = 2**30


def a_pod(*, metadata=None, status=None, **spec):
    return {
        "metadata": {"name": "p", "namespace": "ns", "uid": "u1", **(metadata or {})},
        "spec": {"containers": [{"name": "main"}], **spec},
        "status": {"phase": "Pending", **(status or {})},
    }


def requesting(*requests, init=(), overhead=None, annotations=None):
    return a_pod(
        metadata={"annotations": annotations or {}},
        containers=[{"resources": {"requests": r}} for r in requests],
        initContainers=[
            {"resources": {"requests": r}, **({"restartPolicy": "Always"} if side else {})}
            for r, side in init
        ],
        overhead=overhead,
    )


def test_pod_without_requests_takes_one_pod_slot():
    assert parse_pod(a_pod()).spec.requests == {"pods": 1}


def test_requests_of_containers_add_up_and_pods_is_not_read():
    one = {"cpu": "1", "memory": "1G", "pods": "110"}
    spec = parse_pod(requesting(one, {"cpu": "2500m", "nvidia.com/gpu": "1"})).spec
    assert spec.requests == {"cpu": 3500, "memory": 10**9, "gpu": 1_000_000, "pods": 1}
    assert spec.gpu == GpuRequest(count=1, portion=1.0)
    assert spec.request_type == "Regular"


def test_sidecars_count_beside_containers_and_before_later_init_containers():
    init = [
        ({"cpu": "500m"}, True),
        ({"cpu": "2"}, False),
        ({"cpu": "250m"}, True),
        ({"cpu": "1"}, False),
    ]
    assert parse_pod(requesting({"cpu": "1"}, {"cpu": "1"}, init=init)).spec.requests["cpu"] == 2750


def test_start_up_peak_wins_per_resource():
    spec = parse_pod(
        requesting({"cpu": "1", "memory": "8Gi"}, init=[({"cpu": "4", "memory": "1Gi"}, False)])
    ).spec
    assert spec.requests == {"cpu": 4000, "memory": 8 * GIB, "pods": 1}


def test_overhead_counts_but_not_its_gpus():
    spec = parse_pod(
        requesting({"cpu": "1"}, overhead={"cpu": "1", "memory": "1Gi", "nvidia.com/gpu": 1})
    ).spec
    assert spec.requests == {"cpu": 2000, "memory": GIB, "pods": 1}
    assert spec.gpu == GpuRequest()


def test_units_by_name():
    spec = parse_pod(
        requesting(
            {
                "ephemeral-storage": "1Gi",
                "hugepages-2Mi": "4Mi",
                "rdma/ib0": "1",
                "nvidia.com/mig-1g.5gb": "2",
                "amd.com/gpu": "1500m",
                "unsupported": "2",
                "requests.foo/bar": "2",
                "cpu": "0",
            }
        )
    ).spec
    assert spec.requests == {
        "ephemeral-storage": GIB,
        "hugepages-2Mi": 4 * 2**20 * 1000,
        "rdma/ib0": 1000,
        "nvidia.com/mig-1g.5gb": 2,
        "gpu": 2_000_000,
        "pods": 1,
    }
    assert spec.request_type == "MigInstance"
    assert spec.gpu == GpuRequest(count=2, portion=1.0, mig={"nvidia.com/mig-1g.5gb": 2})


@pytest.mark.parametrize(
    ("annotations", "gpu", "kind"),
    [
        ({"gpu-memory": "1024"}, GpuRequest(count=1, memory_mib=1024), "GpuMemory"),
        ({"gpu-memory": "0"}, GpuRequest(count=2, portion=1.0), "Regular"),
        ({"gpu-memory": "1024.5"}, GpuRequest(count=2, portion=1.0), "Regular"),
        ({"gpu-fraction": "0.5"}, GpuRequest(count=1, portion=0.5), "Fraction"),
        ({"gpu-fraction": "1"}, GpuRequest(count=1, portion=1.0), "Fraction"),
        ({"gpu-fraction": "1.1"}, GpuRequest(count=2, portion=1.0), "Regular"),
        ({"gpu-fraction": "NaN"}, GpuRequest(count=2, portion=1.0), "Regular"),
        (
            {"gpu-fraction": "0.25", "gpu-memory": "512"},
            GpuRequest(count=1, portion=0.25),
            "Fraction",
        ),
        (
            {"gpu-fraction": "0.5", "gpu-fraction-num-devices": "3"},
            GpuRequest(count=3, portion=0.5),
            "Fraction",
        ),
        (
            {"gpu-fraction": "0.5", "gpu-fraction-num-devices": "x"},
            GpuRequest(count=1, portion=0.5),
            "Fraction",
        ),
        (
            {"gpu-memory": "512", "gpu-fraction": "2", "gpu-fraction-num-devices": "3"},
            GpuRequest(count=3, portion=2.0, memory_mib=512),
            "GpuMemory",
        ),
        ({"gpu-fraction-num-devices": "3"}, GpuRequest(count=2, portion=1.0), "Regular"),
    ],
)
def test_gpu_annotations(annotations, gpu, kind):
    spec = parse_pod(requesting({"nvidia.com/gpu": 2}, annotations=annotations)).spec
    assert (spec.gpu, spec.request_type) == (gpu, kind)
    assert spec.requests.get("gpu") == (2_000_000 if kind == "Regular" else None)


def test_legacy_mig_replaces_the_gpu_request():
    spec = parse_pod(
        requesting(
            {"nvidia.com/gpu": 1, "cpu": 1},
            annotations={"nvidia.com/mig-2g.10gb": "3", "nvidia.com/mig-9g.9gb": "no"},
        )
    ).spec
    assert spec.gpu == GpuRequest(mig={"nvidia.com/mig-2g.10gb": 3})
    assert spec.requests == {"cpu": 1000, "nvidia.com/mig-2g.10gb": 3, "pods": 1}
    assert (spec.request_type, spec.legacy_mig) == ("MigInstance", True)


def test_identity_life_and_placement():
    pod = parse_pod(
        a_pod(
            metadata={
                "creationTimestamp": "2026-01-01T00:00:01Z",
                "deletionTimestamp": "2026-01-01T00:00:02.5+00:00",
                "labels": {"kai.scheduler/subgroup-name": "sg", "x": "y"},
                "annotations": {
                    "pod-group-name": "g",
                    "kai.scheduler/podgroup-stamp": "g-uid/7",
                    "kai.scheduler/closed-request": "s/1/u1",
                    "received-resource-type": "Fraction",
                    "runai/shared-gpu-configmap": "cm",
                    "noise": "n",
                },
                "ownerReferences": [
                    {"kind": "A", "name": "a"},
                    {"kind": "Job", "name": "j", "controller": True},
                ],
            },
            status={
                "phase": "Running",
                "startTime": "2026-01-01T00:00:00Z",
                "nominatedNodeName": "n9",
            },
            nodeName="n1",
            schedulingGates=[{"name": "g"}],
            priority=-5,
            priorityClassName="train",
            schedulerName="kai-scheduler",
        )
    )
    t0 = 1_767_225_600_000
    assert (pod.created_ms, pod.deleted_ms, pod.started_ms) == (t0 + 1000, t0 + 2500, t0)
    assert (pod.group, pod.group_uid, pod.group_generation) == ("g", "g-uid", 7)
    assert (pod.sub_group, pod.node, pod.nominated_node) == ("sg", "n1", "n9")
    assert pod.owner == ("Job", "j")
    assert pod.annotations == {"runai/shared-gpu-configmap": "cm"}
    assert (pod.received, pod.closed_request, pod.gated) == ("Fraction", "s/1/u1", True)
    assert (pod.spec.priority, pod.spec.priority_class) == (-5, "train")


@pytest.mark.parametrize("stamp", ["", "x", "u/", "u/-1", "u/one", "u/²"])
def test_broken_group_stamp_is_none(stamp):
    pod = parse_pod(a_pod(metadata={"annotations": {"kai.scheduler/podgroup-stamp": stamp}}))
    assert (pod.group_uid, pod.group_generation) == ("", 0)


def test_pod_of_a_file_without_uid_gets_a_stable_one():
    assert parse_pod({"metadata": {"name": "p", "namespace": "ns"}}).uid == "Pod/ns/p"


def test_gpu_groups_plain_label_first_and_prefixed_ones_without_it():
    prefixed = {"runai-gpu-group/b": "b", "runai-gpu-group/a": "a"}
    plain = {**prefixed, "runai-gpu-group": "b"}
    assert parse_pod(a_pod(metadata={"labels": prefixed})).gpu_groups == ("a", "b")
    assert parse_pod(a_pod(metadata={"labels": plain})).gpu_groups == ("b", "a")


def test_placement_fields():
    spec = parse_pod(
        a_pod(
            containers=[
                {"ports": [{"hostPort": 80, "containerPort": 1}, {"containerPort": 2}]},
                {"ports": [{"hostPort": 53, "protocol": "UDP", "hostIP": "127.0.0.1"}]},
            ],
            initContainers=[
                {"ports": [{"hostPort": 81}], "restartPolicy": "Always"},
                {"ports": [{"hostPort": 82}]},
            ],
            tolerations=[{"key": "k", "operator": "Exists"}, {"key": "k2", "value": "v"}],
            nodeSelector={"a": "b"},
            resourceClaims=[
                {"name": "c", "resourceClaimName": "claim"},
                {"name": "t", "resourceClaimTemplateName": "template"},
            ],
            affinity={"nodeAffinity": {}, "unknown": 10**30},
            topologySpreadConstraints=[
                {"maxSkew": 1, "topologyKey": "z", "whenUnsatisfiable": "DoNotSchedule"}
            ],
        )
    ).spec
    assert spec.host_ports == (("TCP", "", 80), ("UDP", "127.0.0.1", 53), ("TCP", "", 81))
    assert spec.start_host_ports == (("TCP", "", 82),)
    assert spec.tolerations == (
        Toleration(key="k", operator="Exists"),
        Toleration(key="k2", value="v"),
    )
    assert spec.node_selector == {"a": "b"}
    assert spec.resource_claims == (("c", "claim", "claim"), ("t", "template", "template"))
    assert spec.affinity == {"nodeAffinity": {}}
    assert spec.topology_spread[0]["topologyKey"] == "z"


def test_volumes_claims_and_config_maps():
    spec = parse_pod(
        a_pod(
            metadata={"annotations": {"runai/shared-gpu-configmap": "gpu-cm"}},
            containers=[
                {
                    "volumeMounts": [{"name": "cm"}, {"name": "proj"}, {"name": "opt"}],
                    "env": [
                        {"name": "A", "value": "1"},
                        {"name": "B", "valueFrom": {"configMapKeyRef": {"name": "env-cm"}}},
                        {"name": "C", "valueFrom": {"configMapKeyRef": {"name": "gpu-cm-0"}}},
                    ],
                }
            ],
            ephemeralContainers=[{"envFrom": [{"configMapRef": {"name": "eph-cm"}}]}],
            volumes=[
                {"name": "pvc", "persistentVolumeClaim": {"claimName": "data"}},
                {"name": "scratch", "ephemeral": {"volumeClaimTemplate": {}}},
                {"name": "cm", "configMap": {"name": "mounted-cm"}},
                {"name": "opt", "configMap": {"name": "optional-cm", "optional": True}},
                {"name": "loose", "configMap": {"name": "unmounted-cm"}},
                {"name": "proj", "projected": {"sources": [{"configMap": {"name": "proj-cm"}}]}},
                {"name": "kube-api-access-x1", "projected": {"sources": []}},
                {"name": "host", "hostPath": {"path": "/d"}},
                {"name": "s", "secret": {"secretName": "s"}},
            ],
        )
    ).spec
    assert spec.claims == ("data", "p-scratch")
    assert spec.config_maps == ("env-cm", "eph-cm", "mounted-cm", "proj-cm")
    assert spec.volumes == (
        '{"projected":{"sources":[{"configMap":{"name":"proj-cm"}}]}}',
        '{"hostPath":{"path":"/d"}}',
    )


@pytest.mark.parametrize(
    ("pod", "message"),
    [
        (requesting({"cpu": "-1"}), r"requests\.cpu is '-1', want an amount of 0 or more"),
        (requesting({"cpu": "x"}), r"spec\.containers\[0\]\.resources\.requests\.cpu is 'x', want"),
        (requesting({"foo": "x"}), r"requests\.foo is 'x', want a quantity"),
        (requesting({"cpu": True}), r"requests\[\.\.\.\] is of a wrong type, want"),
        (requesting({"nvidia.com/gpu": "3e12"}), "want at most"),
        (requesting(*[{"memory": "2305843009213693951"}] * 2), r"the sum of requests of memory is"),
        (a_pod(nodeName=5), r"spec\.nodeName is 5, want str"),
        (a_pod(priority=2**40), r"spec\.priority is 1099511627776, want int <= 2147483647"),
        (a_pod(affinity={"nodeAffinity": []}), r"spec\.affinity\.nodeAffinity is a list, want"),
        (
            a_pod(metadata={"creationTimestamp": "2026-02-31T00:00:00Z"}),
            r"creationTimestamp is '2026-02-31T00:00:00Z', want an RFC 3339 time",
        ),
        (
            requesting({}, annotations={"gpu-fraction": ".5", "gpu-fraction-num-devices": "-1"}),
            "annotation gpu-fraction-num-devices is '-1', want",
        ),
        ({"metadata": {"name": "p", "namespace": "ns", "uid": 5}}, r"metadata\.uid is 5, want str"),
    ],
)
def test_invalid_pod_names_object_field_value_and_fix(pod, message):
    with pytest.raises(InvalidObjectError, match=rf"^Pod ns/p: .*{message}"):
        parse_pod(pod)


def test_lenient_read_keeps_what_makes_sense():
    pod = requesting({"cpu": "1", "memory": "-1", "nvidia.com/gpu": 1}, {"cpu": ["x"]})
    pod["spec"]["nodeName"] = "n1"
    pod["spec"]["containers"].append("nonsense")
    with pytest.raises(InvalidObjectError):
        parse_pod(pod)
    assert read_leniently(pod) == ("n1", "Pending", {"cpu": 1000, "gpu": 1_000_000, "pods": 1})
    assert read_leniently(None) == ("", "", {"pods": 1})
