"""The manifests of deploy/examples apply and schedule, pod groups made by hand."""

import asyncio

import pytest

from kai_es.kube.labels import BOUND_REQUEST
from tests.cluster.conftest import MANIFESTS
from tests.cluster.parts import a_node, running, waiting_reasons
from tests.cluster.workloads import PATHS, apply
from tests.manifests import documents
from tests.simulation.api_client import PODS, Api

EXAMPLES = sorted((MANIFESTS / "examples").glob("*.yaml"))
NODES = "/api/v1/nodes"
ZONE, RACK = "topology.kubernetes.io/zone", "topology.kubernetes.io/rack"
WAIT = {"notebook", "patient"}
"""Their manifests say why they have to wait."""
LATER = {"patient"}
"""It is more important than the pod that it then waits for."""
SHARED = {"half", "two-gib", "quarter-of-two", "warm-up"}
"""They want what an admission webhook writes on pods that share devices."""


@pytest.fixture
def furnished(cluster: Api) -> Api:
    """12 nodes in 2 zones of 3 racks each, default classes and queues."""
    for n in range(12):
        labels = {ZONE: f"zone-{n // 6}", RACK: f"rack-{n // 2}"}
        cluster.ok("POST", NODES, a_node(f"node-{n:02}", labels=labels))
    for path in sorted((MANIFESTS / "defaults").glob("*.yaml")):
        for obj in documents(path):
            status, answer = cluster.call("POST", PATHS[obj["kind"]], obj)
            assert status in (201, 409), answer
    return cluster


def node_of(pods: dict[str, dict], name: str) -> dict:
    return pods[name]["spec"]["nodeName"]


async def test_examples_schedule(furnished, kubeconfig, kubelet, tmp_path):
    names: set[str] = set()
    async with running(kubeconfig, tmp_path / "instance") as parts:
        later: list[dict] = []
        for path in EXAMPLES:
            first = [o for o in documents(path) if o["metadata"]["name"] not in LATER]
            names |= set(await asyncio.to_thread(apply, furnished, first))
            later += [o for o in documents(path) if o["metadata"]["name"] in LATER]
        wanted = names - WAIT - SHARED

        def pods() -> dict[str, dict]:
            items = furnished.ok("GET", PODS)["items"]
            return {p["metadata"]["name"]: p for p in items}

        def placed() -> set[str]:
            return {n for n, p in pods().items() if p["status"]["phase"] == "Running"}

        await parts.until(lambda: wanted <= placed())
        names |= set(await asyncio.to_thread(apply, furnished, later))
        assert names >= WAIT | SHARED
        await parts.until(
            lambda: {"pg-notebook", "pg-patient"} <= waiting_reasons(parts.view).keys()
        )
        assert not WAIT & placed()

    assert all(BOUND_REQUEST in pods()[name]["metadata"]["annotations"] for name in wanted)
    now, nodes = pods(), furnished.ok("GET", NODES)["items"]
    labels = {n["metadata"]["name"]: n["metadata"]["labels"] for n in nodes}

    def places(prefix: str, label: str) -> set[str]:
        return {labels[node_of(now, n)][label] for n in wanted if n.startswith(prefix)}

    assert len(places("same-rack-", RACK)) == len(places("near-", RACK)) == 1
    assert len(places("trainers-", RACK)) == len(places("far-", ZONE)) == 1
    assert len(places("trainers-", ZONE) | places("judges-", ZONE) | places("lead", ZONE)) == 1


def test_no_field_of_an_example_is_pruned(cluster):
    """Real servers drop fields of custom kinds that their definition does not know."""
    for path in EXAMPLES:
        for obj in documents(path):
            if obj["kind"] not in ("Pod", "Job"):
                made = cluster.ok("POST", PATHS[obj["kind"]] + "?dryRun=All", obj)
                assert made["spec"] == obj["spec"], path.name
