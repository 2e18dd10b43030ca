"""Each part under its own account and role; a missing rule is named."""

import pytest

from kai_es.binder.reserve import tell
from kai_es.cluster.api import ApiServer
from kai_es.cluster.endpoint import from_kubeconfig
from kai_es.intake.kinds import SOURCES, shards
from kai_es.kube.labels import GPU_FRACTION, GPU_INDEX, GROUP_STAMP, POD_GROUP_ANNOTATION
from kai_es.ports import cluster as ports
from kai_es.ports.errors import DeniedError
from kai_es.status.metrics import WRITES
from tests.cluster.identities import account, cluster_role, install_roles, manifests, without
from tests.cluster.parts import furnish, running
from tests.cluster.test_sharing import MAPS, phase, reserved, share
from tests.simulation import claims_scenario as scenario
from tests.simulation.api_client import GROUPS, PODS, Api, a_group, a_pod

PARTS = {
    "informer": "kai-es-informer",
    "snapshot": "kai-es-log-only",
    "scheduler": "kai-es-log-only",
    "binder": "kai-es-binder",
    "status": "kai-es-status",
}


@pytest.fixture
def accounts(cluster: Api, tmp_path):
    """Part -> kubeconfig; the roles are whole again after the test."""
    install_roles(cluster)
    furnish(cluster, 2)
    yield {part: account(cluster, name, tmp_path) for part, name in PARTS.items()}
    install_roles(cluster)


def job(api: Api, name: str, n_pods: int, gpus: int, **spec) -> None:
    """A pod group and its pods."""
    group = a_group(name)
    group["spec"] |= {"minMember": n_pods, **spec}
    meta = api.ok("POST", GROUPS, group)["metadata"]
    for n in range(n_pods):
        pod = a_pod(f"{name}-{n}", schedulerName="kai-scheduler")
        pod["metadata"]["annotations"] = {
            POD_GROUP_ANNOTATION: name,
            GROUP_STAMP: f"{meta['uid']}/{meta['generation']}",
        }
        limits = pod["spec"]["containers"][0]["resources"]["limits"]
        limits["nvidia.com/gpu"] = str(gpus)
        api.ok("POST", PODS, pod)


def placed(api: Api, name: str) -> int:
    items = api.ok("GET", PODS)["items"]
    return sum(
        bool(p["spec"].get("nodeName")) for p in items if p["metadata"]["name"].startswith(name)
    )


def queue_says(api: Api, name: str) -> bool:
    return bool(api.ok("GET", f"/apis/scheduling.run.ai/v2/queues/{name}").get("status"))


def unscheduled(api: Api, name: str) -> bool:
    conditions = api.ok("GET", f"{PODS}/{name}")["status"].get("conditions", ())
    return any(c["type"] == "PodScheduled" and c["status"] == "False" for c in conditions)


def refusals() -> float:
    (found,) = WRITES.collect()
    return sum(s.value for s in found.samples if s.labels.get("answer") == "refused")


async def test_parts_work_with_their_own_roles(cluster, accounts, kubelet, tmp_path):
    for priority, value in (("low", 10), ("high", 90)):
        path = "/apis/scheduling.k8s.io/v1/priorityclasses"
        cluster.call("POST", path, {"metadata": {"name": priority}, "value": value})
    before = refusals()
    async with running(None, tmp_path / "instance", (), others=accounts) as parts:
        job(cluster, "gang", 2, 8, priorityClassName="low")
        await parts.until(lambda: placed(cluster, "gang") == 2)
        # It takes the room of the gang: the binder deletes pods, too.
        job(cluster, "urgent", 2, 8, priorityClassName="high")
        await parts.until(lambda: placed(cluster, "urgent") == 2)
        await parts.until(lambda: queue_says(cluster, "team-a"))
        job(cluster, "large", 1, 9)
        await parts.until(lambda: unscheduled(cluster, "large-0"))
        assert refusals() == before, "the status writer was denied something"
        assert parts.problems() == []


