"""Shape `trace`: all pods of a cluster trace pending at once (kai_es.simulate.trace).

The files are not part of the project; name them with `--nodes-file` and `--trace`, or in the
environment.
"""

import os
import time
from pathlib import Path
from typing import Any, Final

from benchmarks.cycles import best_cycle
from kai_es.kube.objects import Node, Pod, PodGroup, PriorityClass, Queue
from kai_es.kube.parse import parse
from kai_es.scheduler.config import Config
from kai_es.simulate.trace import import_trace
from kai_es.simulate.workload import Workload
from kai_es.snapshot.effective import GroupState
from kai_es.snapshot.lifecycle import Sighting, task_state
from kai_es.snapshot.snapshot import Snapshot

NODES_FILE: Final = "KAI_ES_TRACE_NODES"
PODS_FILE: Final = "KAI_ES_TRACE_PODS"


def files(nodes_file: Path | None, pods_file: Path | None) -> tuple[Path, Path] | None:
    """The files of the trace, None where they are not named."""
    nodes = nodes_file or os.environ.get(NODES_FILE)
    pods = pods_file or os.environ.get(PODS_FILE)
    return (Path(nodes), Path(pods)) if nodes and pods else None


def run(nodes_file: Path, pods_file: Path) -> dict[str, Any]:
    """The best of a few cycles, and the part of the cluster's GPUs that it gives away."""
    started = time.perf_counter()
    snapshot = load(import_trace(nodes_file, pods_file))
    result = best_cycle(snapshot, Config(withheld=()), started)
    result["pods"] = len(snapshot.pods)
    return result


def load(workload: Workload) -> Snapshot:
    """The rows of a workload, everything of it created and nothing placed."""
    snapshot = Snapshot()
    jobs = [raw for job in workload.jobs for raw in (job.group, *job.pods)]
    objects = (*workload.nodes, *workload.queues, *workload.priority_classes, *jobs)
    for raw in objects:
        if raw["kind"] == "Pod":
            raw = {**raw, "status": {"phase": "Pending"}}  # noqa: PLW2901 - as the server would
        match parse(raw["kind"], raw):
            case Node() as node:
                snapshot.set_node(node, rv=1)
            case Queue() as queue:
                snapshot.set_queue(queue, rv=1)
            case PriorityClass() as priority_class:
                snapshot.set_priority_class(priority_class, rv=1)
            case PodGroup() as group:
                snapshot.set_group(group, rv=1, state=GroupState())
            case Pod() as pod:
                snapshot.set_pod(pod, rv=1, task=task_state(Sighting(pod), ()))
    return snapshot
