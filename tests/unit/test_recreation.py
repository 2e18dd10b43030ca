import pytest

from kai_es.kube.labels import RECREATE
from kai_es.simulate.recreation import again, wants_again

POD = {
    "metadata": {
        "name": "a-0",
        "namespace": "n",
        "uid": "u",
        "resourceVersion": "7",
        "labels": {"team": "x", "runai-gpu-group": "g", "runai-gpu-group/g": "g"},
        "annotations": {
            RECREATE: "true",
            "pod-group-name": "a",
            "kai.scheduler/closed-request": "default/1/u",
            "received-resource-type": "Fraction",
        },
    },
    "spec": {"nodeName": "node-1", "containers": [{"name": "main"}]},
    "status": {"phase": "Running"},
}


def test_a_pod_made_again_has_nothing_of_its_last_run():
    pod = again(POD)
    assert pod["metadata"] == {
        "name": "a-0",
        "namespace": "n",
        "labels": {"team": "x"},
        "annotations": {RECREATE: "true", "pod-group-name": "a"},
    }
    assert pod["spec"] == {"containers": [{"name": "main"}]}
    assert "status" not in pod


@pytest.mark.parametrize(
    ("phase", "asks", "wants"),
    [
        ("Running", "true", True),
        ("Pending", "true", True),
        ("Succeeded", "true", False),
        ("Failed", "true", False),
        ("Running", "false", False),
        ("Running", None, False),
    ],
)
def test_only_unfinished_pods_that_ask_for_it_are_made_again(phase, asks, wants):
    notes = {} if asks is None else {RECREATE: asks}
    pod = {"metadata": {"annotations": notes}, "status": {"phase": phase}}
    assert wants_again(pod) is wants
