"""Structured reasons as the reference's texts.

Reference: scheduler-core §11.4, §12; plugins §3, §7.10. Reasons that the reference does not know
(a search that was cut, a bind in back-off) render to nothing here and to plain language in
`plain`.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from kai_es.events.decisions import Arg, Reason
from kai_es.kube.labels import CPU, DEFAULT_POD_SET, GPU, GPU_MICRO, MEMORY, MIG_PREFIX, PODS
from kai_es.kube.times import duration_text, rfc3339
from kai_es.scheduler.fairness.vectors import Resource
from kai_es.scheduler.reasons import codes, fit, quota, shortage
from kai_es.scheduler.reasons.amounts import CORE, GIGABYTE, humanized
from kai_es.scheduler.reasons.fit import JobError, WaitingSet
from kai_es.scheduler.reasons.shortage import Kind, Shortage

POD_ERRORS: Final = "PodSchedulingErrors"
"""The reference's word for everything that has to do with placing a task."""

RESOURCE: Final[Mapping[str, Resource]] = {
    CPU: Resource.CPU,
    MEMORY: Resource.MEMORY,
    GPU: Resource.GPU,
}

_Args = Mapping[str, Arg]
_NodeText = Callable[[_Args, str], str]


def text_of(args: _Args, name: str) -> str:
    """An argument as text, "" if missing."""
    return str(args.get(name, ""))


def int_of(args: _Args, name: str) -> int:
    """An argument as integer, 0 if missing."""
    return int(args.get(name, 0))


# -- jobs


def pod_group_message(reasons: Iterable[Reason]) -> str:
    """The message of a pod group's condition and event."""
    return fit.job_text(job_errors(reasons))


def pod_group_detailed(reasons: Iterable[Reason]) -> str:
    """The same with `--detailed-fit-errors`."""
    return fit.job_detailed_text(job_errors(reasons))


def not_ready_message(reason: Reason) -> str:
    """The text of the event `NotReady`, of a reason `not-ready`."""
    return fit.not_ready_text(
        WaitingSet(
            text_of(part.args, "sub_group"),
            int_of(part.args, "needed"),
            int_of(part.args, "exist"),
            int_of(part.args, "gated"),
        )
        for part in reason.parts
    )


def job_errors(reasons: Iterable[Reason]) -> list[JobError]:
    """The reasons that the reference has a word for, as its job errors."""
    return [error for reason in reasons if (error := _job_error(reason)) is not None]


def _job_error(reason: Reason) -> JobError | None:
    make = _JOB_ERRORS.get(reason.code)
    return None if make is None else make(reason)


def _capacity(reason: Reason) -> JobError:
    word = "OverLimit" if reason.code == codes.OVER_LIMIT else "NonPreemptibleOverQuota"
    return JobError.of(word, capacity_text(reason))._replace(asked=quota.Asked.of(reason.args))


def capacity_text(reason: Reason) -> str:
    """The text of `over-limit` or `over-quota`."""
    args = reason.args
    queue, resource = text_of(args, "queue"), RESOURCE[text_of(args, "resource")]
    bound, used, requested = (int_of(args, name) for name in ("bound", "used", "requested"))
    if reason.code == codes.OVER_LIMIT:
        return quota.over_limit_text(
            queue, resource, limit=bound, allocated=used, requested=requested
        )
    return quota.over_quota_text(queue, resource, quota=bound, allocated=used, requested=requested)


def _no_queue(reason: Reason) -> JobError:
    queue = text_of(reason.args, "queue")
    return JobError.of("QueueDoesNotExist", f"Queue '{queue}' does not exist")


def _preemption_delay(reason: Reason) -> JobError:
    delay, until = int_of(reason.args, "delay_ms"), int_of(reason.args, "until_ms")
    return JobError.of(
        "PreemptionDelayNotElapsed",
        f"Workload is within its preemption delay window ({duration_text(delay)}) and may not "
        f"trigger evictions before {rfc3339(until)}",
    )


