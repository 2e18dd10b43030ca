"""Random clusters full of devices, over several cycles, with books of their own.

The books know what is physically there and who has what: devices shared by GPU group, whole
devices, MIG instances, devices of claims. They are kept from the operations of the decisions alone.
"""

import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec

from kai_es.events.decisions import Bind, CycleDecision, CycleInputs, Evict, Pipeline
from kai_es.kube.devices import (
    Allocation,
    Consumer,
    Device,
    DeviceClass,
    DeviceRequest,
    ResourceClaim,
    ResourceSlice,
)
from kai_es.kube.objects import Pod, PodGroup, PriorityClass
from kai_es.kube.parse_pod import parse_pod
from kai_es.scheduler.config import Config, PluginOption
from kai_es.scheduler.decide import decide
from kai_es.snapshot.effective import GroupState, TaskState
from kai_es.snapshot.snapshot import Snapshot
from kai_es.snapshot.status import TaskStatus
from tests.scheduler_world import NOW_MS, a_node, a_queue

GPU_DRIVER, CARD_DRIVER, CARD = "gpu.nvidia.com", "card.example.com", "example.com/card"
PROFILES = {"1g": "nvidia.com/mig-1g.5gb", "2g": "nvidia.com/mig-2g.10gb"}
SMALL, LARGE = 10_000, 20_000  # MiB of a device
QUEUES = ("a", "b")
PRIORITIES = {"train": 50, "build": 100}


@dataclass(slots=True)
class Member:
    """A pod in the books.

    groups, claims, extended: what its binding gave it.
    """

    raw: dict[str, Any]
    group: str
    status: TaskStatus = TaskStatus.PENDING
    node: str = ""
    groups: tuple[str, ...] = ()
    extended: Allocation | None = None
    times: int = 0

    @property
    def name(self) -> str:
        name: str = self.raw["metadata"]["name"]
        return name

    def pod(self) -> Pod:
        metadata = {**self.raw["metadata"], "uid": f"{self.name}/{self.times}"}
        return parse_pod({**self.raw, "metadata": metadata})


@dataclass(slots=True)
class Kind:
    """What a node is made of: devices and MiB of each, MIG instances, GPUs and cards of claims."""

    gpus: int = 0
    memory: int = SMALL
    mig: dict[str, int] = field(default_factory=dict)
    dra_gpus: int = 0
    cards: int = 0


