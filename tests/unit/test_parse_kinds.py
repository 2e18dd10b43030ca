import pytest

from kai_es.kube.errors import InvalidObjectError
from kai_es.kube.objects import (
    PriorityClass,
    QueueShare,
    SchedulingCondition,
    ShardConfig,
    SubGroup,
    Taint,
    TopologyConstraint,
)
from kai_es.kube.parse import parse
from kai_es.kube.parse_node import gpu_memory_mib
from kai_es.kube.topologies import TopologyLevel


def an_object(kind_version=None, *, spec=None, **rest):
    raw = {"metadata": {"name": "x", "uid": "u", **rest.pop("metadata", {})}, **rest}
    if kind_version:
        raw["apiVersion"] = kind_version
    if spec is not None:
        raw["spec"] = spec
    return raw


@pytest.mark.parametrize(
    ("label", "memory"),
    [
        (None, (100, False)),
        ("4096", (4000, True)),
        ("4295000001", (4000, True)),
        ("81559", (81500, True)),
        ("85520809984", (81500, True)),
        ("many", (100, False)),
        ("99", (100, False)),
        ("-5", (100, False)),
    ],
)
def test_node_gpu_memory(label, memory):
    assert gpu_memory_mib(label) == memory


@pytest.mark.parametrize(
    ("allocatable", "names", "offered"),
    [
        ({"nvidia.com/gpu": "8", "cpu": "1"}, (), {"nvidia.com/gpu", "cpu"}),
        ({"nvidia.com/gpu": "8", "a.com/gpu": "1"}, ("a.com/gpu", "nvidia.com/gpu"), None),
        ({"a.com/gpu": "1", "nvidia.com/gpu": "0"}, ("a.com/gpu",), {"a.com/gpu"}),
        ({"a.com/gpu": "0", "x.com/y": "0"}, (), set()),
    ],
)
def test_node_offers_resources_by_their_exact_names(allocatable, names, offered):
    node = parse("Node", an_object("v1", status={"allocatable": allocatable}))
    assert node.gpu_names == names
    asked = {"nvidia.com/gpu", "a.com/gpu", "cpu", "x.com/y"}
    want = set(allocatable) if offered is None else offered
    assert {name for name in asked if node.offers(name)} == want


def test_node():
    node = parse(
        "Node",
        an_object(
            "v1",
            metadata={"labels": {"nvidia.com/gpu.count": "8", "nvidia.com/gpu.memory": "40960"}},
            spec={"unschedulable": True, "taints": [{"key": "k", "effect": "NoSchedule"}]},
            status={
                "allocatable": {
                    "cpu": "63500m",
                    "memory": "512Gi",
                    "nvidia.com/gpu": "8",
                    "pods": "110",
                    "rdma/ib": "0",
                    "ephemeral-storage": "1Ti",
                    "nvidia.com/mig-1g.5gb": 3,
                },
                "capacity": {"cpu": 64},
                "conditions": [{"type": "Ready", "status": "True", "reason": "x"}],
            },
        ),
    )
    assert node.allocatable == {
        "cpu": 63500,
        "memory": 512 * 2**30,
        "gpu": 8_000_000,
        "pods": 110,
        "rdma/ib": 0,
        "ephemeral-storage": 2**40,
        "nvidia.com/mig-1g.5gb": 3,
    }
    assert node.capacity == {"cpu": 64000}
    assert node.taints == (Taint(key="k", effect="NoSchedule"),)
    assert node.conditions == {"Ready": "True"}
    assert (node.unschedulable, node.gpu_count) == (True, 8)
    assert (node.gpu_memory_mib, node.gpu_memory_synced) == (40900, True)


def test_pod_group():
    group = parse(
        "PodGroup",
        an_object(
            metadata={
                "namespace": "ns",
                "generation": 3,
                "annotations": {
                    "kai.scheduler/stale-podgroup-timestamp": "2026-01-01T00:00:00Z",
                    "kai.scheduler/last-start-timestamp": "not-a-time",
                    "kai.scheduler/top-owner-metadata": "name: job-1\nuid: u\nkind: PyTorchJob\n",
                },
            },
            spec={
                "queue": "q",
                "minMember": 0,
                "minSubGroup": None,
                "preemptionDelay": "1h30m",
                "stalenessGracePeriod": "-1ns",
                "markUnschedulable": False,
                "schedulingBackoff": 1,
                "topologyConstraint": {"requiredTopologyLevel": "rack"},
                "subGroups": [
                    {"name": "a", "minMember": 2, "topologyConstraint": {"topology": "t"}},
                    {"name": "b", "parent": "a"},
                ],
            },
            status={"schedulingConditions": [{"nodePool": "p", "transitionID": "4", "x": 1}]},
        ),
    )
    assert (group.queue, group.min_member, group.min_sub_group) == ("q", 0, None)
    assert (group.preemption_delay_ms, group.staleness_grace_ms) == (5_400_000, -1)
    assert (group.mark_unschedulable, group.scheduling_backoff, group.topology) == (False, 1, None)
    assert group.sub_groups == (
        SubGroup(name="a", min_member=2, topology=TopologyConstraint(topology="t")),
        SubGroup(name="b", parent="a"),
    )
    assert group.scheduling_conditions == (SchedulingCondition(node_pool="p", transition_id="4"),)
    assert (group.stale_since_ms, group.last_start_ms) == (1_767_225_600_000, 0)
    assert (group.owner, group.generation) == (("PyTorchJob", "job-1"), 3)


