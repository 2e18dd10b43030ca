"""Cluster traces as workloads: the CSV files of the Alibaba GPU-2023 trace.

Nodes (`sn, cpu_milli, memory_mib, gpu, model`) become nodes whose label `nvidia.com/gpu.product` is
the model. Pods (`name, cpu_milli, memory_mib, num_gpu, gpu_milli`, optional `gpu_spec, qos,
creation_time, deletion_time, scheduled_time`) become a pod group of one pod each:

* `gpu_milli` below 1000 is a share of each device: annotation `gpu-fraction` (and
  `gpu-fraction-num-devices`), no whole GPU.
* `gpu_spec` is node affinity: the product is one of `A|B`.
* `qos` is the queue and the namespace, below the queue `trace`. The trace says nothing of quotas
  and priorities: the quota of a queue is the share of the GPUs that its pods ask for, without
  limit above it; all pods have the priority `train` and can be preempted.
* A pod comes `creation_time` after the first one and runs from `scheduled_time` (if it was never
  scheduled: from `creation_time`) to `deletion_time`, in seconds, divided by the speed. Without
  speed all come at once and none ends.
"""

import csv
import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from kai_es.kube.labels import GPU_FRACTION, GPU_FRACTION_DEVICES, GPU_PRODUCT_LABEL
from kai_es.kube.sharing import prepared
from kai_es.ports.errors import ConfigError
from kai_es.simulate.workload import (
    GPU_RESOURCE,
    Job,
    NodeShape,
    Object,
    Workload,
    node,
    pod,
    pod_group,
    priority_classes,
    queue,
)

ROOT_QUEUE: Final = "trace"
QOS_DEFAULT: Final = "BE"
"""Queue of pods in files without the column: the trace's word for best effort."""
PRIORITY_CLASS: Final = "train"
WHOLE_GPU_MILLI: Final = 1_000

NODE_COLUMNS: Final = ("sn", "cpu_milli", "memory_mib", "gpu", "model")
POD_COLUMNS: Final = ("name", "cpu_milli", "memory_mib", "num_gpu", "gpu_milli")

GPU_MEMORY_MIB: Final[Mapping[str, int]] = {
    "P100": 16_384,
    "T4": 15_360,
    "V100M16": 16_384,
    "V100M32": 32_768,
    "A10": 24_576,
}
"""Memory of the models that the trace names; G2 and G3 are anonymous, their nodes tell none."""

_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")


@dataclass(frozen=True, slots=True)
class _Row:
    """A row with where it stands, so that errors can say so."""

    path: Path
    line: int
    values: Mapping[str, str]

    def error(self, column: str, problem: str, fix: str) -> ConfigError:
        return ConfigError(
            f"{self.path}, line {self.line}, column {column}: "
            f"{self.values.get(column, '')!r} {problem}; {fix}"
        )

    def count(self, column: str) -> int:
        """A whole number of 0 or more."""
        text = self.values[column]
        if not (text.isascii() and text.isdigit()) or len(text) > 18:
            raise self.error(
                column, "is not a whole number of 0 or more", "correct or remove the row"
            )
        return int(text)

    def seconds(self, column: str) -> float | None:
        """A time in seconds, None where the column is empty or absent."""
        text = self.values.get(column, "")
        if not text:
            return None
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not 0 <= value < 1e12:
            raise self.error(
                column, "is not a time in seconds", "correct it, or leave it empty if unknown"
            )
        return value

    def name(self, column: str) -> str:
        """A name that Kubernetes takes."""
        text = self.values[column]
        if not _NAME.fullmatch(text):
            raise self.error(
                column,
                "is no name of a Kubernetes object",
                "use up to 63 of a-z, 0-9 and -, with a letter or digit at both ends",
            )
        return text


@dataclass(frozen=True, slots=True)
class _Pod:
    """A pod of the trace. Times in seconds of the trace; ended_s None = not known."""

    name: str
    requests: dict[str, str]
    n_gpus: int
    gpu_milli: int
    products: tuple[str, ...]
    queue_name: str
    created_s: float
    started_s: float
    ended_s: float | None


def import_trace(
    nodes_file: Path, pods_file: Path, *, speed: float | None = None, limit: int | None = None
) -> Workload:
    """The workload of a trace.

    Args:
        nodes_file: CSV of the nodes.
        pods_file: CSV of the pods.
        speed: times are divided by it; None = all pods at once, and none ends (`--speed max`).
        limit: take only that many pods from the start of the file.

    Raises:
        ConfigError: a file or a row cannot be used; names file, line, column and the fix.
    """
    if speed is not None and not 0 < speed < math.inf:
        raise ConfigError(f"--speed {speed}: want a number above 0, or max")
    nodes = list(_nodes(nodes_file))
    pods = list(_pods(pods_file, needs_times=speed is not None, limit=limit))
    n_gpus = sum(shape.n_gpus for _, shape in nodes)
    first_s = min(p.created_s for p in pods)
    jobs = [_job(p, speed, first_s) for p in pods]
    return Workload(
        nodes=tuple(node(name, shape) for name, shape in nodes),
        queues=_queues(pods, n_gpus),
        priority_classes=priority_classes(),
        jobs=tuple(sorted(jobs, key=lambda job: job.at_ms)),
    )


