"""Whatever the API server says: a parser gives an object or `InvalidObjectError`, nothing else."""

import copy

import msgspec
from hypothesis import example, given, settings
from hypothesis import strategies as st

from kai_es.kube.errors import InvalidObjectError
from kai_es.kube.objects import ClusterObject
from kai_es.kube.parse import KINDS, parse
from kai_es.kube.parse_pod import read_leniently
from projectors.objects import undecodable_row

SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text(max_size=8)
    | st.sampled_from(
        ["1", "-1", "1Gi", "1e999", "0.5", "2026-01-01T00:00:00Z", "1h", "/", "9" * 70]
    )
    | st.sampled_from([2**63, -(2**63) - 1, 10**400, 1e300])
)
JSON = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3)
    ),
    max_leaves=8,
)
POD = {
    "apiVersion": "v1",
    "metadata": {
        "name": "p",
        "uid": "u",
        "namespace": "n",
        "creationTimestamp": "2026-01-01T00:00:00Z",
        "labels": {"runai-gpu-group": "g", "runai-gpu-group/x": "x"},
        "annotations": {
            "gpu-fraction": "0.5",
            "gpu-memory": "5",
            "gpu-fraction-num-devices": "2",
            "nvidia.com/mig-1g.5gb": "1",
            "kai.scheduler/podgroup-stamp": "g/1",
        },
        "ownerReferences": [{"kind": "Job", "name": "j", "controller": True}],
    },
    "spec": {
        "nodeName": "n1",
        "containers": [
            {
                "resources": {"requests": {"cpu": "1", "nvidia.com/gpu": 1, "a/b": "1"}},
                "ports": [{"hostPort": 1}],
                "env": [{"valueFrom": {"configMapKeyRef": {"name": "c"}}}],
                "envFrom": [{"configMapRef": {"name": "c"}}],
                "volumeMounts": [{"name": "v"}],
            }
        ],
        "initContainers": [{"restartPolicy": "Always", "resources": {"requests": {"cpu": 2}}}],
        "overhead": {"cpu": "1"},
        "affinity": {
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {
                    "nodeSelectorTerms": [
                        {"matchExpressions": [{"key": "k", "operator": "Exists"}]}
                    ]
                }
            }
        },
        "tolerations": [{"key": "k"}],
        "volumes": [
            {"name": "v", "configMap": {"name": "c"}},
            {"name": "e", "ephemeral": {}},
            {"name": "h", "hostPath": {"path": "/"}},
        ],
        "resourceClaims": [{"name": "r", "resourceClaimName": "r"}],
        "priority": 5,
    },
    "status": {"phase": "Running", "startTime": "2026-01-01T00:00:00Z"},
}
NODE = {
    "metadata": {"name": "n", "uid": "u", "labels": {"nvidia.com/gpu.memory": "4096"}},
    "spec": {"taints": [{"key": "k", "effect": "e"}]},
    "status": {
        "allocatable": {"cpu": "1", "nvidia.com/gpu": "1"},
        "conditions": [{"type": "Ready", "status": "True"}],
    },
}
GROUP = {
    "metadata": {
        "name": "g",
        "uid": "u",
        "annotations": {"kai.scheduler/top-owner-metadata": "kind: J"},
    },
    "spec": {
        "queue": "q",
        "minMember": 1,
        "preemptionDelay": "1s",
        "topologyConstraint": {"topology": "t"},
        "subGroups": [{"name": "a", "minMember": 1}],
    },
    "status": {"schedulingConditions": [{"transitionID": "1"}]},
}
QUEUE = {"metadata": {"name": "q", "uid": "u"}, "spec": {"resources": {"gpu": {"quota": 1}}}}
NODE_SELECTOR = {"nodeSelectorTerms": [{"matchFields": [{"key": "k", "operator": "In"}]}]}
EXACTLY = {
    "deviceClassName": "gpu",
    "allocationMode": "ExactCount",
    "count": 2,
    "selectors": [{"cel": {"expression": "true"}}],
    "tolerations": [{"key": "t", "operator": "Exists"}],
}
CLAIM = {
    "metadata": {"name": "c", "uid": "u", "ownerReferences": [{"kind": "Pod", "uid": "p"}]},
    "spec": {
        "devices": {
            "requests": [
                {"name": "r", "exactly": EXACTLY},
                {"name": "f", "firstAvailable": [{"name": "s", **EXACTLY}]},
            ],
            "constraints": [{"requests": ["r"], "matchAttribute": "a/b"}],
        }
    },
    "status": {
        "allocation": {
            "devices": {"results": [{"request": "r", "driver": "d", "pool": "p", "device": "0"}]},
            "nodeSelector": NODE_SELECTOR,
        },
        "reservedFor": [{"resource": "pods", "name": "p", "uid": "p"}],
    },
}
SLICE = {
    "metadata": {"name": "s", "uid": "u"},
    "spec": {
        "driver": "d",
        "pool": {"name": "p", "generation": 1, "resourceSliceCount": 1},
        "nodeName": "n",
        "devices": [
            {
                "name": "0",
                "attributes": {"a": {"string": "x"}, "b": {"version": "1.0.0"}, "c": {"int": 1}},
                "capacity": {"memory": {"value": "40Gi"}},
                "taints": [{"key": "k", "effect": "NoSchedule"}],
            }
        ],
    },
}
TEMPLATES = {
    "Pod": POD,
    "Node": NODE,
    "PodGroup": GROUP,
    "Queue": QUEUE,
    "PriorityClass": {"metadata": {"name": "c", "uid": "u"}, "value": 1},
    "ShardConfig": {"metadata": {"name": "s", "uid": "u"}, "settings": {"a": {"b": 1}}},
    "ResourceClaim": CLAIM,
    "ResourceSlice": SLICE,
    "DeviceClass": {
        "metadata": {"name": "c", "uid": "u"},
        "spec": {"selectors": [{"cel": {"expression": "true"}}], "extendedResourceName": "a/b"},
    },
    "Namespace": {"metadata": {"name": "n", "uid": "u", "labels": {"a": "b"}}},
    "Topology": {
        "metadata": {"name": "t", "uid": "u"},
        "spec": {"levels": [{"nodeLabel": "zone", "alias": "z"}, {"nodeLabel": "rack"}]},
    },
    "NodeResourceTopology": {
        "metadata": {"name": "n", "uid": "u"},
        "attributes": [{"name": "topologyManagerPolicy", "value": "restricted"}],
        "topologyPolicies": ["Restricted"],
        "zones": [
            {
                "name": "node-0",
                "type": "Node",
                "resources": [{"name": "cpu", "allocatable": "8", "available": "4"}],
            }
        ],
    },
    "ConfigMap": {"metadata": {"name": "c", "namespace": "ns", "uid": "u"}},
    "PersistentVolumeClaim": {
        "metadata": {
            "name": "c",
            "namespace": "ns",
            "uid": "u",
            "ownerReferences": [{"kind": "Pod", "name": "p", "uid": "p"}],
        },
        "spec": {
            "storageClassName": "s",
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "1Gi"}},
            "selector": {"matchLabels": {"a": "b"}},
        },
        "status": {"phase": "Pending"},
    },
    "PersistentVolume": {
        "metadata": {"name": "v", "uid": "u", "labels": {"a": "b"}},
        "spec": {
            "capacity": {"storage": "1Gi"},
            "claimRef": {"namespace": "ns", "name": "c", "uid": "u"},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": []}]}},
        },
        "status": {"phase": "Bound"},
    },
    "StorageClass": {
        "metadata": {"name": "s", "uid": "u"},
        "provisioner": "d",
        "volumeBindingMode": "WaitForFirstConsumer",
        "allowedTopologies": [{"matchLabelExpressions": [{"key": "zone", "values": ["a"]}]}],
    },
    "CSIDriver": {"metadata": {"name": "d", "uid": "u"}, "spec": {"storageCapacity": True}},
    "CSIStorageCapacity": {
        "metadata": {"name": "x", "namespace": "ns", "uid": "u"},
        "storageClassName": "s",
        "capacity": "1Ti",
        "maximumVolumeSize": "1Gi",
        "nodeTopology": {"matchLabels": {"zone": "a"}},
    },
}