def _not_placed(reason: Reason) -> JobError:
    args = reason.args
    pod = text_of(args, "pod")
    why = task_message(reason.parts[0], pod) if reason.parts else fit.NO_POD
    if reason.code == codes.HOPELESS and reason.parts:
        why = general_text(reason.parts[0], pod)
    needed = int_of(args, "needed") if "needed" in args else None
    text = fit.not_placed_text(
        pod,
        why,
        placed=int_of(args, "placed"),
        needed=needed,
        sub_group=text_of(args, "sub_group"),
    )
    return JobError.of(POD_ERRORS, text)


def _topology(reason: Reason) -> JobError:
    args = reason.args
    topology, sub_group = text_of(args, "topology"), text_of(args, "sub_group")
    if reason.code == codes.TOPOLOGY_MISSING:
        return JobError.of(POD_ERRORS, f"Requested topology {topology} does not exist")
    text = (
        f"topology {topology}, requirement {text_of(args, 'level')} couldn't be satisfied for job "
        f"<{text_of(args, 'job')}>"
    )
    if sub_group not in ("", "default"):
        text += f", subgroup {sub_group}"
    if "domain" in args:
        where = text_of(args, "domain") or "the cluster"
        text += f": not enough resources in {where} to allocate the job"
    return JobError.of(POD_ERRORS, text)


def _topology_level(reason: Reason) -> JobError:
    args = reason.args
    return JobError.of(
        POD_ERRORS,
        topology_level_text(
            text_of(args, "topology"),
            text_of(args, "sub_group"),
            level=text_of(args, "level"),
            kind=text_of(args, "kind"),
        ),
    )


def topology_level_text(topology: str, sub_group: str, *, level: str, kind: str) -> str:
    """What is wrong with the levels of a constraint; `kind` "" = there are none."""
    if not kind:
        return (
            f"no topology constraints were found for subgroup {sub_group}, with topology name "
            f"{topology}"
        )
    who = "workload" if sub_group == DEFAULT_POD_SET else f"sub-group {sub_group}"
    return (
        f"topology constraint error: {who} specified '{level}' as the {kind} topology constraint "
        f"level, but the topology tree '{topology}' does not contain a level with this name"
    )


def _domain(reason: Reason) -> JobError:
    args = reason.args
    domain, sub_group = text_of(args, "domain"), text_of(args, "sub_group")
    if reason.code == codes.DOMAIN_PODS:
        room, needed = int_of(args, "room"), int_of(args, "needed")
        return shortage.domain_pods_error(domain, room=room, needed=needed, sub_group=sub_group)
    found = [
        Shortage(
            shortage.kind_of(text_of(part.args, "resource")),
            text_of(part.args, "resource"),
            int_of(part.args, "requested"),
            0,
            int_of(part.args, "available"),
        )
        for part in reason.parts
    ]
    return shortage.domain_error(domain, found, sub_group)


_JOB_ERRORS: Final[Mapping[str, Callable[[Reason], JobError]]] = {
    codes.OVER_LIMIT: _capacity,
    codes.OVER_QUOTA: _capacity,
    codes.NO_QUEUE: _no_queue,
    codes.QUEUE_CYCLE: _no_queue,  # a queue on a cycle of parents counts as missing
    codes.PREEMPTION_DELAY: _preemption_delay,
    codes.HOPELESS: _not_placed,
    codes.TASK_NOT_PLACED: _not_placed,
    codes.GANG_NOT_PLACED: _not_placed,
    codes.SUB_GROUP_NOT_PLACED: _not_placed,
    codes.TOPOLOGY_MISSING: _topology,
    codes.TOPOLOGY_UNSATISFIED: _topology,
    codes.TOPOLOGY_NO_LEVEL: _topology_level,
    codes.TOPOLOGY_LEVEL_UNKNOWN: _topology_level,
    codes.DOMAIN_TOO_SMALL: _domain,
    codes.DOMAIN_PODS: _domain,
}


# -- tasks


