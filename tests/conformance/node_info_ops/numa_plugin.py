"""Cases of the plugin numa."""

import json
from collections.abc import Mapping
from typing import Any

from kai_es.events.decisions import CycleInputs, ZoneAmount
from kai_es.kube.labels import NUMA_OBSERVED, NUMA_PREDICTED
from kai_es.kube.objects import Node, Pod, PodSpec
from kai_es.kube.parse_pod import parse_pod
from kai_es.kube.topologies import NumaNode, NumaZone
from kai_es.scheduler.config import Config, PluginOption
from kai_es.scheduler.decide import open_session
from kai_es.scheduler.flags import Flags
from kai_es.scheduler.numa.alignment import MODELLED, align, charged
from kai_es.scheduler.numa.records import placement_of as placement_from
from kai_es.scheduler.numa.records import record_of
from kai_es.scheduler.numa.requests import Units, units_of
from kai_es.scheduler.plugins.numa import Numa, settings_of
from kai_es.scheduler.reasons.render import node_texts
from kai_es.snapshot.effective import TaskState
from kai_es.snapshot.snapshot import Snapshot
from kai_es.snapshot.status import TaskStatus
from tests.conformance.build import raw_pod, status_of
from tests.conformance.diff import first_difference
from tests.conformance.node_info_ops import Input
from tests.conformance.node_info_ops.zones import (
    amounts_of,
    in_our_units,
    our_name,
    placement_of,
    shown,
    shown_zones,
    zones_of,
)

Shown = dict[str, Any]


def _pod(raw: Mapping[str, Any], name: str) -> Pod:
    metadata = {"namespace": "ns", "name": name, "uid": name, **raw.get("metadata", {})}
    containers = ("containers", "initContainers")
    spec = dict(raw.get("spec") or {})
    for key in containers:
        if key in spec:
            spec[key] = [{"name": f"{key}-{n}", **one} for n, one in enumerate(spec[key])]
    return parse_pod(raw_pod({**raw, "metadata": metadata, "spec": spec}))


class Cluster:
    """A session with the plugin, on nodes with zones as given."""

    def __init__(
        self,
        topologies: Mapping[str, Any],
        flags: Flags,
        ignore: Any = (),
        *,
        rebuild: bool = False,
    ) -> None:
        self.snapshot = Snapshot()
        self.flags = flags
        self.arguments = {
            "ignoreList": ",".join(ignore or ()),
            "reconstructAvailable": "true" if rebuild else "false",
        }
        for name, raw in topologies.items():
            self.snapshot.set_node(Node(uid=name, name=name, allocatable={"pods": 100}), rv=1)
            if raw is None:
                continue
            zones = zones_of(raw)
            parts = zip(zones.names, zones.allocatable, zones.available, strict=True)
            self.snapshot.set_object(
                NumaNode(
                    uid=name,
                    name=name,
                    policy=zones.policy,
                    scope=zones.scope,
                    zones=tuple(
                        NumaZone(name=zone, allocatable=dict(most), available=dict(left))
                        for zone, most, left in parts
                    ),
                ),
                rv=1,
            )

    def put(self, pod: Pod, state: TaskState) -> None:
        self.snapshot.set_pod(pod, rv=1, task=state)

    def task(self, raw: Mapping[str, Any]) -> None:
        """The pod of a case, as `task`."""
        self.put(_pod(raw["pod"], "task"), TaskState(status=TaskStatus.PENDING))

    def open(self) -> Numa:
        config = Config(
            node_pool_key="", plugins=(PluginOption(name="numa", arguments=self.arguments),)
        )
        inputs = CycleInputs(shard="case", cycle=1, now_ms=1, flags=tuple(sorted(self.flags)))
        self.session = open_session(self.snapshot, config, inputs)
        return next(rule for rule in self.session.ext.task_rules if isinstance(rule, Numa))

    def row(self, uid: str) -> int:
        return self.snapshot.pods[uid].row

    def n(self, node: str) -> int:
        return self.session.nodes.columns.row[node]


def _one_node(case: Input, flags: Flags) -> tuple[Cluster, Numa]:
    cluster = Cluster({"node": case["topology"]}, flags, case.get("ignore"))
    cluster.task(case["task"])
    return cluster, cluster.open()


def _arguments(case: Input, flags: Flags) -> Shown:
    del flags
    settings = settings_of(case.get("arguments") or {})
    return {"ignore": sorted(settings.ignored), "reconstructAvailable": settings.reconstruct}


def _requests(case: Input, flags: Flags) -> Shown:
    del flags
    units = units_of(_pod(case["pod"], "pod").spec)
    return {
        "podScope": [dict(units.pod)],
        "concurrent": [dict(one) for one in units.concurrent],
        "serial": [dict(one) for one in units.serial],
    }


def _solve(case: Input, flags: Flags) -> Shown:
    del flags
    zones = zones_of(case["topology"])._replace(scope="container")
    units = Units(
        {},
        tuple(amounts_of(one) for one in case.get("concurrent") or ()),
        tuple(amounts_of(one) for one in case.get("serial") or ()),
    )
    found = align(zones, zones.available, units, [our_name(name) for name in case["aligned"]])
    return {"fits": found is not None, "placement": shown(found or ())}


