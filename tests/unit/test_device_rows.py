"""Claims, slices and classes as rows: what pods and nodes are counted with."""

import msgspec

from kai_es.kube.devices import (
    AllocatedDevice,
    Allocation,
    Consumer,
    Device,
    DeviceClass,
    DeviceRequest,
    ResourceClaim,
    ResourceSlice,
)
from kai_es.kube.labels import GPU_MICRO
from kai_es.kube.objects import Pod, PodSpec
from kai_es.snapshot.device_rows import gpu_devices
from kai_es.snapshot.effective import TaskState
from kai_es.snapshot.snapshot import Snapshot
from kai_es.snapshot.status import TaskStatus

TWO_GPUS = (DeviceRequest(name="r", device_class="gpu.example.com", count=2),)


def a_claim(name="c", **fields):
    return ResourceClaim(
        uid=f"uid-{name}", namespace="ns", name=name, **({"requests": TWO_GPUS} | fields)
    )


def a_pod(*claims, **fields):
    spec = PodSpec(requests={"cpu": 1, "pods": 1}, resource_claims=claims)
    return Pod(uid="p", namespace="ns", name="p", spec=spec, **fields)


def stored(pod, *claims):
    snapshot = Snapshot()
    for claim in claims:
        snapshot.set_claim(claim, rv=1)
    snapshot.set_pod(pod, rv=1, task=TaskState(status=TaskStatus.PENDING))
    return snapshot


def asked(snapshot):
    return snapshot.pods["p"].shape.spec.gpu.dra


NAMED = ("gpu", "c", "claim")
TEMPLATE = ("gpu", "t", "template")


def test_a_pod_asks_for_the_devices_of_the_claim_that_it_names():
    assert asked(stored(a_pod(NAMED), a_claim())) == {"gpu.example.com": 2}


def test_a_claim_may_come_after_its_pod_and_go():
    snapshot = stored(a_pod(NAMED))
    assert asked(snapshot) == {}
    snapshot.set_claim(a_claim(), rv=2)
    assert asked(snapshot) == {"gpu.example.com": 2}
    assert snapshot.pods["p"].shape.dra == 2 * GPU_MICRO
    snapshot.remove_claim("uid-c")
    assert asked(snapshot) == {}


def test_the_owner_of_a_claim_counts_before_the_first_that_it_is_reserved_for():
    reserved = (Consumer("pods", "p", "p"),)
    assert asked(stored(a_pod(TEMPLATE), a_claim(reserved_for=reserved))) == {"gpu.example.com": 2}
    other = a_claim(reserved_for=reserved, owner_pod="other")
    assert asked(stored(a_pod(TEMPLATE), other)) == {}
    assert asked(stored(a_pod(TEMPLATE), a_claim(owner_pod="p"))) == {"gpu.example.com": 2}


def test_a_claim_counts_once_however_it_is_found():
    pod = a_pod(TEMPLATE, claim_names=(("gpu", "c"),))
    assert asked(stored(pod, a_claim(owner_pod="p"))) == {"gpu.example.com": 2}


def test_claims_for_extended_resources_are_not_counted_again():
    snapshot = stored(a_pod(), a_claim(owner_pod="p", extended=True))
    assert asked(snapshot) == {}
    assert snapshot.devices.extended_claim("p").name == "c"


def test_the_object_of_a_pod_stays_as_it_was_parsed():
    pod = a_pod(NAMED)
    before = msgspec.msgpack.encode(pod)
    stored(pod, a_claim())
    assert msgspec.msgpack.encode(pod) == before


def a_slice(name="s", node="n1", driver="gpu.example.com", n=2):
    devices = tuple(Device(name=str(i)) for i in range(n))
    return ResourceSlice(uid=name, name=name, driver=driver, node=node, devices=devices)


def test_gpus_of_a_node_follow_the_slices():
    snapshot = Snapshot()
    snapshot.set_slice(a_slice(), rv=1)
    snapshot.set_slice(a_slice("t", n=1), rv=1)
    snapshot.set_slice(a_slice("nic", driver="nic.example.com"), rv=1)
    assert snapshot.devices.gpus_of_node("n1") == 3
    snapshot.set_slice(a_slice(n=8, node="n2"), rv=2)
    snapshot.remove_slice("t")
    assert snapshot.devices.gpus_of_node("n1") == 0
    assert snapshot.devices.gpus_of_node("n2") == 8


def test_the_younger_class_serves_a_resource_then_the_smaller_name():
    snapshot = Snapshot()
    for name, created in (("old", 1), ("b", 2), ("a", 2)):
        snapshot.set_device_class(
            DeviceClass(uid=name, name=name, created_ms=created, extended_resource="x/gpu"), rv=1
        )
    table = snapshot.devices.class_of_resource()
    assert table["x/gpu"] == "a"
    assert table["deviceclass.resource.kubernetes.io/old"] == "old"
    snapshot.remove_device_class("a")
    assert snapshot.devices.class_of_resource()["x/gpu"] == "b"


def test_devices_of_allocations_are_gpus_that_are_taken():
    allocation = Allocation(
        devices=(
            AllocatedDevice("r", "gpu.x", "p", "1"),
            AllocatedDevice("r", "gpu.x", "p", "0"),
            AllocatedDevice("r", "gpu.x", "p", "2", True),
            AllocatedDevice("r", "nic.x", "p", "0"),
        )
    )
    found = gpu_devices([allocation, allocation])
    assert found == ("gpu.x/p/0", "gpu.x/p/1")