async def test_binder_shares_devices_with_its_own_role(cluster, accounts, kubelet, tmp_path):
    """Reservation pods, config maps, labels."""
    async with running(None, tmp_path / "instance", (), others=accounts) as parts:
        share(cluster, "half", **{GPU_FRACTION: "0.5"})
        await parts.until(lambda: phase(cluster, "half") == "Running")
        assert cluster.ok("GET", f"{MAPS}/half-maps-0")["data"]["NVIDIA_VISIBLE_DEVICES"]
        assert len(reserved(cluster)) == 1
        cluster.ok("DELETE", f"{PODS}/half")
        await parts.until(lambda: not reserved(cluster))
        assert parts.problems() == []


async def test_binder_binds_claims_and_volumes_with_its_own_role(
    cluster, accounts, kubelet, tmp_path
):
    """Claims of pods and for extended resources, persistent volumes."""
    scenario.build(cluster, "node-1")
    async with running(None, tmp_path / "instance", (), others=accounts) as parts:
        await parts.until(lambda: scenario.all_run(cluster))
        scenario.check(cluster, "node-1")
        assert parts.problems() == []


async def test_reservation_program_needs_its_own_role_alone(cluster, accounts, tmp_path):
    space = "kai-resource-reservation"
    path = account(cluster, space, tmp_path, namespace=space)
    where = f"/api/v1/namespaces/{space}/pods"
    cluster.ok("POST", where, a_pod("reserving"))
    async with ApiServer(from_kubeconfig(str(path))) as port:
        assert await tell(port, space, "reserving", lambda: ["GPU-1"]) == "GPU-1"
        with pytest.raises(DeniedError):
            await port.list(ports.PODS, cluster.namespace)
    told = cluster.ok("GET", f"{where}/reserving")["metadata"]["annotations"]
    assert told == {GPU_INDEX: "GPU-1"}


async def test_binder_evicts_within_budgets_with_its_own_role(cluster, accounts, port, tmp_path):
    pod = cluster.bound_pod("victim")
    uid, rv = pod["metadata"]["uid"], int(pod["metadata"]["resourceVersion"])
    async with ApiServer(from_kubeconfig(str(accounts["binder"]))) as binder:
        answer = await binder.evict(cluster.namespace, "victim", uid=uid, rv=rv)
    assert answer.status == 201


async def test_informer_names_the_rule_that_it_lacks(cluster, accounts, tmp_path):
    without(cluster, "kai-es-informer", "podgroups")
    others = {"informer": accounts["informer"]}
    async with running(None, tmp_path / "instance", (), others=others) as parts:
        rule = '{apiGroups: ["scheduling.run.ai"], resources: [podgroups], verbs: [list]}'
        await parts.until(lambda: any(rule in text for text in parts.problems()))


async def test_binder_names_the_rule_that_it_lacks(cluster, accounts, tmp_path):
    without(cluster, "kai-es-binder", "pods/binding")
    async with running(None, tmp_path / "instance", (), others=accounts) as parts:
        job(cluster, "gang", 1, 8)
        rule = '{apiGroups: [""], resources: [pods/binding], verbs: [create]}'
        await parts.until(lambda: any(rule in text for text in parts.problems()))
        assert placed(cluster, "gang") == 0


def test_no_role_is_wider_than_it_looks():
    for obj in manifests():
        for rule in obj.get("rules", ()):
            words = [*rule["apiGroups"], *rule["resources"], *rule["verbs"]]
            assert "*" not in words, obj["metadata"]["name"]
            assert "secrets" not in rule["resources"]
    subjects = [s["name"] for obj in manifests() for s in obj.get("subjects", ())]
    assert "kai-es-log-only" not in subjects


def test_informer_may_watch_what_it_watches():
    role = cluster_role("kai-es-informer")
    allowed = {
        (group, resource)
        for rule in role["rules"]
        if "watch" in rule["verbs"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
    }
    watched = set()
    for source in (*SOURCES, shards(dict)):
        group, _, _ = source.resource.api_version.rpartition("/")
        watched.add((group, source.resource.plural))
    assert allowed == watched
