"""A session against the expectations of a case."""

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from kai_es.events.decisions import Bind, Evict, Pipeline
from kai_es.kube.labels import GPU_MICRO
from kai_es.scheduler.columns.jobs import Job
from kai_es.scheduler.columns.nodes import NO_ROW
from kai_es.scheduler.columns.resources import GPU_ROW
from kai_es.scheduler.framework.failures import task_reason
from kai_es.scheduler.framework.session import Session
from kai_es.scheduler.plugins.numa import Numa
from kai_es.scheduler.reasons import render
from kai_es.snapshot.status import TaskStatus
from tests.conformance.scheduler_cases.world import NOW_MS, STARTED, STATUS, World

TOLERANCE = 1e-6

Case = Mapping[str, Any]


class View:
    """What a session holds, by the names of the case."""

    def __init__(self, session: Session, world: World) -> None:
        self.session = session
        self.world = world
        self.row = {pod.pod.uid: pod.row for pod in session.rows if pod is not None}

    def status(self, task: str) -> TaskStatus:
        return TaskStatus(self.session.status[self.row[task]])

    def node(self, task: str) -> str | None:
        n = self.session.node_of(self.row[task])
        return None if n == NO_ROW else self.session.nodes.columns.facts[n].name

    def groups(self, task: str) -> tuple[str, ...]:
        return self.session.groups_of(self.row[task])

    def zones(self, task: str) -> list[str]:
        """Names of the NUMA zones that a task has."""
        row, zones = self.row[task], self.session.ext.zones
        n = self.session.node_of(row)
        return [] if zones is None or n == NO_ROW else sorted(z.zone for z in zones(row, n))

    def job(self, name: str) -> Job:
        return next(job for job in self.session.columns.jobs.values() if job.name == name)

    def accepted(self, task: str) -> float:
        n = self.session.node_of(self.row[task])
        return 0.0 if n == NO_ROW else self.session.fair(self.row[task], n)[2] / GPU_MICRO


def differences(view: View) -> Iterator[str]:
    """Everything that is not as expected."""
    expect = view.world.case["expect"]
    jobs = {job["name"]: job for job in view.world.case["jobs"]}
    for name, want in expect["jobs"].items():
        tasks = [task["name"] for task in jobs[name]["tasks"]]
        yield from _tasks(view, f"job {name}", tasks, want)
        yield from _job(view, name, want)
        yield from _job_errors(view, name, want)
    for name, want in expect["tasks"].items():
        yield from _tasks(view, f"task {name}", [name], want)
        yield from _task_error(view, name, want)
    yield from _nodes(view, expect["nodes"])
    for status, number in (expect.get("status_totals") or {}).items():
        got = sum(1 for task in view.world.tasks if view.status(task) is STATUS[status.lower()])
        if got != number:
            yield f"{got} tasks are {status}, want {number}"
    yield from _domains(view, expect.get("domains") or ())


def _tasks(view: View, what: str, tasks: list[str], want: Case) -> Iterator[str]:
    wanted = STATUS[want["status"].lower()]
    for task in tasks:
        status = view.status(task)
        if status is not wanted:
            yield f"{what}: {task} is {status.name} on {view.node(task)}, want {wanted.name}"
        elif want.get("node") and view.node(task) != want["node"]:
            yield f"{what}: {task} is on {view.node(task)}, want {want['node']}"
        if "numa_zones" in want and view.zones(task) != sorted(want["numa_zones"]):
            yield f"{what}: {task} has zones {view.zones(task)}, want {want['numa_zones']}"
    rows = [view.session.row(view.row[task]) for task in tasks]
    sums = {
        "gpus_requested": sum(row.shape.gpu for row in rows) / GPU_MICRO,
        "cpu_millicores_requested": sum(row.shape.fair[0] for row in rows),
        "memory_bytes_requested": sum(row.shape.fair[1] for row in rows),
    }
    if "gpus_accepted" in want:
        sums["gpus_accepted"] = sum(view.accepted(task) for task in tasks)
    for key, got in sums.items():
        if key in want and abs(got - want[key]) > TOLERANCE:
            yield f"{what}: {key} is {got}, want {want[key]}"


