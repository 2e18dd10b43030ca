"""Which domains may take a job's pods, and the sets of nodes that come of it."""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from kai_es.events.decisions import CycleInputs, Reason
from kai_es.kube.objects import PodGroup, Queue, SubGroup
from kai_es.kube.topologies import Topology, TopologyLevel
from kai_es.scheduler.columns.nodes import FREE, IDLE
from kai_es.scheduler.columns.resources import ResourceIndex
from kai_es.scheduler.columns.topology import ROOT, ROOT_ID, ROOT_LEVEL
from kai_es.scheduler.config import Config
from kai_es.scheduler.decide import open_session
from kai_es.scheduler.flags import LEVEL_ERRORS_HIDDEN, Flags
from kai_es.scheduler.framework.extensions import Refused
from kai_es.scheduler.framework.fit import NodeSet
from kai_es.scheduler.framework.session import Session
from kai_es.scheduler.framework.work import Work
from kai_es.scheduler.jobs.tree import leaves_below
from kai_es.scheduler.reasons.render import job_errors, topology_level_text
from kai_es.scheduler.solve.domain_choice import Asking, Choice
from kai_es.scheduler.solve.domain_room import need_of, room_of
from kai_es.scheduler.solve.domains import NOT_COUNTED, LevelError, Need, Room, relevant_levels
from kai_es.snapshot.effective import GroupState
from kai_es.snapshot.snapshot import Snapshot
from tests.conformance import build
from tests.conformance.rows import amounts_of, node_of, pod_of, state_of
from tests.conformance.topology_ops import Input, Run
from tests.conformance.topology_ops.given import flat, nested

UNNAMED = "t"
"""Of a constraint: cases leave the topology's name out where it does not matter."""


def _constraint(sub_group: Input) -> Any:
    raw = sub_group["topologyConstraint"]
    return build.constraint_of({**raw, "topology": raw.get("topology") or UNNAMED})


def levels(case: Input, flags: Flags) -> dict[str, Any]:
    names = case["topology"]["levels"]
    try:
        found, _ = relevant_levels(names, _constraint(case["subGroup"]))
    except LevelError as exc:
        return {"error": _error(case["topology"]["name"], case["subGroup"]["name"], exc)}
    return {"levels": [ROOT_ID if level == ROOT_LEVEL else names[level] for level in found]}


def _error(topology: str, sub_group: str, exc: LevelError) -> str:
    return topology_level_text(topology, sub_group, level=exc.level, kind=exc.kind)


def session_of(
    nodes: Mapping[str, Any],
    tasks: Iterable[Input],
    group: PodGroup,
    flags: Flags,
    topologies: Iterable[Topology] = (),
) -> Session:
    """Nodes with the amounts of a case, and the tasks as the pods of one group."""
    snapshot = Snapshot()
    snapshot.set_queue(Queue(uid="q", name="q"), rv=1)
    snapshot.set_group(group, rv=1, state=GroupState())
    for topology in topologies:
        snapshot.set_object(topology, rv=1)
    for name, node in nodes.items():
        snapshot.set_node(node_of({"labels": {}, **node}, name), rv=1)
    for n, task in enumerate(tasks):
        node = task.get("nodeName", "")
        pod = pod_of(task, task["uid"], group=group.name, created_ms=n)
        snapshot.set_pod(pod, rv=1, task=state_of(task, node))
    inputs = CycleInputs(shard="s", cycle=1, now_ms=1, flags=tuple(sorted(flags)))
    session = open_session(snapshot, Config(node_pool_key=""), inputs)
    index = session.columns.index
    for name, node in nodes.items():
        n = session.nodes.columns.row[name]
        idle = index.vector(amounts_of(node.get("idle")))
        session.nodes.amounts[IDLE, :, n] = idle
        session.nodes.amounts[FREE, :, n] = idle + index.vector(amounts_of(node.get("releasing")))
    return session


def allocatable_pods(case: Input, flags: Flags) -> dict[str, Any]:
    group = PodGroup(uid="g", namespace="", name="test-job", queue="q")
    session = session_of(case["nodes"], case["tasks"], group, flags)
    rows = {pod.pod.uid: pod.row for pod in session.rows if pod is not None}
    tree = nested(case["root"]).tree
    need = need_of(session, [rows[task["uid"]] for task in case["tasks"]])
    pods = room_of(session, tree, ROOT, need).pods
    return {"allocatablePods": {id_: int(pods[d]) for d, id_ in enumerate(tree.ids)}}


