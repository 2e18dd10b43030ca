"""The program in a reservation pod, as a process against the simulated API server."""

import os
import signal
import stat
import subprocess
import sys
import time

import pytest

from kai_es.binder.reserve import ReserveError
from kai_es.runtime.gpus import by_library
from kai_es.simulate.cluster import ClusterProcess
from tests.simulation.api_client import Api, a_pod

SMI = """#!/bin/sh
printf '%s' "$UUIDS"
"""
PODS = "/api/v1/namespaces/kai-resource-reservation/pods"
ANNOTATION = "run.ai/reserve_for_gpu_index"


@pytest.fixture(scope="module")
def api(tmp_path_factory):
    with ClusterProcess(tmp_path_factory.mktemp("cluster"), "--no-kubelet") as cluster:
        api = Api(str(cluster.kubeconfig), "ns", lambda: None)
        api.kubeconfig = str(cluster.kubeconfig)
        yield api
        api.close()


def start(api, tmp_path, *arguments, uuids="GPU-1\n", **environment):
    script = tmp_path / "nvidia-smi"
    script.write_text(SMI)
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
    values = {"POD_NAMESPACE": "kai-resource-reservation", "POD_NAME": "r", "UUIDS": uuids}
    path = f"{tmp_path}:{os.environ['PATH']}"
    command = [sys.executable, "-m", "kai_es.cli", "resource-reservation"]
    return subprocess.Popen(
        [*command, "--kubeconfig", api.kubeconfig, *arguments],
        env=os.environ | values | environment | {"PATH": path},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.fixture
def pod(api):
    api.ok("POST", PODS, a_pod("r"))
    yield lambda: api.ok("GET", f"{PODS}/r")["metadata"].get("annotations", {})
    api.call("DELETE", f"{PODS}/r", {"gracePeriodSeconds": 0})


def test_it_tells_its_gpu_and_stays_until_it_is_told_to_end(api, pod, tmp_path):
    process = start(api, tmp_path)
    try:
        deadline = time.monotonic() + 60
        while ANNOTATION not in pod():
            assert time.monotonic() < deadline, process.communicate(timeout=1)
            time.sleep(0.05)
        assert pod()[ANNOTATION] == "GPU-1"
        assert process.poll() is None
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) in (0, -signal.SIGTERM)
    finally:
        process.kill()
        process.communicate()


def test_it_does_not_look_again_after_a_restart(api, pod, tmp_path):
    meta = api.ok("GET", f"{PODS}/r")["metadata"]
    api.patch(f"{PODS}/r", {"metadata": {"annotations": {ANNOTATION: "GPU-0"}}})
    process = start(api, tmp_path, "--once")
    assert process.communicate(timeout=60)[0] == "reserved: GPU-0\n"
    assert pod()[ANNOTATION] == "GPU-0"
    assert meta["name"] == "r"


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"uuids": "GPU-1\nGPU-2\n"}, "found 2 devices, 1 was expected"),
        ({"uuids": ""}, "found 0 devices, 1 was expected"),
        ({"POD_NAMESPACE": ""}, "could not get pod details, err: could not find pod namespace"),
        ({"POD_NAME": ""}, "could not get pod details, err: could not find pod name"),
    ],
)
def test_it_fails_and_says_why(api, pod, tmp_path, changes, problem):
    process = start(api, tmp_path, "--once", **changes)
    _, said = process.communicate(timeout=60)
    assert (process.returncode, said) == (1, f"Error while running the app: {problem}\n")
    assert ANNOTATION not in pod()


class Library:
    """NVML with some devices."""

    def __init__(self, *uuids, broken=""):
        self.uuids = [uuid.encode() for uuid in uuids]
        self.broken = broken

    def __getattr__(self, name):
        return lambda *arguments: self._call(name, *arguments)

    def _call(self, name, *arguments):
        if name == self.broken:
            return 999
        if name == "nvmlDeviceGetCount_v2":
            arguments[0]._obj.value = len(self.uuids)
        elif name == "nvmlDeviceGetHandleByIndex_v2":
            arguments[1]._obj.value = 100 + arguments[0].value
        elif name == "nvmlDeviceGetUUID":
            arguments[1].value = self.uuids[arguments[0].value - 100]
        return 0


def test_devices_as_nvml_says_them():
    assert by_library(Library("GPU-a", "GPU-b")) == ["GPU-a", "GPU-b"]
    with pytest.raises(ReserveError, match="nvmlInit_v2 failed with NVML error 999"):
        by_library(Library(broken="nvmlInit_v2"))