def _job(view: View, name: str, want: Case) -> Iterator[str]:
    job = view.job(name)
    start = view.session.ledger.marks(job).last_start_ms
    if STATUS[want["status"].lower()] in STARTED and not start:
        yield f"job {name}: has no start time"
    age = want.get("last_start_min_age_seconds")
    if age is not None and NOW_MS - start < 1000 * age:
        yield f"job {name}: started {NOW_MS - start} ms ago, want {age} s or more"


def _job_errors(view: View, name: str, want: Case) -> Iterator[str]:
    failures = view.session.failures.jobs  # perhaps those of the round before, with other jobs
    reasons = next((reasons for job, reasons in failures.items() if job.name == name), [])
    if "fit_error" in want:
        got = render.pod_group_detailed(reasons)
        if got != want["fit_error"]:
            yield f"job {name}: fit error is {got!r}, want {want['fit_error']!r}"
    if "fit_error_contains" in want:
        found = render.job_errors(reasons)
        first = found[0].detailed if found else ""
        if not found or want["fit_error_contains"] not in first:
            yield f"job {name}: first fit error is {first!r}, want {want['fit_error_contains']!r}"


def _task_error(view: View, name: str, want: Case) -> Iterator[str]:
    if "fit_error_contains" not in want:
        return
    failure = view.session.failures.tasks.get(view.row[name])
    pod = view.session.row(view.row[name]).pod
    got = (
        ""
        if failure is None
        else render.task_message(task_reason(failure), f"{pod.namespace}/{pod.name}")
    )
    if want["fit_error_contains"] not in got:
        yield f"task {name}: fit error is {got!r}, want {want['fit_error_contains']!r}"


def _nodes(view: View, nodes: Mapping[str, Case]) -> Iterator[str]:
    state = view.session.nodes
    for name, want in nodes.items():
        n = state.columns.row[name]
        idle = int(state.idle[GPU_ROW, n])
        got = {"idle_gpus": idle, "releasing_gpus": int(state.free[GPU_ROW, n]) - idle}
        for key, amount in got.items():
            if key in want and abs(amount / GPU_MICRO - want[key]) > TOLERANCE:
                yield f"node {name}: {key} is {amount / GPU_MICRO}, want {want[key]}"
        if "numa_available" in want:
            left = {zone: {"cpu_millicores": cpu} for zone, cpu in _zones_left(view, n).items()}
            if left != want["numa_available"]:
                yield f"node {name}: zones have {left}, want {want['numa_available']}"


def _zones_left(view: View, n: int) -> dict[str, int]:
    """CPU that the zones of a node have left."""
    numa = next(rule for rule in view.session.ext.task_rules if isinstance(rule, Numa))
    zones = numa.zones[n]
    assert zones is not None, "a case expects zones of a node without any"
    rooms = zip(zones.names, numa.rooms[n][0], strict=True)
    return {name: room["cpu"] for name, room in rooms}


def _domains(view: View, domains: Any) -> Iterator[str]:
    labels = {node["name"]: node["labels"] for node in view.world.case["nodes"]}
    for domain in domains:
        nodes = {view.node(task) or "" for task in domain["tasks"]}
        label = domain["label"]
        found = nodes if label is None else {labels.get(n, {}).get(label) for n in nodes}
        if "values" in domain and found != set(domain["values"]):
            yield f"domains {label}: {sorted(map(str, found))}, want {domain['values']}"
        if "count" in domain and len(found) != domain["count"]:
            yield f"domains {label}: {len(found)} different, want {domain['count']}"


def count_differences(session: Session, counts: Mapping[str, int], *, binds: bool) -> Iterator[str]:
    """More operations of a kind than a session may have."""
    got = Counter(type(op) for op in session.ledger.ops)
    kinds = {"max_binds": Bind, "max_evictions": Evict, "max_pipelined": Pipeline}
    for key, kind in kinds.items():
        if key in counts and got[kind] > counts[key] and (binds or kind is not Bind):
            yield f"{got[kind]} {kind.__name__.lower()} operations, want at most {counts[key]}"
