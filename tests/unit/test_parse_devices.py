"""Claims, slices and classes of devices, and what pods say of theirs."""

import pytest

from kai_es.kube.devices import (
    DEVICES_MAX,
    AllocatedDevice,
    Consumer,
    DeviceRequest,
    Version,
    gpus_of,
)
from kai_es.kube.errors import InvalidObjectError
from kai_es.kube.parse import parse


def claim(**fields):
    metadata = {"name": "c", "namespace": "ns", "uid": "u", **fields.pop("metadata", {})}
    return parse("ResourceClaim", {"metadata": metadata, **fields})


def test_a_claim_with_everything_that_is_read():
    found = claim(
        metadata={
            "labels": {"kai.scheduler/queue": "q"},
            "ownerReferences": [
                {"kind": "Job", "uid": "j"},
                {"kind": "Pod", "uid": "p", "controller": True},
            ],
        },
        spec={
            "devices": {
                "requests": [
                    {
                        "name": "r",
                        "exactly": {
                            "deviceClassName": "gpu",
                            "count": 2,
                            "selectors": [{"cel": {"expression": "true"}}],
                        },
                    },
                    {
                        "name": "f",
                        "firstAvailable": [{"name": "a", "deviceClassName": "x"}],
                    },
                ],
                "constraints": [{"requests": ["r"], "matchAttribute": "d/numa"}],
            }
        },
        status={
            "allocation": {
                "devices": {
                    "results": [{"request": "r", "driver": "d", "pool": "p", "device": "0"}]
                }
            },
            "reservedFor": [{"resource": "pods", "name": "p", "uid": "p"}],
        },
    )
    assert found.owner_pod == "p"
    assert not found.extended
    assert found.requests[0] == DeviceRequest(
        name="r", device_class="gpu", count=2, selectors=("true",)
    )
    assert found.requests[1].alternatives == (DeviceRequest(name="a", device_class="x"),)
    assert found.constraints[0].match == "d/numa"
    assert found.allocation.devices == (AllocatedDevice("r", "d", "p", "0"),)
    assert found.reserved_for == (Consumer("pods", "p", "p"),)


def test_attributes_and_capacity_are_named_in_full():
    raw = {
        "metadata": {"name": "s", "uid": "u"},
        "spec": {
            "driver": "gpu.example.com",
            "nodeName": "n",
            "pool": {"name": "n", "generation": 3, "resourceSliceCount": 2},
            "devices": [
                {
                    "name": "0",
                    "attributes": {
                        "model": {"string": "a100"},
                        "other.org/numa": {"int": 1},
                        "shared": {"bool": False},
                        "driver": {"version": "1.2.3"},
                    },
                    "capacity": {"memory": {"value": "40Gi"}},
                    "consumesCounters": [{"counterSet": "s"}],
                }
            ],
        },
    }
    found = parse("ResourceSlice", raw)
    device = found.devices[0]
    assert (found.pool, found.generation, found.n_slices, found.node) == ("n", 3, 2, "n")
    assert device.attributes == {
        "gpu.example.com/driver": Version("1.2.3"),
        "gpu.example.com/model": "a100",
        "gpu.example.com/shared": False,
        "other.org/numa": 1,
    }
    assert device.capacity == {"gpu.example.com/memory": "40Gi"}
    assert device.split


def test_a_wrong_type_names_the_field():
    with pytest.raises(InvalidObjectError, match=r"spec\.devices\.requests"):
        claim(spec={"devices": {"requests": {"name": "r"}}})


@pytest.mark.parametrize(
    ("requests", "expected"),
    [
        ((), ("", 0)),
        ((DeviceRequest(device_class="GPU.x", count=2),), ("GPU.x", 2)),
        ((DeviceRequest(device_class="nic", count=2),), ("", 0)),
        (
            (
                DeviceRequest(device_class="a-gpu", mode="All"),
                DeviceRequest(device_class="b-gpu", count=3),
            ),
            ("a-gpu", 4),
        ),
        ((DeviceRequest(device_class="gpu", mode="Other"),), ("gpu", 0)),
        ((DeviceRequest(device_class="gpu", count=DEVICES_MAX),) * 2, ("gpu", DEVICES_MAX)),
    ],
)
def test_gpus_of_requests(requests, expected):
    assert gpus_of(requests) == expected


def pod(*containers, init=(), **status):
    return parse(
        "Pod",
        {
            "metadata": {"name": "p", "namespace": "ns", "uid": "u"},
            "spec": {
                "containers": list(containers),
                "initContainers": list(init),
                "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "t"}],
            },
            "status": status,
        },
    )


def container(name, **requests):
    return {"name": name, "resources": {"requests": requests}}


def test_claims_made_from_templates_have_their_names():
    made = [
        {"name": "gpu", "resourceClaimName": "p-gpu-x"},
        {"name": "none", "resourceClaimName": None},
    ]
    assert pod(resourceClaimStatuses=made).claim_names == (("gpu", "p-gpu-x"),)


def test_extended_resources_stand_by_container():
    sidecar = {**container("s", **{"a.b/x": "1"}), "restartPolicy": "Always"}
    found = pod(
        container("plain", cpu="1"),
        container("main", **{"cpu": "1", "memory": "1Gi", "a.b/x": "2", "a.b/none": "0"}),
        init=[container("i", **{"nvidia.com/gpu": "1"}), sidecar],
    ).spec.extended
    assert [(c.index, c.name, c.kind, c.requests) for c in found] == [
        (0, "i", "init", (("nvidia.com/gpu", 0, 1),)),
        (1, "s", "sidecar", (("a.b/x", 0, 1),)),
        (3, "main", "", (("a.b/x", 1, 2),)),
    ]


def test_names_of_kubernetes_are_no_extended_resources():
    requests = {"kubernetes.io/batch-cpu": "1", "deviceclass.resource.kubernetes.io/c": "1"}
    found = pod(container("c", **requests)).spec.extended
    assert found[0].requests == (("deviceclass.resource.kubernetes.io/c", 0, 1),)