def allocatable_domains(case: Input, flags: Flags) -> dict[str, Any]:
    topology, sub_group = case["topology"], case["subGroup"]
    tree, domains, rows = flat(topology["domains"], topology["levels"])
    tree.name = topology["name"]
    usable = np.ones(len(rows), np.bool_)
    try:
        choice = Choice(tree, _constraint(sub_group), usable, flags)
    except LevelError as exc:
        return {"error": _error(topology["name"], sub_group["name"], exc)}
    choice.start = ROOT
    index = ResourceIndex()
    total = index.vector(amounts_of(case["tasksResources"]))
    need = Need(case["tasksCount"], total, total)
    pods = np.array([d.get("allocatablePods", NOT_COUNTED) for d in domains])
    pods[ROOT] = need.n_tasks
    known = np.ones(len(tree), np.bool_)
    room = Room(np.zeros((len(index), len(tree)), np.int64), pods, known)
    pinned = [rows[task["nodeName"]] for task in case["runningTasks"]]
    found, small = choice.choose(need, room, pinned)
    if found:
        return {"domains": sorted((dict(domains[d]) for d in found), key=_id)}
    names = list(enumerate(index.names))
    asking = Asking(f"test-namespace/{case['job']}", sub_group["name"])
    errors = job_errors(choice.reasons(need, room, small, asking, names))
    shown = [{"messages": list(e.messages), "detailed": e.detailed} for e in errors]
    return {"domains": [], "fitErrors": shown}


def _id(domain: Input) -> str:
    return str(domain["id"])


def node_sets(case: Input, flags: Flags) -> dict[str, Any]:
    topologies = [
        Topology(uid=name, name=name, levels=tuple(map(TopologyLevel, raw["levels"])))
        for name, raw in case["topologies"].items()
    ]
    name = case["subGroup"]["name"]
    constraint = build.constraint_of(case["subGroup"]["topologyConstraint"])
    namespace = next((t["namespace"] for t in case["tasks"] if "namespace" in t), "")
    group = PodGroup(
        uid="g",
        namespace=namespace,
        name=case["job"],
        queue="q",
        topology=None if name else constraint,
        sub_groups=(SubGroup(name=name, min_member=1, topology=constraint),) if name else (),
    )
    tasks = [*case["tasks"], *case["runningTasks"]]
    shown_errors = flags - {LEVEL_ERRORS_HIDDEN}  # the case is about what is logged then
    session = session_of(case["nodes"], tasks, group, shown_errors, topologies)
    rows = {pod.pod.uid: pod.row for pod in session.rows if pod is not None}
    names = [facts.name for facts in session.nodes.columns.facts]
    job = next(iter(session.columns.jobs.values()))
    member = job.tree.leaves[0] if name else job.tree.root
    mask = np.array([name in case["nodeSet"] for name in names], np.bool_)
    subsets = session.ext.subset_nodes[0]
    found = subsets(
        Work(job),
        member,
        tuple(leaves_below(member)),
        [rows[task["uid"]] for task in case["tasks"]],
        NodeSet(mask),
    )
    shown = _refused(found.reasons) if isinstance(found, Refused) else _sets(found, names)
    return {**shown, "preferredScores": _scores(session, names)}


def _refused(reasons: Iterable[Reason]) -> dict[str, Any]:
    messages = [message for error in job_errors(reasons) for message in error.messages]
    if any(reason.code.startswith("topology-level") for reason in reasons):
        return {"error": messages[0]}
    return {"nodeSetCount": 0, "firstNodeSet": None, "fitErrors": messages}


def _sets(found: Iterable[NodeSet], names: list[str]) -> dict[str, Any]:
    sets = [
        [name for n, name in enumerate(names) if one.mask is None or one.mask[n]] for one in found
    ]
    return {"nodeSetCount": len(sets), "firstNodeSet": sets[0]}


def _scores(session: Session, names: list[str]) -> dict[str, Any]:
    """What the plugin prefers now, by sub-group."""
    plugin = session.ext.subset_nodes[0].__self__  # type: ignore[attr-defined]
    return {
        sub_group: {name: float(score) for name, score in zip(names, scores, strict=True)}
        for sub_group, scores in plugin.preferred.items()
    }


OPS: dict[str, Run] = {
    "relevantLevels": levels,
    "allocatablePods": allocatable_pods,
    "allocatableDomains": allocatable_domains,
    "nodeSets": node_sets,
}