class DeviceCluster:
    """One cluster; `run` decides and carries on, and yields what the books find wrong."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(f"devices-{seed}")
        self.nodes = {f"n{i}": self._kind() for i in range(self.rng.randint(2, 6))}
        self.pods: dict[str, Member] = {}
        self.groups: dict[str, PodGroup] = {}
        self.claims: dict[str, ResourceClaim] = {}
        self.now_ms = NOW_MS
        self.cycle = 0
        spread = self.rng.random() < 0.3
        config = Config(withheld=(), node_pool_key="")
        if spread:
            plugins = [p for p in config.plugins if p.name not in ("gpupack", "gpusharingorder")]
            config = replace(config, plugins=(*plugins, PluginOption(name="gpuspread")))
        self.config = config

    def _kind(self) -> Kind:
        rng = self.rng
        match rng.choice(("gpu", "gpu", "gpu", "mig", "dra", "cards")):
            case "mig":
                return Kind(mig={PROFILES["1g"]: rng.randint(1, 4), PROFILES["2g"]: 2})
            case "dra":
                return Kind(dra_gpus=rng.randint(1, 4))
            case "cards":
                return Kind(gpus=rng.choice((1, 2)), cards=rng.randint(1, 3))
        return Kind(gpus=rng.choice((1, 2, 4)), memory=rng.choice((SMALL, LARGE)))

    # -- pods

    def _job(self, number: int) -> None:
        rng = self.rng
        name, queue, priority = f"j{number}", rng.choice(QUEUES), rng.choice(tuple(PRIORITIES))
        size = rng.choice((1, 1, 2, 3))
        self.groups[name] = PodGroup(
            uid=f"uid-{name}",
            namespace="ns",
            name=name,
            queue=queue,
            min_member=rng.randint(1, size),
            priority_class=priority,
            created_ms=self.now_ms + number,
        )
        what = rng.choice(
            ("share", "share", "shares", "memory", "whole", "mig", "claim", "shared claim", "card")
        )
        for i in range(size):
            self._pod(f"{name}-{i}", name, queue, what)

    def _pod(self, name: str, group: str, queue: str, what: str) -> None:
        rng = self.rng
        requests: dict[str, str] = {"cpu": "500m", "memory": "1Gi"}
        annotations = {"pod-group-name": group}
        spec: dict[str, Any] = {}
        match what:
            case "share":
                annotations["gpu-fraction"] = rng.choice(("0.25", "0.3", "0.5", "0.75"))
            case "shares":
                annotations |= {"gpu-fraction": "0.5", "gpu-fraction-num-devices": "2"}
            case "memory":
                annotations["gpu-memory"] = str(rng.choice((1000, 4000, 6000, 12_000, 20_000)))
                if rng.random() < 0.3:
                    annotations["gpu-fraction-num-devices"] = "2"
            case "whole":
                requests["nvidia.com/gpu"] = str(rng.choice((1, 1, 2)))
            case "mig":
                requests[rng.choice(tuple(PROFILES.values()))] = "1"
            case "card":
                requests[CARD] = str(rng.choice((1, 2)))
            case "claim" | "shared claim":
                claim = f"of-{name}" if what == "claim" else f"of-{group}"
                self._claim(claim, queue)
                spec["resourceClaims"] = [{"name": "gpu", "resourceClaimName": claim}]
        raw = {
            "metadata": {"name": name, "namespace": "ns", "annotations": annotations},
            "spec": {
                "schedulerName": "kai-scheduler",
                "containers": [{"name": "c", "resources": {"requests": requests}}],
                **spec,
            },
            "status": {"phase": "Pending"},
        }
        self.pods[name] = Member(raw, group)

    def _claim(self, name: str, queue: str) -> None:
        if name in self.claims:
            return
        request = DeviceRequest(
            name="gpu", device_class=GPU_DRIVER, count=self.rng.choice((1, 1, 2))
        )
        self.claims[name] = ResourceClaim(
            uid=f"uid-{name}",
            namespace="ns",
            name=name,
            labels={"kai.scheduler/queue": queue},
            requests=(request,),
        )

    # -- rows

    def snapshot(self) -> Snapshot:
        """The rows as they are now."""
        snapshot = Snapshot()
        for name, value in PRIORITIES.items():
            snapshot.set_priority_class(PriorityClass(uid=name, name=name, value=value), rv=1)
        total = sum(kind.gpus for kind in self.nodes.values())
        for name in QUEUES:
            snapshot.set_queue(a_queue(name, max(1, total // 3)), rv=1)
        for name, driver in (("gpu.nvidia.com", GPU_DRIVER), ("card", CARD_DRIVER)):
            device_class = DeviceClass(
                uid=name,
                name=name,
                extended_resource=CARD if name == "card" else "",
                selectors=(f'device.driver == "{driver}"',),
            )
            snapshot.set_device_class(device_class, rv=1)
        for name, kind in self.nodes.items():
            self._node(snapshot, name, kind)
        for claim in self.claims.values():
            snapshot.set_claim(claim, rv=1)
        for group in self.groups.values():
            snapshot.set_group(group, rv=1, state=GroupState())
        for member in self.pods.values():
            pod = member.pod()
            if member.extended is not None:
                snapshot.set_claim(_extended_claim(pod, member.extended), rv=1)
            state = TaskState(status=member.status, node=member.node, gpu_groups=member.groups)
            snapshot.set_pod(pod, rv=1, task=state)
        return snapshot

    def _node(self, snapshot: Snapshot, name: str, kind: Kind) -> None:
        labels = {"nvidia.com/mig.strategy": "mixed"} if kind.mig else {}
        node = a_node(
            name, kind.gpus, more=kind.mig, labels=labels, gpu_memory_mib=kind.memory, gpu_count=-1
        )
        snapshot.set_node(node, rv=1)
        for driver, count in ((GPU_DRIVER, kind.dra_gpus), (CARD_DRIVER, kind.cards)):
            if count:
                offer = ResourceSlice(
                    uid=f"{name}-{driver}",
                    name=f"{name}-{driver}",
                    driver=driver,
                    pool=name,
                    node=name,
                    devices=tuple(Device(name=f"d{i}") for i in range(count)),
                )
                snapshot.set_slice(offer, rv=1)

    # -- cycles

    def run(self, n_cycles: int) -> Iterator[str]:
        """Decide and carry on."""
        number = 0
        for _ in range(n_cycles):
            for _ in range(self.rng.randint(2, 8)):
                self._job(number)
                number += 1
            self.cycle += 1
            self.now_ms += 1000
            inputs = CycleInputs(shard="s", cycle=self.cycle, now_ms=self.now_ms)
            decision = self.decided(inputs)
            yield from self._check(decision)
            self._carry_on(decision)

    def decided(self, inputs: CycleInputs) -> CycleDecision:
        return decide(self.snapshot(), self.config.shard("s"), inputs)

    def _carry_on(self, decision: CycleDecision) -> None:
        """Bound pods run; what leaves is gone, now or a cycle later, and is made again."""
        for member in list(self.pods.values()):
            if member.status is TaskStatus.RELEASING:
                self._again(member)
            elif member.status is TaskStatus.RUNNING and self.rng.random() < 0.1:
                member.status = TaskStatus.RELEASING
        for op in decision.ops:
            member = self.pods[op.pod]
            if isinstance(op, Bind):
                member.status, member.node = TaskStatus.RUNNING, op.node
                member.groups = op.gpu_groups
                member.extended = None if op.extended is None else op.extended.allocation
                for grant in op.claims:
                    self._use(grant.claim, grant.allocation, member)
            elif isinstance(op, Evict) and self.rng.random() < 0.5:
                member.status = TaskStatus.RELEASING
            elif isinstance(op, Evict):
                self._again(member)

    def _use(self, name: str, allocation: Allocation, member: Member) -> None:
        claim = self.claims[name]
        user = Consumer("pods", member.name, f"{member.name}/{member.times}")
        self.claims[name] = msgspec.structs.replace(
            claim,
            allocation=claim.allocation or allocation,
            reserved_for=(*claim.reserved_for, user),
        )

    def _again(self, member: Member) -> None:
        uid = f"{member.name}/{member.times}"
        for name, claim in self.claims.items():
            users = tuple(one for one in claim.reserved_for if one.uid != uid)
            if users != claim.reserved_for:
                self.claims[name] = msgspec.structs.replace(
                    claim, reserved_for=users, allocation=claim.allocation if users else None
                )
        member.status, member.node, member.groups = TaskStatus.PENDING, "", ()
        member.extended, member.times = None, member.times + 1

    # -- books

    def _check(self, decision: CycleDecision) -> Iterator[str]:
        evicted = {op.pod for op in decision.ops if isinstance(op, Evict)}
        binds = [op for op in decision.ops if isinstance(op, Bind)]
        placed = [op for op in decision.ops if isinstance(op, Pipeline)]
        there = [m for m in self.pods.values() if m.node]
        stay = [m for m in there if m.name not in evicted and m.status is not TaskStatus.RELEASING]
        yield from self._check_amounts("now", there, [*binds])
        yield from self._check_amounts("later", stay, [*binds, *placed])
        yield from self._check_claims(there, binds)

    def _check_amounts(
        self, when: str, there: list[Member], ops: list[Bind | Pipeline]
    ) -> Iterator[str]:
        """What the pods that are there and those to come take of each node."""
        taken = [(m, m.node, m.groups) for m in there]
        taken += [(self.pods[op.pod], op.node, op.gpu_groups) for op in ops]
        shares: Counter[tuple[str, str]] = Counter()
        whole: Counter[str] = Counter()
        mig: Counter[tuple[str, str]] = Counter()
        for member, node, groups in taken:
            spec, kind = member.pod().spec, self.nodes[node]
            if spec.request_type in ("Fraction", "GpuMemory"):
                memory = spec.gpu.memory_mib or int(spec.gpu.portion * kind.memory)
                if len(groups) != spec.gpu.count or len(set(groups)) != len(groups):
                    yield f"{when}: {member.name} shares {groups}, wants {spec.gpu.count} devices"
                for group in groups:
                    shares[node, group] += memory
            else:
                if groups:
                    yield f"{when}: {member.name} shares {groups}, though it asks for none"
                whole[node] += spec.gpu.count
                for profile, count in spec.gpu.mig.items():
                    mig[node, profile] += count
        for (node, group), memory in sorted(shares.items()):
            if memory > self.nodes[node].memory:
                yield f"{when}: device {group} of {node} gives {memory} MiB"
            whole[node] += 1
        names = Counter(group for _, group in shares)
        yield from (f"{when}: device {g} is on several nodes" for g, n in names.items() if n > 1)
        for node, count in sorted(whole.items()):
            if count > self.nodes[node].gpus:
                yield f"{when}: {count} devices of {node} in use, it has {self.nodes[node].gpus}"
        for (node, profile), count in sorted(mig.items()):
            if count > self.nodes[node].mig.get(profile, 0):
                yield f"{when}: {count} x {profile} of {node}"

    def _check_claims(self, there: list[Member], binds: list[Bind]) -> Iterator[str]:
        """No device belongs to two claims, and each claim keeps the devices that it has."""
        owners: dict[str, str] = {}

        def own(owner: str, node: str, allocation: Allocation) -> Iterator[str]:
            for one in allocation.devices:
                device = str(one.id)
                if one.pool != node:
                    yield f"{owner} has {device} on {node}"
                if owners.setdefault(device, owner) != owner:
                    yield f"device {device} belongs to {owners[device]} and to {owner}"

        for member in there:
            if member.extended is not None:
                yield from own(f"cards of {member.name}", member.node, member.extended)
            for wanted in member.raw["spec"].get("resourceClaims", ()):
                claim = self.claims[wanted["resourceClaimName"]]
                assert claim.allocation is not None, "its user runs"
                yield from own(claim.name, member.node, claim.allocation)
        for op in binds:
            spec = self.pods[op.pod].raw["spec"]
            if len(op.claims) != len(spec.get("resourceClaims", ())):
                yield f"{op.pod} is bound without its claims"
            for grant in op.claims:
                known = self.claims[grant.claim].allocation
                if known is not None and known.devices != grant.allocation.devices:
                    yield f"{grant.claim} is given other devices than it has"
                if len(grant.allocation.devices) != self.claims[grant.claim].requests[0].count:
                    yield f"{grant.claim} is given {len(grant.allocation.devices)} devices"
                yield from own(grant.claim, op.node, grant.allocation)
            if op.extended is not None:
                yield from own(f"cards of {op.pod}", op.node, op.extended.allocation)
            elif CARD in spec["containers"][0]["resources"]["requests"]:
                yield f"{op.pod} is bound without cards"


def _extended_claim(pod: Pod, allocation: Allocation) -> ResourceClaim:
    """As the binder makes it."""
    return ResourceClaim(
        uid=f"cards-{pod.uid}",
        namespace=pod.namespace,
        name=f"{pod.name}-extended-resources",
        owner_pod=pod.uid,
        extended=True,
        requests=(DeviceRequest(name="r", device_class="card", count=len(allocation.devices)),),
        allocation=allocation,
        reserved_for=(Consumer("pods", pod.name, pod.uid),),
    )