def _filters(case: Input, flags: Flags) -> Shown:
    cluster, numa = _one_node(case, flags)
    zones = numa.zones[0]
    shape = cluster.session.row(cluster.row("task")).shape
    applies = zones is not None and zones.policy in MODELLED and numa.concerns(shape, zones)
    return {"filters": applies}


def _fits(case: Input, flags: Flags) -> Shown:
    cluster, numa = _one_node(case, flags)
    task = cluster.row("task")
    mask = numa.mask(task)
    fits = mask is None or bool(mask.later[0])
    error = next((node_texts(why, "")[0] for nodes, why in numa.why(task) if nodes[0]), "")
    return {"fits": fits, "error": error}


def _evaluate(case: Input, flags: Flags) -> Shown:
    cluster, numa = _one_node(case, flags)
    shape = cluster.session.row(cluster.row("task")).shape
    found = numa.place(shape, 0, now=False)
    return {"fits": found is not None, "placement": shown(found or ())}


def _charge(sign: int) -> Any:
    def run(case: Input, flags: Flags) -> Shown:
        del flags
        zones = zones_of(case["topology"])
        room = charged(zones.available, placement_of(case["placement"]), sign)
        return {"zones": shown_zones(zones, room)}

    return run


def _record(case: Input, flags: Flags) -> Shown:
    del flags
    record = record_of(case.get("annotations") or {}, _granted(case.get("bindRequestZones")))
    found = [{"zone": part.zone, "amount": amounts_of(part.amount)} for part in record]
    return {"record": found or None}


def _granted(raw: Any) -> tuple[ZoneAmount, ...]:
    return tuple(ZoneAmount(zone=part["zone"], amount=part["amount"]) for part in raw or ())


def _from_record(case: Input, flags: Flags) -> Shown:
    del flags
    found = placement_from(_granted(case["record"]), zones_of(case["topology"]).names)
    return {"placement": shown(found) or None}


def _score(case: Input, flags: Flags) -> Shown:
    cluster = Cluster(case["nodes"], flags, case.get("ignore"))
    cluster.task(case["task"])
    numa = cluster.open()
    kind = numa.kind(cluster.session.row(cluster.row("task")).shape)
    return {"score": float(kind.score[cluster.n(case["node"])])}


def _sensitive(case: Input, flags: Flags) -> Shown:
    cluster = Cluster(case["nodes"], flags, case.get("ignore"))
    cluster.task(case["task"])
    return {"wants": cluster.open().kind(cluster.session.row(cluster.row("task")).shape).scored}


def _seed(case: Input, flags: Flags) -> Shown:
    cluster = Cluster(case["nodes"], flags, case.get("ignore"))
    held = {}
    for task in case["tasks"]:
        pod = _pod(task["pod"], task["name"])
        granted = _granted(case["bindRequests"].get(f"{pod.namespace}/{pod.name}"))
        node = task.get("nodeName") or ""
        if task.get("placement"):  # a session knows it already: as a bind request of its own would
            held[task["name"]] = placement_of(task["placement"])
            continue
        status = TaskStatus.RUNNING if node else TaskStatus.PENDING
        named = Pod(
            uid=task["name"],
            namespace=pod.namespace,
            name=pod.name,
            annotations=pod.annotations,
            spec=pod.spec,
        )
        cluster.put(named, TaskState(status=status, node=node, zones=granted))
    numa = cluster.open()
    placements = {}
    for task in case["tasks"]:
        name, node = task["name"], task.get("nodeName")
        found = held.get(name, ())
        if not found and node:
            found = numa.placement(cluster.row(name), cluster.n(node))
        placements[name] = shown(found)
    return {"placements": placements}


def _reconstruct(case: Input, flags: Flags) -> Shown:
    nodes = case["nodes"]
    topologies = {name: node["topology"] for name, node in nodes.items()}
    cluster = Cluster(topologies, flags, rebuild=True)
    for name, node in nodes.items():
        for raw in node["pods"]:
            kept = {k: v for k, v in raw["annotations"].items() if k in _RECORDS}
            spec = PodSpec(requests={"pods": 1}, guaranteed=True)
            pod = Pod(uid=raw["uid"], namespace="ns", name=raw["uid"], annotations=kept, spec=spec)
            cluster.put(pod, TaskState(status=status_of(raw["status"]), node=name))
    numa = cluster.open()
    found = {}
    for name in nodes:
        n = cluster.n(name)
        zones = numa.zones[n]
        found[name] = None if zones is None else shown_zones(zones, numa.rooms[n][0])
    return {"zones": found}


_RECORDS = (NUMA_OBSERVED, NUMA_PREDICTED)

OPS = {
    "numaArguments": _arguments,
    "numaIgnoreList": _arguments,
    "numaRequests": _requests,
    "numaSolve": _solve,
    "numaFilters": _filters,
    "numaFits": _fits,
    "numaPredicate": _fits,
    "numaEvaluate": _evaluate,
    "numaScore": _score,
    "numaSensitive": _sensitive,
    "numaPlacementRecord": _record,
    "numaPlacementFromRecord": _from_record,
    "numaSeed": _seed,
    "numaReconstruct": _reconstruct,
    "numaCharge": _charge(-1),
    "numaCredit": _charge(1),
}


def compare(case: Input, got: Any) -> str | None:
    want = json.loads(json.dumps(case["expect"]))
    if case["op"] == "numaRequests":
        want = {key: [amounts_of(one) for one in units] for key, units in want.items()}
    return first_difference(got, in_our_units(want))
