"""Codes of structured reasons, and what their arguments are.

A code is part of the log: never rename one. Amounts are integers in the units of
`PodSpec.requests` (`gpu` in gpu_micro). `pod` is `namespace/name`.

| Code | Arguments | Parts |
|---|---|---|
| over-limit, over-quota | queue, resource, bound, used, requested, missing | |
| no-queue, queue-not-leaf, queue-cycle | queue | |
| not-ready | | too-few-pods |
| too-few-pods | sub_group, needed, exist, gated | |
| bind-backoff | code, until_ms, attempts | |
| preemption-delay | delay_ms, until_ms | |
| hopeless | pod | why of a task |
| task-not-placed | pod | why of a task |
| gang-not-placed | pod, placed, needed, blocked (pods without a place) | why of a task |
| sub-group-not-placed | as before, sub_group | why of a task |
| waits-for-pod (of a pod, made from its group's) | pod | |
| topology-missing | topology | |
| topology-no-level | topology, sub_group | |
| topology-level-unknown | topology, sub_group, level, kind (required or preferred) | |
| topology-unsatisfied | topology, level, job, sub_group, domain | |
| domain-too-small | domain, sub_group | not-enough |
| domain-pods | domain, sub_group, room, needed | |
| cannot-reclaim | why, action | |
| victims-refused | why, other, action | |
| not-yet-supported | feature | |
| no-victims, search-exhausted, search-cut | action | |
| not-tried | | |

Of a task, where no node was looked at: `larger-than-any-node` (pod, resource, most, pool, request),
`missing-config-maps` (names), `volume` (text), `claim` (text), `unknown-sub-group` (sub_group,
group). Otherwise `no-node-fits`, whose parts are reasons of nodes, each with the number of its
nodes: `not-enough`, `not-enough-mig` (resource), `device-too-small`, `no-free-device`,
`node-not-ready` (problems), `gpu-memory-unknown` (node), `taint` (key, value), `node-affinity`,
`pod-affinity`, `pod-anti-affinity`, `pod-unwanted` (anti-affinity of a pod there), `host-ports`,
`node-volume` (text), `numa`, `gpu-task-on-cpu-node`, `cpu-task-on-gpu-node`, `legacy-mig` (node),
`mig-on-other-node`, `mig-beside-legacy` (tasks), `mig-strategy-single`, `mig-strategy-mixed`,
`node-over-capacity`, `pod-slots`, `claim-unmet` (error), `claim-elsewhere` (claim),
`share-on-dra-node`, `gpus-not-served`.
"""

from typing import Final

OVER_LIMIT: Final = "over-limit"
OVER_QUOTA: Final = "over-quota"
NO_QUEUE: Final = "no-queue"
QUEUE_NOT_LEAF: Final = "queue-not-leaf"
QUEUE_CYCLE: Final = "queue-cycle"
NOT_READY: Final = "not-ready"
TOO_FEW_PODS: Final = "too-few-pods"
BIND_BACKOFF: Final = "bind-backoff"
PREEMPTION_DELAY: Final = "preemption-delay"
HOPELESS: Final = "hopeless"
TASK_NOT_PLACED: Final = "task-not-placed"
GANG_NOT_PLACED: Final = "gang-not-placed"
SUB_GROUP_NOT_PLACED: Final = "sub-group-not-placed"
WAITS_FOR_POD: Final = "waits-for-pod"
TOPOLOGY_MISSING: Final = "topology-missing"
TOPOLOGY_NO_LEVEL: Final = "topology-no-level"
TOPOLOGY_LEVEL_UNKNOWN: Final = "topology-level-unknown"
TOPOLOGY_UNSATISFIED: Final = "topology-unsatisfied"
DOMAIN_TOO_SMALL: Final = "domain-too-small"
DOMAIN_PODS: Final = "domain-pods"
CANNOT_RECLAIM: Final = "cannot-reclaim"
VICTIMS_REFUSED: Final = "victims-refused"
NO_VICTIMS: Final = "no-victims"
SEARCH_EXHAUSTED: Final = "search-exhausted"
SEARCH_CUT: Final = "search-cut"
NOT_TRIED: Final = "not-tried"
NOT_YET_SUPPORTED: Final = "not-yet-supported"

LARGER_THAN_ANY_NODE: Final = "larger-than-any-node"
MISSING_CONFIG_MAPS: Final = "missing-config-maps"
VOLUME: Final = "volume"
UNKNOWN_SUB_GROUP: Final = "unknown-sub-group"
NO_NODE_FITS: Final = "no-node-fits"

NOT_ENOUGH: Final = "not-enough"
NOT_ENOUGH_MIG: Final = "not-enough-mig"
DEVICE_TOO_SMALL: Final = "device-too-small"
NO_FREE_DEVICE: Final = "no-free-device"
NODE_NOT_READY: Final = "node-not-ready"
GPU_MEMORY_UNKNOWN: Final = "gpu-memory-unknown"
TAINT: Final = "taint"
NODE_AFFINITY: Final = "node-affinity"
POD_AFFINITY: Final = "pod-affinity"
POD_ANTI_AFFINITY: Final = "pod-anti-affinity"
POD_UNWANTED: Final = "pod-unwanted"
HOST_PORTS: Final = "host-ports"
NODE_VOLUME: Final = "node-volume"
NUMA: Final = "numa"
GPU_TASK_ON_CPU_NODE: Final = "gpu-task-on-cpu-node"
CPU_TASK_ON_GPU_NODE: Final = "cpu-task-on-gpu-node"
LEGACY_MIG: Final = "legacy-mig"
MIG_ON_OTHER_NODE: Final = "mig-on-other-node"
MIG_BESIDE_LEGACY: Final = "mig-beside-legacy"
MIG_STRATEGY_SINGLE: Final = "mig-strategy-single"
MIG_STRATEGY_MIXED: Final = "mig-strategy-mixed"
NODE_OVER_CAPACITY: Final = "node-over-capacity"
POD_SLOTS: Final = "pod-slots"
CLAIM: Final = "claim"
CLAIM_UNMET: Final = "claim-unmet"
CLAIM_ELSEWHERE: Final = "claim-elsewhere"
SHARE_ON_DRA_NODE: Final = "share-on-dra-node"
GPUS_NOT_SERVED: Final = "gpus-not-served"
