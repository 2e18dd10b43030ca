"""Decision cases as text: a cluster, then what each cycle must decide.

    node  n1  gpus=2
    queue q   quota=2
    group low  queue=q priority=50  pods=2x1gpu running@n1
    group high queue=q priority=100 pods=1x2gpu
    cycle: evict low-0 low-1; pipeline high-0@n1
    cycle: bind high-0@n1
    cycle: nothing

Lines, in order of time; `#` starts a comment:

* `flags NAME… | all`, `actions NAME…`, `option FIELD=VALUE` (of `scheduler.config.Config`);
* `node NAME gpus= cpu= gpu_memory= labels=k:v,…`;
* `queue NAME parent= priority= quota= limit= weight= cpu_quota=`, in devices and cores;
* `group NAME queue= priority= pods=NxSHAPE min= running@NODE,…`; the pods are `NAME-0`, …;
* `sub GROUP NAME min= pods=NxSHAPE running@NODE,…`; `group NAME … sets=K` sets `minSubGroup`;
* `topology NAME levels=LABEL,…`; groups and subs take `together=TOPOLOGY required= preferred=`,
  and `claims=` and `config_maps=`, names of what their pods mount;
* `linger N`: from then on evicted pods take N more cycles to go;
* `more GROUP pods=NxSHAPE on=LABEL:VALUE` gives a group further pods, with a node selector;
* `lose POD` (its workload makes it anew), `succeed POD`, `end POD` (it is being deleted);
* `after 60s`;
* `cycle: OP…; …` with `bind P@N`, `pipeline P@N`, `evict P…`, `move P@N` (evicted and placed
  again), or `nothing`; a cycle decides exactly these;
* `share QUEUE GPUS`, `reason GROUP text`, `reason-of GROUP POD text` and `scenarios N`, about the
  last cycle.

A shape is joined by `+`: `2gpu`, `0.5gpu`, `2000mib` (of each of `2dev` devices), `1cpu`.
Between cycles bound pods run, and evicted pods come back as pending ones, as a workload would have
it.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import msgspec

from kai_es.events.decisions import Bind, CycleDecision, CycleInputs, Evict, Pipeline
from kai_es.kube.labels import GPU_MICRO
from kai_es.kube.objects import (
    GpuRequest,
    Node,
    Pod,
    PodGroup,
    PodSpec,
    PriorityClass,
    Queue,
    QueueShare,
    SubGroup,
    TopologyConstraint,
)
from kai_es.kube.times import duration_ms
from kai_es.kube.topologies import Topology, TopologyLevel
from kai_es.scheduler import flags as rules
from kai_es.scheduler.config import Config
from kai_es.scheduler.decide import decide
from kai_es.scheduler.hooks import SessionHooks
from kai_es.scheduler.reasons.plain import plain_lines, pod_lines
from kai_es.snapshot.effective import GroupState, TaskState
from kai_es.snapshot.snapshot import Snapshot
from kai_es.snapshot.status import TaskStatus

START_MS = 1_780_000_000_000
NAMESPACE = "ns"
FREE = QueueShare(quota=-1, limit=-1, weight=1)

_PODS = re.compile(r"(\d+)x(\S+)")
_SHAPE = re.compile(r"([\d.]+)(gpu|mib|dev|cpu)")

Words = Mapping[str, str]


@dataclass
class StoryPod:
    """One pod as it stands between two cycles."""

    name: str
    group: str
    sub_group: str
    spec: PodSpec
    status: TaskStatus = TaskStatus.PENDING
    node: str = ""
    times_created: int = 1
    leaves_in: int = 0
    gpu_groups: tuple[str, ...] = ()


@dataclass
class Story:
    """The cluster of a story; `play` raises an AssertionError where a cycle decides otherwise."""

    snapshot: Snapshot = field(default_factory=Snapshot)
    config: Config = field(default_factory=lambda: Config(node_pool_key="", withheld=()))
    flags: rules.Flags = rules.NONE
    now_ms: int = START_MS
    cycle: int = 0
    groups: dict[str, PodGroup] = field(default_factory=dict)
    states: dict[str, GroupState] = field(default_factory=dict)
    pods: dict[str, StoryPod] = field(default_factory=dict)
    last: CycleDecision = field(default_factory=CycleDecision)
    hooks: SessionHooks = field(default_factory=SessionHooks)
    lingers: int = 0

    def play(self, text: str) -> None:
        for number, line in enumerate(text.splitlines(), 1):
            word, _, rest = line.split("#")[0].strip().partition(" ")
            if not word:
                continue
            try:
                LINES[word.rstrip(":")](self, rest.strip())
            except AssertionError as exc:
                raise AssertionError(f"line {number}, {line.strip()!r}: {exc}") from exc

    # -- the cluster

    def set_flags(self, text: str) -> None:
        self.flags = rules.ALL if text == "all" else frozenset(text.split())

    def set_actions(self, text: str) -> None:
        self.config = replace(self.config, actions=tuple(text.split()))

    def set_option(self, text: str) -> None:
        name, value = text.split("=")
        kind = type(getattr(self.config, name))
        self.config = replace(
            self.config, **{name: value == "true" if kind is bool else kind(value)}
        )

    def add_node(self, text: str) -> None:
        name, words = _words(text)
        amounts = {
            "cpu": round(1000 * float(words.get("cpu", "64"))),
            "memory": 2**40,
            "gpu": GPU_MICRO * int(words.get("gpus", "0")),
            "pods": 110,
        }
        memory = int(words.get("gpu_memory", "40000"))
        labels = dict(pair.split(":") for pair in words.get("labels", "").split(",") if pair)
        node = Node(
            uid=name,
            name=name,
            labels=labels,
            allocatable=amounts,
            capacity=amounts,
            gpu_memory_mib=memory // 100 * 100,
            gpu_memory_synced=True,
        )
        self.snapshot.set_node(node, rv=1)

    def add_queue(self, text: str) -> None:
        name, words = _words(text)
        cpu = float(words.get("cpu_quota", "-1"))
        gpu = QueueShare(
            quota=float(words.get("quota", "0")),
            limit=float(words.get("limit", "-1")),
            weight=float(words.get("weight", "1")),
        )
        queue = Queue(
            uid=name,
            name=name,
            parent=words.get("parent", ""),
            priority=int(words.get("priority", "100")),
            created_ms=START_MS - 10**6 + len(self.snapshot.queues.rows),
            gpu=gpu,
            cpu=QueueShare(quota=-1 if cpu == -1 else 1000 * cpu, limit=-1, weight=1),
            memory=FREE,
        )
        self.snapshot.set_queue(queue, rv=1)

    def add_group(self, text: str) -> None:
        name, words = _words(text)
        priority = words.get("priority", "50")
        cls = PriorityClass(uid=f"p{priority}", name=f"p{priority}", value=int(priority))
        self.snapshot.set_priority_class(cls, rv=1)
        self.groups[name] = PodGroup(
            uid=name,
            namespace=NAMESPACE,
            name=name,
            created_ms=START_MS - 10**5 + len(self.groups),
            queue=words["queue"],
            priority_class=f"p{priority}",
            min_member=int(words["min"]) if "min" in words else None,
            min_sub_group=int(words["sets"]) if "sets" in words else None,
            topology=_together(words),
        )
        self.states[name] = GroupState()
        self._add_pods(name, "", name, words)

    def add_sub(self, text: str) -> None:
        group, _, rest = text.partition(" ")
        name, words = _words(rest)
        minimum = int(words.get("min", "1"))
        sub = SubGroup(name=name, min_member=minimum, topology=_together(words))
        old = self.groups[group]
        self.groups[group] = _replaced(old, sub_groups=(*old.sub_groups, sub))
        self._add_pods(group, name, f"{group}-{name}", words)

    def add_more(self, text: str) -> None:
        group, words = _words(text)
        self._add_pods(group, "", group, words)

    def _add_pods(self, group: str, sub_group: str, prefix: str, words: Words) -> None:
        match = _PODS.fullmatch(words.get("pods", "0x1cpu"))
        assert match is not None, f"pods={words['pods']}, want NxSHAPE"
        spec = _replaced_spec(_spec(match[2]), words)
        if "on" in words:
            label, value = words["on"].split(":")
            spec = msgspec.structs.replace(spec, node_selector={label: value})
        nodes = words["running"].split(",") if "running" in words else []
        start = sum(1 for name in self.pods if name.rpartition("-")[0] == prefix)
        for n in range(int(match[1])):
            pod = StoryPod(f"{prefix}-{start + n}", group, sub_group, spec)
            if nodes:
                pod.status, pod.node = TaskStatus.RUNNING, nodes[n % len(nodes)]
            self.pods[pod.name] = pod

    def add_topology(self, text: str) -> None:
        name, words = _words(text)
        levels = tuple(map(TopologyLevel, words["levels"].split(",")))
        self.snapshot.set_object(Topology(uid=name, name=name, levels=levels), rv=1)

    def set_linger(self, text: str) -> None:
        self.lingers = int(text)

    def lose(self, text: str) -> None:
        self._recreate(self.pods[text])

    def succeed(self, text: str) -> None:
        self.pods[text].status = TaskStatus.SUCCEEDED

    def end(self, text: str) -> None:
        self.pods[text].status = TaskStatus.RELEASING

    def wait(self, text: str) -> None:
        self.now_ms += duration_ms(text, what="story", field="after")

    # -- cycles

    def run_cycle(self, text: str) -> None:
        self._store()
        self.cycle += 1
        inputs = CycleInputs(
            shard="story", cycle=self.cycle, now_ms=self.now_ms, flags=tuple(sorted(self.flags))
        )
        self.hooks = SessionHooks()
        self.last = decide(self.snapshot, self.config.shard("story"), inputs, self.hooks)
        got, want = _decided(self.last), _wanted(text)
        assert got == want, f"decided {'; '.join(sorted(got)) or 'nothing'}"
        self._carry_on()

    def _store(self) -> None:
        for name, group in self.groups.items():
            self.snapshot.set_group(group, rv=self.cycle, state=self.states[name])
        for pod in self.pods.values():
            raw = Pod(
                uid=self._uid(pod),
                namespace=NAMESPACE,
                name=pod.name,
                group=pod.group,
                sub_group=pod.sub_group,
                spec=pod.spec,
            )
            state = TaskState(status=pod.status, node=pod.node, gpu_groups=self._groups(pod))
            self.snapshot.set_pod(raw, rv=self.cycle, task=state)

    @staticmethod
    def _groups(pod: StoryPod) -> tuple[str, ...]:
        """Devices that it shares: those it was given, else some of its own."""
        if not pod.node or pod.spec.request_type not in ("Fraction", "GpuMemory"):
            return ()
        own = (f"{pod.name}/{number}" for number in range(pod.spec.gpu.count))
        return pod.gpu_groups or tuple(own)

    @staticmethod
    def _uid(pod: StoryPod) -> str:
        return f"{pod.name}/{pod.times_created}"

    def _carry_on(self) -> None:
        """What the cluster has made of the decisions when the next cycle starts."""
        for pod in self.pods.values():
            if pod.status is TaskStatus.RELEASING:
                pod.leaves_in -= 1
                if pod.leaves_in == 0:
                    self._recreate(pod)
        for op in self.last.ops:
            pod = self.pods[op.pod]
            if isinstance(op, Bind):
                pod.status, pod.node = TaskStatus.RUNNING, op.node
                pod.gpu_groups = op.gpu_groups
            elif isinstance(op, Evict) and self.lingers:
                pod.status, pod.leaves_in = TaskStatus.RELEASING, self.lingers
            elif isinstance(op, Evict):
                self._recreate(pod)
        for mark in self.last.marks:
            self.states[mark.group_uid] = GroupState(
                stale_since_ms=mark.stale_since_ms,
                last_start_ms=mark.last_start_ms,
                last_eviction_ms=mark.last_eviction_ms,
                room_made_ms=mark.room_made_ms,
            )
        self.now_ms += 1000

    def _recreate(self, pod: StoryPod) -> None:
        """An evicted pod is gone, and its workload makes it again."""
        self.snapshot.remove_pod(self._uid(pod))
        pod.status, pod.node, pod.gpu_groups = TaskStatus.PENDING, "", ()
        pod.times_created += 1

    # -- what else the last cycle must have found

    def check_scenarios(self, text: str) -> None:
        got = self.hooks.counters.get("scenarios", 0)
        assert got == int(text), f"{got} scenarios were simulated"

    def check_share(self, text: str) -> None:
        queue, want = text.split()
        shares = {share.queue: share.fair_share[2] for share in self.last.fair_shares}
        got = shares[queue] / GPU_MICRO
        assert abs(got - float(want)) < 1e-4, f"fair share is {got}"

    def check_reason(self, text: str) -> None:
        group, _, want = text.partition(" ")
        lines = plain_lines(self.last.reasons.get(self.groups[group].uid, ()))
        assert any(want in line for line in lines), f"reasons are {lines}"

    def check_reason_of(self, text: str) -> None:
        group, pod, want = text.split(maxsplit=2)
        lines = pod_lines(self.last.reasons.get(self.groups[group].uid, ()), f"{NAMESPACE}/{pod}")
        assert any(want in line for line in lines), f"reasons are {lines}"


LINES: dict[str, Callable[[Story, str], None]] = {
    "flags": Story.set_flags,
    "actions": Story.set_actions,
    "option": Story.set_option,
    "node": Story.add_node,
    "queue": Story.add_queue,
    "group": Story.add_group,
    "sub": Story.add_sub,
    "topology": Story.add_topology,
    "linger": Story.set_linger,
    "more": Story.add_more,
    "lose": Story.lose,
    "succeed": Story.succeed,
    "end": Story.end,
    "after": Story.wait,
    "cycle": Story.run_cycle,
    "share": Story.check_share,
    "reason": Story.check_reason,
    "scenarios": Story.check_scenarios,
    "reason-of": Story.check_reason_of,
}


def stories(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.story"))


def _words(text: str) -> tuple[str, dict[str, str]]:
    name, *rest = text.split()
    pairs = (word.replace("running@", "running=").partition("=") for word in rest)
    return name, {key: value for key, _, value in pairs}


def _together(words: Words) -> TopologyConstraint | None:
    if "together" not in words:
        return None
    return TopologyConstraint(
        topology=words["together"],
        required=words.get("required", ""),
        preferred=words.get("preferred", ""),
    )


def _replaced_spec(spec: PodSpec, words: Words) -> PodSpec:
    names = {key: tuple(words[key].split(",")) for key in ("claims", "config_maps") if key in words}
    return msgspec.structs.replace(spec, **names) if names else spec


def _replaced(group: PodGroup, **values: Any) -> PodGroup:
    return msgspec.structs.replace(group, **values)


def _spec(shape: str) -> PodSpec:
    amounts = {"gpu": 0.0, "mib": 0.0, "dev": 1.0, "cpu": 0.1}
    for part in shape.split("+"):
        match = _SHAPE.fullmatch(part)
        assert match is not None, f"shape {part!r}, want such as 2gpu, 0.5gpu, 2000mib, 1cpu"
        amounts[match[2]] = float(match[1])
    requests = {"cpu": round(1000 * amounts["cpu"]), "memory": 2**20, "pods": 1}
    gpus, devices = amounts["gpu"], int(amounts["dev"])
    if amounts["mib"]:
        gpu = GpuRequest(count=devices, memory_mib=int(amounts["mib"]))
        return PodSpec(requests=requests, gpu=gpu, request_type="GpuMemory")
    if 0 < gpus < 1:
        gpu = GpuRequest(count=devices, portion=gpus)
        return PodSpec(requests=requests, gpu=gpu, request_type="Fraction")
    if gpus:
        gpu = GpuRequest(count=int(gpus), portion=1.0)
        return PodSpec(requests={**requests, "gpu": int(gpus) * GPU_MICRO}, gpu=gpu)
    return PodSpec(requests=requests)


def _decided(decision: CycleDecision) -> set[str]:
    evicted = {op.pod for op in decision.ops if isinstance(op, Evict)}
    moved = {
        op.pod: op.node for op in decision.ops if isinstance(op, Pipeline) and op.pod in evicted
    }
    found = {f"move {pod}@{node}" for pod, node in moved.items()}
    found |= {f"evict {pod}" for pod in evicted - moved.keys()}
    for op in decision.ops:
        if isinstance(op, Bind):
            found.add(f"bind {op.pod}@{op.node}")
        elif isinstance(op, Pipeline) and op.pod not in moved:
            found.add(f"pipeline {op.pod}@{op.node}")
    return found


def _wanted(text: str) -> set[str]:
    return set(_each(text)) if text != "nothing" else set()


def _each(text: str) -> Iterator[str]:
    for part in text.split(";"):
        word, *pods = part.split()
        assert word in ("bind", "pipeline", "evict", "move"), f"unknown operation {word!r}"
        yield from (f"{word} {pod}" for pod in pods)
