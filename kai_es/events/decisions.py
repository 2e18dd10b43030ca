"""Records of the topic `decisions`, and the inputs and outputs of one cycle. Owner: scheduler.

`CycleInputs` and `CycleDecision` are the two sides of `kai_es.scheduler.decide`; they are defined
here because the log, every projection and every replay read them.
"""

import enum
from typing import TypeAlias

import msgspec

from kai_es.kube.devices import Allocation, DeviceRequest


class Verdict(enum.IntEnum):
    """What the gate allows (architecture §3). A higher number allows less."""

    OPEN = 0
    NO_EVICT = 1
    CLOSED = 2


class Gate(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The gate's verdict with its reasons (`kind-not-listed:Node`, `pipeline-age`, …), sorted."""

    verdict: Verdict
    reasons: tuple[str, ...] = ()


class CycleInputs(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """All that a cycle may look at besides snapshot and configuration.

    now_ms:  max of clock, previous cycle's time and batch time.
    usage:   queue name -> resource (cpu | memory | gpu) -> normalised decayed usage, 0..1.
    usage_as_of: snapshot offset of the usage, −1 = none; usage_stale: older than the staleness
             period.
    flags:   numbered rule flags in force, sorted (`compat.Q12`, …).
    """

    shard: str
    cycle: int
    now_ms: int
    gate: Gate = Gate(verdict=Verdict.OPEN)
    usage: dict[str, dict[str, float]] = {}
    usage_as_of: int = -1
    usage_stale: bool = False
    flags: tuple[str, ...] = ()


Arg: TypeAlias = str | int | float


class Reason(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Why something was not done: a code with arguments, and what it consists of.

    code:    a stable word, e.g. `over-limit`, `not-enough-resources`, `gang-incomplete`.
    args:    what the texts need, e.g. {"queue": "team-a", "resource": "gpu", "missing": 2000000}.
    count:   how many nodes or tasks this holds for, 0 = not counted.
    parts:   the tree below, dominant blocker first.
    fix:     the nearest single change that would clear it, "" = none known.
    """

    code: str
    args: dict[str, Arg] = {}
    count: int = 0
    parts: tuple["Reason", ...] = ()
    fix: str = ""


class ClaimGrant(msgspec.Struct, frozen=True, array_like=True):
    """Devices that a claim of a pod gets with its binding (binder.md §3.1).

    reference: the claim's name in the pod.
    claim, claim_uid: the claim's own name and uid.
    """

    reference: str
    claim: str
    claim_uid: str
    allocation: Allocation


class ContainerMapping(msgspec.Struct, frozen=True, array_like=True):
    """Which request of the claim for extended resources a container uses."""

    container: str
    resource: str
    request: str


class ExtendedGrant(msgspec.Struct, frozen=True, array_like=True):
    """Devices for a pod's extended resources; the binder makes a claim of it."""

    allocation: Allocation
    requests: tuple[DeviceRequest, ...]
    mappings: tuple[ContainerMapping, ...]


class ZoneAmount(msgspec.Struct, frozen=True, kw_only=True):
    """What a pod gets of one NUMA zone: resource -> quantity, by the node's own names."""

    zone: str
    amount: dict[str, str]


class Bind(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="bind"):
    """A pod is to be bound to a node whose resources are idle now.

    score: sum of the node's scores, for the decision ledger; gpu_portion in hundredths.
    claims, extended: devices of the pod's claims and of its extended resources.
    zones: NUMA zones that it is expected to get.
    volumes: names of its claims of volumes that are bound where it goes, before it.
    """

    pod_uid: str
    pod_rv: int
    namespace: str
    pod: str
    group_uid: str
    node: str
    node_uid: str
    action: str = "allocate"
    supersedes: str = ""
    received: str = "Regular"
    gpu_count: int = 0
    gpu_portion: int = 0
    gpu_groups: tuple[str, ...] = ()
    score: float = 0.0
    claims: tuple[ClaimGrant, ...] = ()
    extended: ExtendedGrant | None = None
    zones: tuple[ZoneAmount, ...] = ()
    volumes: tuple[str, ...] = ()


class Pipeline(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="pipeline"):
    """A pod waits for resources that are being released on a node. Lasts for this cycle only.

    moved: the pod ran before and is evicted in this cycle to start again there.
    """

    pod_uid: str
    namespace: str
    pod: str
    group_uid: str
    node: str
    node_uid: str
    action: str
    moved: bool = False
    gpu_groups: tuple[str, ...] = ()


class ShareAt(msgspec.Struct, frozen=True, array_like=True):
    """A queue's place at one moment: allocated and fair share; gpu_micro, millicores, bytes."""

    queue: str
    allocated: tuple[int, int, int]
    fair_share: tuple[int, int, int]


class Evict(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="evict"):
    """A running pod is to be evicted.

    action:      reclaim | preempt | consolidation | stalegangeviction: the rule.
    beneficiary: uid of the pod group it gives way to, "" for a stale gang.
    before, after: shares of the victim's and the beneficiary's queue around this statement.
    gang_size:   tasks evicted by the same scenario.
    """

    pod_uid: str
    pod_rv: int
    namespace: str
    pod: str
    group_uid: str
    node: str
    node_uid: str
    action: str
    message: str = ""
    supersedes: str = ""
    beneficiary: str = ""
    gang_size: int = 1
    before: tuple[ShareAt, ...] = ()
    after: tuple[ShareAt, ...] = ()


Op: TypeAlias = Bind | Pipeline | Evict


class GroupMark(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Marks of a pod group after the cycle, ms since the epoch, 0 = none. Only changed groups.

    room_made_ms: pods were last evicted to make room for it, 0 again once it has got the room.
    """

    group_uid: str
    stale_since_ms: int = 0
    last_start_ms: int = 0
    last_eviction_ms: int = 0
    room_made_ms: int = 0


class QueueFairShare(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Result of the division for one queue; units of `ShareAt`, −1 = unlimited."""

    queue: str
    fair_share: tuple[float, float, float]
    allocated: tuple[int, int, int] = (0, 0, 0)


class CycleDecision(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What one cycle decided.

    ops:       in commit order.
    reasons:   pod-group uid -> reasons, dominant first, for every group with a pod not placed.
    marks:     by group uid.
    fair_shares: by queue name.
    resume:    group uid at which the next cycle goes on searching after a cut, "" = not cut.
    """

    ops: tuple[Op, ...] = ()
    reasons: dict[str, tuple[Reason, ...]] = {}
    marks: tuple[GroupMark, ...] = ()
    fair_shares: tuple[QueueFairShare, ...] = ()
    resume: str = ""


class Reign(msgspec.Struct, frozen=True, kw_only=True, tag="reign"):
    """A leader's start: from here no predecessor can commit."""

    shard: str
    epoch: int
    first_cycle: int


class ReignEnd(msgspec.Struct, frozen=True, kw_only=True, tag="reign-end"):
    """A leader's graceful stop, or its shard was deleted."""

    shard: str
    epoch: int


class GateChange(msgspec.Struct, frozen=True, kw_only=True, tag="gate-change"):
    """The gate's verdict changed while no cycle ran."""

    shard: str
    epoch: int
    time: int
    gate: Gate


class CycleChunk(msgspec.Struct, frozen=True, kw_only=True, tag="cycle-chunk"):
    """Part n of n_chunks (from 0) of one encoded `Cycle`; all parts are in one transaction."""

    shard: str
    epoch: int
    cycle: int
    n: int
    n_chunks: int
    data: bytes


class Cycle(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="cycle"):
    """One whole cycle: a row of the snapshot, and in `decisions` cut into chunks.

    offset:    snapshot offset of the last batch that the decision saw.
    inputs, decision: exactly those of `decide`, save that `decision.reasons` holds only the groups
               whose reasons differ from the previous cycle's;
    reasons_same: group uid -> cycle that introduced the reasons that still hold.
    digest:    hex SHA-256 over (config digest, inputs, whole decision), architecture §4.
    took_ms:   wall time by part, not in the digest.
    runtime:   NumPy version, CPU features; not in the digest.
    """

    shard: str
    epoch: int
    cycle: int
    offset: int
    config_digest: str
    inputs: CycleInputs
    decision: CycleDecision
    reasons_same: dict[str, int] = {}
    digest: str
    took_ms: dict[str, float] = {}
    runtime: str = ""


DecisionRecord: TypeAlias = Reign | ReignEnd | GateChange | CycleChunk
