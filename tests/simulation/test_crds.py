"""deploy/crds: what a real API server must be given before informers find their kinds."""

import copy
from pathlib import Path

import pytest

from kai_es.kube.parse import KINDS
from kai_es.simulate.workload import Sizes, generate
from tests.manifests import documents

FILES = sorted((Path(__file__).parents[2] / "deploy" / "crds").glob("*.yaml"))
DEFINITIONS = {d["spec"]["names"]["kind"]: d for file in FILES for d in documents(file)}
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


def schema_of(kind):
    return DEFINITIONS[kind]["spec"]["versions"][0]["schema"]["openAPIV3Schema"]


def unknown(obj, schema, where=""):
    """Paths of fields that the schema would have pruned."""
    if schema.get("x-kubernetes-preserve-unknown-fields"):
        return
    if isinstance(obj, list):
        for n, item in enumerate(obj):
            yield from unknown(item, schema["items"], f"{where}[{n}]")
    elif isinstance(obj, dict) and "properties" in schema:
        for key, value in obj.items():
            if key not in schema["properties"]:
                yield f"{where}.{key}"
            elif key != "metadata":
                yield from unknown(value, schema["properties"][key], f"{where}.{key}")


@pytest.mark.parametrize("kind", DEFINITIONS)
def test_the_server_takes_it(kind, api):
    definition = copy.deepcopy(DEFINITIONS[kind])
    status, answer = api.call("POST", CRDS, definition)
    assert status in (201, 409), answer


@pytest.mark.parametrize("kind", sorted(DEFINITIONS.keys() & KINDS.keys()))
def test_its_version_is_the_one_that_is_read(kind):
    spec = DEFINITIONS[kind]["spec"]
    assert f"{spec['group']}/{spec['versions'][0]['name']}" == KINDS[kind].api_version


def test_every_kind_of_ours_has_a_definition():
    ours = {
        kind
        for kind, row in KINDS.items()
        if row.api_version.startswith(("scheduling.run.ai/", "kai.scheduler/"))
    }
    assert ours - {"ShardConfig"} <= DEFINITIONS.keys()
    assert "SchedulingShard" in DEFINITIONS


def test_generated_objects_lose_nothing():
    workload = generate(1, Sizes(n_nodes=4, n_jobs=20))
    for queue in workload.queues:
        assert list(unknown(queue, schema_of("Queue"))) == []
    for job in workload.jobs:
        assert list(unknown(job.group, schema_of("PodGroup"))) == []


def test_an_unknown_field_is_found():
    queue = {"spec": {"resources": {"gpu": {"quota": 1, "weight": 2}}}}
    assert list(unknown(queue, schema_of("Queue"))) == [".spec.resources.gpu.weight"]