def paths_of(value, path=()):
    yield path
    if isinstance(value, dict):
        for key in value:
            yield from paths_of(value[key], (*path, key))
    elif isinstance(value, list):
        for i, item in enumerate(value):
            yield from paths_of(item, (*path, i))


@st.composite
def damaged(draw):
    """A valid object of some kind with one to three places replaced by arbitrary JSON."""
    kind = draw(st.sampled_from(sorted(TEMPLATES)))
    raw = {"o": copy.deepcopy(TEMPLATES[kind])}
    for _ in range(draw(st.integers(1, 3))):
        path = draw(st.sampled_from(list(paths_of(raw))[1:]))
        parent = raw
        for step in path[:-1]:
            parent = parent[step]
        parent[path[-1]] = draw(JSON)
    return kind, raw["o"]


def parses_or_is_refused(kind, raw):
    before = copy.deepcopy(raw)
    refusal = None
    try:
        obj = parse(kind, raw)
    except InvalidObjectError as exc:
        refusal = exc
    else:
        again = msgspec.msgpack.decode(msgspec.msgpack.encode(obj), type=ClusterObject)
        assert again == obj, "a row survives the log"
    if refusal is not None:
        assert kind in refusal.what
        assert "want" in refusal.problem
    if kind == "Pod":
        node, phase, requests = read_leniently(raw)
        assert isinstance(node, str)
        assert isinstance(phase, str)
        assert all(isinstance(v, int) and v >= 0 for v in requests.values())
    assert raw == before, "parsing changes nothing"


@given(damaged())
@settings(max_examples=400)
def test_damaged_objects_parse_or_are_refused(case):
    parses_or_is_refused(*case)


@given(st.sampled_from(sorted(KINDS)), JSON)
@settings(max_examples=100)
@example("Pod", {"metadata": {"name": "p", "uid": "u"}, "spec": {"priority": 10**5000}})
def test_arbitrary_json_parses_or_is_refused(kind, raw):
    parses_or_is_refused(kind, raw)


def test_templates_are_valid():
    for kind, raw in TEMPLATES.items():
        assert parse(kind, raw)


@given(st.text(max_size=10), st.binary(max_size=30) | JSON.map(lambda j: repr(j).encode()))
@settings(max_examples=100)
def test_undecodable_bytes_are_parked(key, value):
    assert undecodable_row(key, value, error="e", source="s").uid == key.partition("/")[2]


@given(damaged())
@settings(max_examples=50)
def test_lenient_read_equals_the_parser_on_valid_pods(case):
    kind, raw = case
    if kind != "Pod":
        return
    try:
        pod = parse(kind, raw)
    except InvalidObjectError:
        return
    assert read_leniently(raw) == (pod.node, pod.phase, pod.spec.requests)