def test_pod_group_without_anything_is_valid():
    group = parse("PodGroup", an_object())
    assert (group.queue, group.min_member, group.mark_unschedulable) == ("", None, True)


def test_queue():
    queue = parse(
        "Queue",
        an_object(
            spec={
                "displayName": "team",
                "parentQueue": "root",
                "resources": {"gpu": {"quota": 1.5, "limit": -1, "overQuotaWeight": 2}, "cpu": {}},
                "preemptMinRuntime": "10m0s",
                "reclaimMinRuntime": "0s",
            }
        ),
    )
    assert (queue.display_name, queue.parent, queue.priority) == ("team", "root", 100)
    assert queue.gpu == QueueShare(quota=1.5, limit=-1.0, weight=2.0)
    assert queue.memory == QueueShare()
    assert (queue.preempt_min_runtime_ms, queue.reclaim_min_runtime_ms) == (600_000, 0)


def test_priority_class_and_shard_config():
    assert parse("PriorityClass", an_object(value=-7, globalDefault=True)) == PriorityClass(
        uid="u", name="x", value=-7, global_default=True
    )
    assert parse("ShardConfig", an_object(settings={"a": [1]})) == ShardConfig(
        uid="u", name="x", settings={"a": [1]}
    )


def test_topology_and_numa_node():
    levels = [{"nodeLabel": "zone"}, {"nodeLabel": "rack", "alias": "r"}]
    assert parse("Topology", an_object(spec={"levels": levels})).levels == (
        TopologyLevel("zone"),
        TopologyLevel("rack", "r"),
    )
    resources = [{"name": "cpu", "allocatable": "8", "available": 4}]
    gpus = [{"name": "nvidia.com/gpu", "allocatable": "2", "available": "1"}]
    node = parse(
        "NodeResourceTopology",
        an_object(
            attributes=[{"name": "topologyManagerPolicy", "value": "restricted"}],
            zones=[
                {"name": "odd", "type": "Node"},
                {"name": "node-10", "type": "Node", "resources": gpus},
                {"name": "node-2", "type": "Node", "resources": resources},
                {"name": "socket-0", "type": "Socket"},
            ],
        ),
    )
    assert (node.policy, node.scope, node.gpus) == ("restricted", "container", "nvidia.com/gpu")
    assert [zone.name for zone in node.zones] == ["node-2", "node-10", "odd"]
    assert node.zones[0].allocatable == {"cpu": 8000}
    assert node.zones[1].available == {"gpu": 1_000_000}


def test_storage():
    claim = parse(
        "PersistentVolumeClaim",
        an_object(
            metadata={
                "namespace": "ns",
                "annotations": {
                    "pv.kubernetes.io/bind-completed": "yes",
                    "volume.beta.kubernetes.io/storage-class": "old",
                },
                "ownerReferences": [{"kind": "Pod", "name": "p", "uid": "pu"}],
            },
            spec={"storageClassName": "new", "resources": {"requests": {"storage": "1.5Ki"}}},
            status={"phase": "Bound"},
        ),
    )
    assert (claim.storage_class, claim.bound, claim.size) == ("old", True, 1536)
    assert claim.owners == (("Pod", "p", "pu"),)
    assert parse("PersistentVolumeClaim", an_object()).storage_class is None
    volume = parse(
        "PersistentVolume",
        an_object(spec={"capacity": {"storage": "2Gi"}, "claimRef": {"name": "c"}}),
    )
    assert (volume.size, volume.claim) == (2**31, ("", "c", ""))
    waits = an_object(volumeBindingMode="WaitForFirstConsumer", provisioner="d")
    assert parse("StorageClass", waits).waits
    assert not parse("StorageClass", an_object(provisioner="d")).waits
    assert parse("CSIDriver", an_object(spec={"storageCapacity": True})).tells_capacity
    capacity = parse("CSIStorageCapacity", an_object(storageClassName="s", nodeTopology={}))
    assert (capacity.size, capacity.nodes) == (None, {})


@pytest.mark.parametrize(
    ("kind", "raw", "message"),
    [
        ("Foo", an_object(), "^Foo x: kind is 'Foo', want one of Node, Pod"),
        ("Queue", an_object("scheduling.run.ai/v9"), "apiVersion is 'scheduling.run.ai/v9', want"),
        ("Queue", an_object(spec={"priority": "high"}), "spec.priority is 'high', want int"),
        ("Queue", an_object(spec={"preemptMinRuntime": "5"}), "is '5', want a duration such as"),
        ("PodGroup", an_object(spec={"minMember": -1}), "spec.minMember is -1, want int >= 0"),
        ("PodGroup", an_object(spec={"subGroups": [{}]}), r"spec.subGroups\[0\].name is missing"),
        ("PriorityClass", an_object(), "the object.value is missing"),
        ("ShardConfig", an_object(problem="spec.x is 1, want 2"), "spec.x is 1, want 2"),
        (
            "Node",
            an_object(status={"allocatable": {"cpu": "-3"}}),
            r"status.allocatable.cpu is '-3', want an amount of 0 or more",
        ),
        ("Node", [], r"Node \(without a name\): the object is a list, want object"),
    ],
)
def test_invalid_object_says_what_and_how_to_fix(kind, raw, message):
    with pytest.raises(InvalidObjectError, match=message):
        parse(kind, raw)
