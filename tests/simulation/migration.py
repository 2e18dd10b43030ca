"""A running KAI cluster is taken over: no pod restarts, no GPU is given away twice.

Run on a simulated and on a real API server; `docs/migration.md` says what users see.
"""

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from kai_es.audit.verify import verify
from kai_es.intake import takeover
from kai_es.runtime.instance import Instance
from kai_es.runtime.settings import Settings
from kai_es.runtime.wiring import open_log
from kai_es.simulate.runs import Run
from tests.cluster.parts import running
from tests.simulation import kai_cluster
from tests.simulation.api_client import Api, a_binding
from tests.simulation.kai_cluster import G1, G2, G3, G9, PODS, REQUESTS, RESERVATIONS

WAITING = {"alone-0", "little-0", "second-0", "asked-0", "left-0"}
SECONDS = 60.0


async def until(look):
    async with asyncio.timeout(SECONDS):
        while not (found := look()):
            await asyncio.sleep(0.05)
    return found


def by_name(api, path):
    return {pod["metadata"]["name"]: pod for pod in api.ok("GET", path)["items"]}


def gpu_of(api, group):
    """What the reservation pod of a group has got."""
    found = by_name(api, RESERVATIONS).values()
    (pod,) = [p for p in found if p["metadata"]["labels"]["runai-gpu-group"] == group]
    return pod["metadata"]["annotations"].get("run.ai/reserve_for_gpu_index", "")


def whole_gpus(api, node):
    """GPUs of a node that pods have asked its device plugin for."""
    pods = [*by_name(api, PODS).values(), *by_name(api, RESERVATIONS).values()]
    limits = [
        container["resources"].get("limits", {}).get("nvidia.com/gpu", "0")
        for pod in pods
        if pod["spec"].get("nodeName") == node
        for container in pod["spec"]["containers"]
    ]
    return sum(map(int, limits))


def shares(api):
    """Group -> the sum of what its users have of it."""
    found: dict[str, float] = {}
    for pod in by_name(api, PODS).values():
        labels, notes = pod["metadata"]["labels"], pod["metadata"]["annotations"]
        groups = {value for key, value in labels.items() if key.startswith("runai-gpu-group")}
        for group in groups if pod["spec"].get("nodeName") else ():
            found[group] = found.get(group, 0.0) + float(notes["gpu-fraction"])
    return found


async def started(api):
    """The cluster as KAI left it, once its kubelets have started what is bound."""
    kai_cluster.build(api)

    def all_run():
        pods = by_name(api, PODS) | by_name(api, RESERVATIONS)
        bound = [pod for pod in pods.values() if pod["spec"].get("nodeName")]
        return pods if all(pod["status"]["phase"] == "Running" for pod in bound) else None

    pods = await until(all_run)
    return {name: pod for name, pod in pods.items() if pod["spec"].get("nodeName")}


async def take_over(
    api: Api,
    kubeconfig: Path,
    folder: Path,
    runs: Callable[[], Sequence[Run]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Build the cluster, run kai-es on it, and check what became of everything.

    runs: what the kubelets have run.
    """
    monkeypatch.setattr(takeover, "BUSY_S", 0.3)
    before = await started(api)
    gpus = {group: gpu_of(api, group) for group in (G1, G2, G3)}
    assert all(gpus.values())
    async with running(kubeconfig, folder / "instance") as parts:
        # KAI's binder has not been stopped yet and executes what it was told
        await until(lambda: any("BindRequests" in text for text in parts.problems()))
        assert not [p for n, p in by_name(api, PODS).items() if n in WAITING and _is_bound(p)]
        asked = by_name(api, PODS)["asked-0"]["metadata"]
        api.ok("POST", f"{PODS}/asked-0/binding", a_binding("asked-0", "node-1", uid=asked["uid"]))
        api.patch(f"{REQUESTS}/asked-0/status", {"status": {"phase": "Succeeded"}})
        monkeypatch.setattr(takeover, "SUPERSEDED_MS", 0)  # its attempt can run no more

        def all_placed():
            pods = by_name(api, PODS)
            return all(pods[name]["status"]["phase"] == "Running" for name in WAITING)

        await parts.until(all_placed, seconds=SECONDS)
        marks = parts.view.world.snapshot.groups
        state = {row.group.name: row.state for row in marks.live()}

    after = by_name(api, PODS) | by_name(api, RESERVATIONS)
    for name, pod in before.items():
        if name in (kai_cluster.reservation_name("node-2", G9),):
            continue  # of the attempt that was broken off
        assert after[name]["metadata"]["uid"] == pod["metadata"]["uid"]
        assert "deletionTimestamp" not in after[name]["metadata"]
        assert after[name]["status"]["phase"] == "Running"
    for node in ("node-1", "node-2"):
        assert whole_gpus(api, node) <= 4
    found = shares(api)
    assert all(share <= 1.0 + 1e-9 for share in found.values()), found
    assert {group: gpu_of(api, group) for group in (G1, G2, G3)} == gpus
    assert found[G1] == pytest.approx(1.0)  # the tenth filled it up
    assert G9 not in found
    maps = api.ok("GET", "/api/v1/namespaces/team-a/configmaps")["items"]
    visible = {m["metadata"]["name"]: m.get("data", {}).get("NVIDIA_VISIBLE_DEVICES") for m in maps}
    assert visible["little-0-4kx7bq2-shared-gpu-0"] == gpus[G1]
    assert {row["metadata"]["name"] for row in api.ok("GET", REQUESTS)["items"]} >= {"train-0"}
    assert "left-0" not in {r["metadata"]["name"] for r in _foreign(api)}
    ledger = [run for run in runs() if run.pod_uid in _uids(before)]
    assert len({run.pod_uid for run in ledger}) == len(ledger) == len(before)
    # marks of the reference are taken from groups that the log has never seen
    assert state["train"].last_start_ms == 1_795_982_400_000
    assert state["stale"].stale_since_ms == 1_795_986_000_000
    async with open_log(Settings(data=Instance(folder / "instance").root)) as opened:
        assert (await verify(opened.log)).violations == []


def _is_bound(pod):
    return bool(pod["spec"].get("nodeName"))


def _uids(pods):
    return {pod["metadata"]["uid"] for pod in pods.values()}


def _foreign(api):
    found = api.ok("GET", REQUESTS)["items"]
    return [r for r in found if "kai.scheduler/mirror" not in r["metadata"].get("labels", {})]