def _queues(pods: list[_Pod], n_gpus: int) -> tuple[Object, ...]:
    asked: Counter[str] = Counter()
    for p in pods:
        asked[p.queue_name] += p.n_gpus * p.gpu_milli
    total = max(1, sum(asked.values()))
    leaves = [
        queue(name, parent=ROOT_QUEUE, gpu_quota=n_gpus * asked[name] // total)
        for name in sorted(asked)
    ]
    return (queue(ROOT_QUEUE, gpu_quota=n_gpus), *leaves)


def _job(p: _Pod, speed: float | None, first_s: float) -> Job:
    group = pod_group(
        p.name,
        namespace=p.queue_name,
        queue_name=p.queue_name,
        min_member=1,
        priority_class=PRIORITY_CLASS,
    )
    at_ms, run_s = 0, None
    if speed is not None:
        at_ms = int((p.created_s - first_s) / speed * 1000)
        run_s = None if p.ended_s is None else (p.ended_s - p.started_s) / speed
    requests, annotations = dict(p.requests), {}
    if 0 < p.gpu_milli < WHOLE_GPU_MILLI:
        annotations[GPU_FRACTION] = f"{p.gpu_milli / WHOLE_GPU_MILLI:g}"
        if p.n_gpus > 1:
            annotations[GPU_FRACTION_DEVICES] = str(p.n_gpus)
    elif p.n_gpus:
        requests[GPU_RESOURCE] = str(p.n_gpus)
    affinity = _affinity(p.products) if p.products else None
    only = pod(p.name, group, requests, run_s=run_s, annotations=annotations, affinity=affinity)
    if annotations:
        only = prepared(only, f"{p.name}-shared-gpu")  # as an admission webhook does
    return Job(at_ms, group, (only,))


def _affinity(products: tuple[str, ...]) -> Object:
    term = {"key": GPU_PRODUCT_LABEL, "operator": "In", "values": list(products)}
    terms = [{"matchExpressions": [term]}]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    return {"nodeAffinity": required}


# -- rows


def _rows(path: Path, columns: tuple[str, ...]) -> Iterator[_Row]:
    """The rows of a file that has these columns.

    Raises:
        ConfigError: the file cannot be read, lacks a column, or a row has another length.
    """
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            reader = csv.reader(file)
            header = next(reader, [])
            missing = [column for column in columns if column not in header]
            if missing:
                raise ConfigError(
                    f"{path}, line 1: no column {', '.join(missing)}; "
                    f"the first line must name the columns {', '.join(columns)}"
                )
            for values in reader:
                if not values:
                    continue  # an empty line
                if len(values) != len(header):
                    raise ConfigError(
                        f"{path}, line {reader.line_num}: {len(values)} columns instead of "
                        f"{len(header)}; correct or remove the row"
                    )
                row = {k: v.strip() for k, v in zip(header, values, strict=True)}
                yield _Row(path, reader.line_num, row)
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise ConfigError(f"{path}: {error}; give a CSV file of the trace") from error


def _nodes(path: Path) -> Iterator[tuple[str, NodeShape]]:
    names = set()
    for row in _rows(path, NODE_COLUMNS):
        name, n_gpus, model = row.name("sn"), row.count("gpu"), row.values["model"]
        if name in names:
            raise row.error("sn", "is there twice", "remove one of the rows")
        if n_gpus and not _NAME.fullmatch(model.lower()):
            raise row.error("model", "is no GPU model", "name the model of the node's GPUs")
        names.add(name)
        yield (
            name,
            NodeShape(
                n_gpus,
                model,
                GPU_MEMORY_MIB.get(model, 0),
                row.count("cpu_milli"),
                row.count("memory_mib"),
            ),
        )
    if not names:
        raise ConfigError(f"{path}: no nodes; a workload needs at least one")


def _pods(path: Path, *, needs_times: bool, limit: int | None) -> Iterator[_Pod]:
    columns = (*POD_COLUMNS, "creation_time", "deletion_time") if needs_times else POD_COLUMNS
    names: set[str] = set()
    for row in _rows(path, columns):
        if limit is not None and len(names) >= limit:
            break
        if row.values["name"] in names:
            raise row.error("name", "is there twice", "remove one of the rows")
        names.add(row.values["name"])
        yield _pod(row)
    if not names:
        raise ConfigError(f"{path}: no pods; a workload needs at least one")


def _pod(row: _Row) -> _Pod:
    n_gpus, gpu_milli = row.count("num_gpu"), row.count("gpu_milli")
    if gpu_milli > WHOLE_GPU_MILLI or (gpu_milli > 0) != (n_gpus > 0):
        raise row.error(
            "gpu_milli",
            f"does not go with num_gpu {n_gpus}",
            "it is the share of each GPU: 1 to 1000, or 0 without GPUs",
        )
    qos = row.values.get("qos") or QOS_DEFAULT
    if not _NAME.fullmatch(qos.lower()):
        raise row.error("qos", "is no name for a queue", "use letters, digits and -")
    created_s = row.seconds("creation_time") or 0.0
    started_s = row.seconds("scheduled_time")
    ended_s = row.seconds("deletion_time")
    started_s = created_s if started_s is None else started_s
    if ended_s is not None and ended_s < max(started_s, created_s):
        raise row.error(
            "deletion_time", "is before the pod's start", "correct it, or leave it empty"
        )
    return _Pod(
        name=row.name("name"),
        requests={
            "cpu": f"{row.count('cpu_milli')}m",
            "memory": f"{row.count('memory_mib')}Mi",
        },
        n_gpus=n_gpus,
        gpu_milli=gpu_milli,
        products=tuple(dict.fromkeys(p for p in row.values.get("gpu_spec", "").split("|") if p)),
        queue_name=qos.lower(),
        created_s=created_s,
        started_s=started_s,
        ended_s=ended_s,
    )