def task_message(reason: Reason, pod: str) -> str:
    """Why a task was not placed.

    Args:
        reason: `no-node-fits`, or a reason that holds on every node.
        pod: `namespace/name`.
    """
    if reason.code == codes.NO_NODE_FITS:
        counts: Counter[str] = Counter()
        for part in reason.parts:
            for text in node_texts(part, pod):
                counts[text] += part.count
        return fit.task_text(counts)
    if reason.code in _PRE_FILTERS:
        head = f"Scheduling conditions were not met for pod {pod}:\n"
        return f"{head}{pre_filter_line(_PRE_FILTERS[reason.code], general_text(reason, pod))}\n"
    return general_text(reason, pod)


def pre_filter_line(name: str, text: str, details: Iterable[str] = ()) -> str:
    """What a check that looks at no node has found."""
    more = ", ".join(details)
    return f"{name}: {text}." + (f" Reasons: {more}" if more else "")


def general_text(reason: Reason, pod: str) -> str:
    """The text of a reason that holds on every node."""
    args = reason.args
    if reason.code == codes.LARGER_THAN_ANY_NODE:
        return _larger_than_any_node(args, pod)
    if reason.code == codes.MISSING_CONFIG_MAPS:
        return f"Missing required configmaps: [{text_of(args, 'names')}]"
    if reason.code == codes.UNKNOWN_SUB_GROUP:
        return (
            f'Pod references subgroup "{text_of(args, "sub_group")}", which does not exist in '
            f"PodGroup {text_of(args, 'group')}"
        )
    return text_of(args, "text") or fit.NO_POD


_PRE_FILTERS: Final[Mapping[str, str]] = {
    codes.LARGER_THAN_ANY_NODE: "MaxNodePoolResources",
    codes.MISSING_CONFIG_MAPS: "ConfigMap",
    codes.VOLUME: "VolumeBinding",
}


def _larger_than_any_node(args: _Args, pod: str) -> str:
    resource, most = text_of(args, "resource"), int_of(args, "most")
    pool, word = text_of(args, "pool"), resource
    shown, unit = "0", ""
    if resource == GPU:
        word, shown = "GPU", humanized(most, GPU_MICRO)
    elif resource == CPU:
        word, shown, unit = "CPU", humanized(most, CORE), " cores"
    elif resource == MEMORY or resource.endswith("storage"):
        shown, unit = humanized(most, GIGABYTE), " GB"
    else:
        shown = humanized(most, 1 if resource.startswith(MIG_PREFIX) or resource == PODS else 1000)
    head = f"The pod {pod} requires {text_of(args, 'request')}. "
    if shown == "0":
        return f"{head}No node in the {pool} node-pool has {word} resources"
    return (
        f"{head}Max {word} resources available in a single node in the {pool} node-pool is "
        f"topped at {shown}{unit}"
    )


def request_text(requests: Mapping[str, int], quota_micro: int, mig: Mapping[str, int]) -> str:
    """A request as `larger-than-any-node` shows it.

    Args:
        requests: amounts by resource in the order of display, MIG profiles left out.
        quota_micro: what the request weighs in GPUs.
        mig: instances by profile.
    """
    text = (
        f"GPU: {humanized(quota_micro, GPU_MICRO)}, CPU: {humanized(requests.get(CPU, 0), CORE)} "
        f"(cores), memory: {humanized(requests.get(MEMORY, 0), GIGABYTE)} (GB)"
    )
    for name, amount in requests.items():
        if name in (CPU, MEMORY, GPU) or not amount:
            continue
        is_storage = name.endswith("storage")
        text += f", {name}: {humanized(amount, GIGABYTE) if is_storage else amount}"
        text += " (GB)" if is_storage else ""
    return text + "".join(f", mig {name}: {count}" for name, count in mig.items())


# -- nodes


