"""Label and annotation keys, resource names and well-known values of Kubernetes and of KAI.

Reference: pkg/common/constants/constants.go.
"""

from typing import Final

# -- KAI: labels
QUEUE_LABEL: Final = "kai.scheduler/queue"
NODE_POOL_LABEL: Final = "kai.scheduler/node-pool"
SUB_GROUP_LABEL: Final = "kai.scheduler/subgroup-name"
TASK_PRIORITY_LABEL: Final = "kai.scheduler/task-priority"
GPU_GROUP_LABEL: Final = "runai-gpu-group"
GPU_GROUPS_PREFIX: Final = "runai-gpu-group/"
RESERVATION_APP: Final = "kai-resource-reservation"
SCALING_APP: Final = "scaling-pod"
APP_LABEL: Final = "app"
USER_LABEL: Final = "user"
"""Also an annotation, copied to the pod group by the grouper."""

# -- KAI: annotations
POD_GROUP_ANNOTATION: Final = "pod-group-name"
GPU_FRACTION: Final = "gpu-fraction"
GPU_MEMORY: Final = "gpu-memory"
GPU_FRACTION_DEVICES: Final = "gpu-fraction-num-devices"
RECEIVED_RESOURCE_TYPE: Final = "received-resource-type"
GPU_FRACTION_CONTAINER: Final = "gpu-fraction-container-name"
MIG_PREFIX: Final = "nvidia.com/mig-"
SHARED_GPU_CONFIG_MAP: Final = "runai/shared-gpu-configmap"
GPU_INDEX: Final = "run.ai/reserve_for_gpu_index"
"""On a reservation pod: UUID of the GPU that it got, whatever the name says."""
DO_NOT_DISRUPT: Final = "karpenter.sh/do-not-disrupt"
NUMA_OBSERVED: Final = "kai.scheduler/numa-placement-observed"
NUMA_PREDICTED: Final = "kai.scheduler/numa-placement-predicted"
TOP_OWNER: Final = "kai.scheduler/top-owner-metadata"
"""YAML with name, uid, group, version, kind of a pod group's workload."""
STALE_SINCE: Final = "kai.scheduler/stale-podgroup-timestamp"
LAST_START: Final = "kai.scheduler/last-start-timestamp"
LAST_EVICTION: Final = "kai.scheduler/last-eviction-timestamp"
EXTENDED_RESOURCE_CLAIM: Final = "resource.kubernetes.io/extended-resource-claim"
"""`"true"` on a claim that was made for a pod's extended resources."""

# -- kai-es: annotations
CLOSED_REQUEST: Final = "kai.scheduler/closed-request"
"""Id of the last bind or evict request of this pod that has its final result (architecture §3)."""
BOUND_REQUEST: Final = "kai.scheduler/bound-request"
"""Id of the bind request that bound this pod, written with the binding; absent: another binder."""
CLAIMED_BY: Final = "kai.scheduler/claimed-by"
"""Id of the bind request that found its pod a user of this resource claim already."""
GROUP_STAMP: Final = "kai.scheduler/podgroup-stamp"
"""`<pod group uid>/<generation>` under which a pod was grouped (architecture §2)."""
RESERVED_FOR: Final = "kai.scheduler/reserved-for"
"""On a reservation pod: the request for which a binder that found it has taken it over."""
AS_OF: Final = "kai.scheduler/as-of"
"""Snapshot offset that a status was computed from."""
MIRROR: Final = "kai.scheduler/mirror"
"""`"true"`, a label: a BindRequest that only shows what the log says; nothing acts on it."""
RUN_SECONDS: Final = "kai.scheduler/simulated-run-seconds"
"""How long the simulated kubelet lets a pod run before it succeeds; absent: for ever."""
RECREATE: Final = "kai.scheduler/simulated-recreate"
"""`true`: the simulated cluster makes the pod again when it is deleted before it has ended."""

# -- Namespace labels
SPACE_NAME_LABEL: Final = "kubernetes.io/metadata.name"

# -- Node labels
GPU_MEMORY_LABEL: Final = "nvidia.com/gpu.memory"
GPU_COUNT_LABEL: Final = "nvidia.com/gpu.count"
GPU_PRODUCT_LABEL: Final = "nvidia.com/gpu.product"
MIG_STRATEGY_LABEL: Final = "nvidia.com/mig.strategy"
CPU_WORKER_LABEL: Final = "node-role.kubernetes.io/cpu-worker"
GPU_WORKER_LABEL: Final = "node-role.kubernetes.io/gpu-worker"
MIG_WORKER_LABEL: Final = "node-role.kubernetes.io/mig-enabled"

# -- Names
SCHEDULER_NAME: Final = "kai-scheduler"
DEFAULT_POD_SET: Final = "default"
DEFAULT_NODE_POOL: Final = "default"

# -- Resource dimensions that every cluster has, in this order; further names follow in byte order
CPU: Final = "cpu"
MEMORY: Final = "memory"
GPU: Final = "gpu"
PODS: Final = "pods"
BASE_RESOURCES: Final = (CPU, MEMORY, GPU, PODS)

NVIDIA_GPU: Final = "nvidia.com/gpu"
"""The usual name of the resource behind `GPU`."""
GPU_MICRO: Final = 1_000_000
"""One whole device in `gpu_micro`."""
UNLIMITED: Final = 2**61
"""Amounts without limit; two of them still add up without overflow."""
