"""The server that the tests start: whom it knows, what it keeps, when it ends."""

import subprocess
import sys
import time

import psutil
import pytest

from kai_es.ports import cluster as ports
from tests.cluster.conftest import sweep
from tests.simulation.api_client import PODS, Api
from tools import kubernetes
from tools.kubernetes.binaries import binaries


def test_others_than_the_admin_may_do_nothing(api, kubeconfig):
    other = Api(str(kubeconfig.with_name("nobody.kubeconfig")), api.namespace, lambda: None)
    answer = other.fails(403, "GET", PODS)
    assert 'User "nobody" cannot list resource "pods"' in answer["message"]
    other.close()


def test_service_accounts_get_tokens(api):
    api.ok("POST", "/api/v1/namespaces/{ns}/serviceaccounts", {"metadata": {"name": "part"}})
    path = "/api/v1/namespaces/{ns}/serviceaccounts/part/token"
    token = api.ok("POST", path, {"spec": {}})["status"]["token"]
    answer = api.fails(403, "GET", PODS, Authorization=f"Bearer {token}")
    assert f'User "system:serviceaccount:{api.namespace}:part"' in answer["message"]


async def test_kubelet_runs_what_is_bound(cluster, port, kubelet):
    status = {"capacity": {"cpu": "8", "pods": "10"}, "allocatable": {"cpu": "8", "pods": "10"}}
    cluster.ok("POST", "/api/v1/nodes", {"metadata": {"name": "node-1"}, "status": status})
    cluster.bound_pod("a")
    deadline = time.monotonic() + 20
    async for items in port.watch(ports.PODS, rv=0, silence_s=20):
        if any(i.object.get("status", {}).get("phase") == "Running" for i in items):
            break
        assert time.monotonic() < deadline
    sweep(cluster)
    assert (await port.list_page(ports.NODES, limit=10, token="")).items == ()


def test_server_ends_with_its_parent(tmp_path):
    code = (
        "import sys, time; from pathlib import Path\n"
        "from tools.kubernetes import Kubernetes\n"
        "server = Kubernetes(Path(sys.argv[1]))\n"
        "server.start_etcd()\n"
        "print(server._etcd.pid, flush=True)\n"
        "time.sleep(60)\n"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "server")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as parent:
        etcd = psutil.Process(int(parent.stdout.readline()))
        parent.kill()
    deadline = time.monotonic() + 10
    while etcd.is_running() and etcd.status() != psutil.STATUS_ZOMBIE:  # init may reap it later
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_without_go_the_message_names_both_ways_out(tmp_path, monkeypatch):
    monkeypatch.delenv("KUBEBUILDER_ASSETS", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", "")
    with pytest.raises(RuntimeError, match=r"need `go` .* set KUBEBUILDER_ASSETS"):
        binaries()
    assert not [p for p in (tmp_path / "kai-es").iterdir() if p.is_dir()]


def test_own_binaries_are_used(tmp_path, monkeypatch):
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(tmp_path))
    (tmp_path / "etcd").touch()
    with pytest.raises(RuntimeError, match="has no kube-apiserver"):
        binaries()
    (tmp_path / "kube-apiserver").touch()
    assert kubernetes.binaries() == tmp_path