def node_texts(reason: Reason, pod: str) -> list[str]:
    """The short texts of one node's refusal; each is counted by itself."""
    if reason.code == codes.NODE_NOT_READY:
        return text_of(reason.args, "problems").split(", ")
    if reason.code == codes.NODE_OVER_CAPACITY and reason.parts:
        error = _capacity(reason.parts[0])
        return [
            f"node does not have enough capacity. Reason: {error.reason}, "
            f"Details: {error.messages[0]}"
        ]
    if reason.code in (codes.NOT_ENOUGH, codes.NOT_ENOUGH_MIG, codes.DEVICE_TOO_SMALL):
        return [shortage.short_text(_node_shortage(reason))]
    make = _NODE_TEXTS.get(reason.code)
    return [make(reason.args, pod)] if make else []


def _node_shortage(reason: Reason) -> Shortage:
    resource = text_of(reason.args, "resource")
    is_memory = reason.code == codes.DEVICE_TOO_SMALL
    kind = Kind.GPU_MEMORY if is_memory else shortage.kind_of(resource)
    return Shortage(kind, resource, 0, 0, 0)


_NODE_TEXTS: Final[Mapping[str, _NodeText]] = {
    codes.GPU_MEMORY_UNKNOWN: lambda args, pod: (
        "node is not a gpu node or the gpu memory count on the node was not synced yet, "
        f"task: <{pod}>, node: <{text_of(args, 'node')}>"
    ),
    codes.TAINT: lambda args, _pod: (
        f"node(s) had untolerated taint {{{text_of(args, 'key')}: {text_of(args, 'value')}}}"
    ),
    codes.NODE_AFFINITY: lambda _args, _pod: "node(s) didn't match Pod's node affinity/selector",
    codes.POD_AFFINITY: lambda _args, _pod: "node(s) didn't match pod affinity rules",
    codes.POD_ANTI_AFFINITY: lambda _args, _pod: "node(s) didn't match pod anti-affinity rules",
    codes.POD_UNWANTED: lambda _args, _pod: (
        "node(s) didn't satisfy existing pods anti-affinity rules"
    ),
    codes.HOST_PORTS: lambda _args, _pod: (
        "node(s) didn't have free ports for the requested pod ports"
    ),
    codes.NODE_VOLUME: lambda args, _pod: text_of(args, "text"),
    codes.NUMA: lambda _args, _pod: (
        "node cannot NUMA-align the pod's resources under its Topology Manager policy"
    ),
    codes.GPU_TASK_ON_CPU_NODE: lambda args, pod: (
        f"gpu task: <{pod}> can't run on non gpu nodes, node: <{text_of(args, 'node')}>"
    ),
    codes.CPU_TASK_ON_GPU_NODE: lambda args, pod: (
        f"cpu task: <{pod}> can't run on non cpu nodes, node: <{text_of(args, 'node')}>"
    ),
    codes.LEGACY_MIG: lambda args, _pod: (
        f"Legacy MIG jobs cannot be scheduled on node {text_of(args, 'node')}"
    ),
    codes.MIG_ON_OTHER_NODE: lambda _args, _pod: "MIG job cannot be scheduled on non-MIG node",
    codes.MIG_BESIDE_LEGACY: lambda args, _pod: (
        f"MIG job cannot be scheduled on node with legacy MIG jobs: <[{text_of(args, 'tasks')}]>"
    ),
    codes.MIG_STRATEGY_SINGLE: lambda _args, _pod: (
        "only whole gpu jobs can run on a node with MigStrategy='single'"
    ),
    codes.MIG_STRATEGY_MIXED: lambda _args, _pod: (
        "non MIG jobs cant run on a node with MigStrategy='mixed'"
    ),
    codes.POD_SLOTS: lambda _args, _pod: "node(s) pod number exceeded",
    codes.CLAIM_UNMET: lambda args, _pod: f"cannot allocate DRA claims: {text_of(args, 'error')}",
    codes.CLAIM_ELSEWHERE: lambda args, _pod: (
        f"claim {text_of(args, 'claim')} node selector does not match"
    ),
    codes.SHARE_ON_DRA_NODE: lambda _args, _pod: (
        "fractional/shared GPU pods are not yet supported on DRA-only nodes"
    ),
    codes.GPUS_NOT_SERVED: lambda _args, _pod: (
        "device-plugin GPU requests cannot be scheduled on DRA-only nodes"
    ),
}
