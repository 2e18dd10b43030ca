"""Structured reasons in plain language, with the nearest fix where one number decides.

For the command line, the web page and `explain`. Every code has a sentence; one that is not known
(a record of a newer release) shows its code and arguments.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from kai_es.events.decisions import Reason
from kai_es.kube.labels import CPU, DEFAULT_POD_SET, GPU, GPU_MICRO, MEMORY
from kai_es.kube.times import duration_text, rfc3339
from kai_es.scheduler.reasons import codes
from kai_es.scheduler.reasons.amounts import CORE, GIGABYTE, humanized
from kai_es.scheduler.reasons.render import int_of, text_of

_FIX: Final = re.compile(r"(\S+) of (node|queue) (\S+) \+(\d+)")
_NODE_REASONS_MAX: Final = 3  # a person reads three causes, not two hundred


def plain_lines(reasons: Iterable[Reason]) -> list[str]:
    """A sentence or two per reason, dominant first, each with its fix and each once."""
    return list(dict.fromkeys(line for reason in reasons for line in _lines(reason)))


def pod_lines(reasons: Iterable[Reason], pod: str) -> list[str]:
    """The same for one pod (`namespace/name`) of the group."""
    return [line for reason in reasons for line in _lines(_for_pod(reason, pod))]


def _for_pod(reason: Reason, pod: str) -> Reason:
    """What a group's reason means for a pod that is not the one that is blocked."""
    args = reason.args
    if args.get("blocked") != 1 or text_of(args, "pod") in ("", pod):
        return reason
    return Reason(code=codes.WAITS_FOR_POD, args={"pod": args["pod"]})


def plain(reason: Reason) -> str:
    """One reason without its fix."""
    make = _SENTENCES.get(reason.code)
    if make is None:
        args = ", ".join(f"{name}={value}" for name, value in sorted(reason.args.items()))
        return f"{reason.code} ({args})" if args else reason.code
    return make(reason)


def amount_text(amount: int, resource: str) -> str:
    """An amount with its unit: `2 GPUs`, `1.5 CPU cores`, `4 GB memory`."""
    if resource == GPU:
        shown = humanized(amount, GPU_MICRO)
        return f"{shown} GPU" if shown == "1" else f"{shown} GPUs"
    if resource == CPU:
        shown = humanized(amount, CORE)
        return f"{shown} CPU core" if shown == "1" else f"{shown} CPU cores"
    if resource == MEMORY:
        return f"{humanized(amount, GIGABYTE)} GB memory"
    return f"{amount} {resource}"


def fix_text(fix: str) -> str:
    """A fix as a sentence."""
    match = _FIX.fullmatch(fix)
    if match is None:
        return f"Fix: {fix}."
    resource, kind, name, amount = match.groups()
    more = amount_text(int(amount), resource)
    if kind == "queue":
        return f"It would fit with {more} more for queue {name}."
    return f"It would fit on node {name} with {more} more."


def _lines(reason: Reason) -> list[str]:
    lines = [plain(reason)]
    fix = _fix(reason)
    return [*lines, fix_text(fix)] if fix else lines


def _fix(reason: Reason) -> str:
    """The first fix in a tree."""
    return reason.fix or next((fix for part in reason.parts if (fix := _fix(part))), "")


def _capacity(reason: Reason) -> str:
    args = reason.args
    resource = text_of(args, "resource")
    bound, used, requested = (
        amount_text(int_of(args, name), resource) for name in ("bound", "used", "requested")
    )
    missing = amount_text(int_of(args, "missing"), resource)
    queue = text_of(args, "queue")
    if reason.code == codes.OVER_LIMIT:
        return (
            f"Queue {queue} may use at most {bound}; {used} are in use and this asks for "
            f"{requested}: {missing} too many."
        )
    return (
        f"Queue {queue} has a quota of {bound} for workloads that nobody may displace; {used} are "
        f"in use and this asks for {requested}: {missing} too many."
    )


def _not_ready(reason: Reason) -> str:
    waits = "; ".join(plain(part) for part in reason.parts)
    return f"Not enough pods exist yet: {waits}." if waits else "Not enough pods exist yet."


def _too_few_pods(reason: Reason) -> str:
    args = reason.args
    name, gated = text_of(args, "sub_group"), int_of(args, "gated")
    where = "" if name == DEFAULT_POD_SET else f" in sub-group {name}"
    text = f"{int_of(args, 'exist')} of {int_of(args, 'needed')} pods{where}"
    return f"{text}, {gated} of them gated" if gated else text


def _backoff(reason: Reason) -> str:
    args = reason.args
    tries = int_of(args, "attempts")
    return (
        f"Binding failed {tries} time{'' if tries == 1 else 's'} ({text_of(args, 'code')}); the "
        f"next try is at {rfc3339(int_of(args, 'until_ms'))}."
    )


def _delay(reason: Reason) -> str:
    delay, until = int_of(reason.args, "delay_ms"), int_of(reason.args, "until_ms")
    return (
        f"For {duration_text(delay)} after its creation or last eviction the workload may not "
        f"displace others; that ends at {rfc3339(until)}."
    )


def _task(reason: Reason) -> str:
    args = reason.args
    why = f": {_uncapital(plain(reason.parts[0]))}" if reason.parts else "."
    pod = text_of(args, "pod")
    if reason.code == codes.HOPELESS:
        return f"No eviction can help pod {pod}{why}"
    if reason.code == codes.TASK_NOT_PLACED:
        return f"Pod {pod} has no place{why}"
    name = text_of(args, "sub_group")
    where = f" of sub-group {name}" if name else ""
    needed, blocked = int_of(args, "needed"), int_of(args, "blocked")
    if not blocked:
        blocked = needed - int_of(args, "placed")
    return (
        f"All {needed} pods{where} must start together and {blocked} of them "
        f"{'has' if blocked == 1 else 'have'} no place; pod {pod}{why}"
    )


def _no_node_fits(reason: Reason) -> str:
    shown = [_node(part) for part in reason.parts[:_NODE_REASONS_MAX]]
    rest = len(reason.parts) - len(shown)
    if rest > 0:
        shown.append(f"{rest} more causes on other nodes")
    return "No node fits" + (f": {'; '.join(shown)}." if shown else ".")


def _node(reason: Reason) -> str:
    n = reason.count
    nodes = "1 node" if n == 1 else f"{n} nodes"
    return f"{nodes}: {_NODE_WORDS.get(reason.code, _unknown_node)(reason)}"


def _unknown_node(reason: Reason) -> str:
    return f"refused ({reason.code})"


def _larger(reason: Reason) -> str:
    args = reason.args
    resource = text_of(args, "resource")
    most = amount_text(int_of(args, "most"), resource)
    return (
        f"No single node is large enough: the largest node of pool {text_of(args, 'pool')} has "
        f"{most}."
    )


def _topology(reason: Reason) -> str:
    args = reason.args
    level = text_of(args, "level")
    where = f"one {level} of" if level else "a domain of"
    return f"The pods must be together in {where} topology {text_of(args, 'topology')}; none fits."


def _domain(reason: Reason) -> str:
    args = reason.args
    if reason.code == codes.DOMAIN_PODS:
        room, needed = int_of(args, "room"), int_of(args, "needed")
        return f"Domain {text_of(args, 'domain')} has room for {room} of {needed} pods."
    lacks = ", ".join(_resource(text_of(part.args, "resource")) for part in reason.parts)
    return f"Domain {text_of(args, 'domain')} has too little {lacks}."


def _by_action(reason: Reason, text: str) -> str:
    action = text_of(reason.args, "action")
    text = f"{action}: {text}" if action else text
    return text[:1].upper() + text[1:]


def _resource(name: str) -> str:
    return {GPU: "GPUs", CPU: "CPU", MEMORY: "memory"}.get(name, name)


def _uncapital(text: str) -> str:
    return text[:1].lower() + text[1:]


_SENTENCES: Final[Mapping[str, Callable[[Reason], str]]] = {
    codes.OVER_LIMIT: _capacity,
    codes.OVER_QUOTA: _capacity,
    codes.NO_QUEUE: lambda r: f"Queue {text_of(r.args, 'queue')} does not exist.",
    codes.QUEUE_NOT_LEAF: lambda r: (
        f"Queue {text_of(r.args, 'queue')} has child queues; only leaf queues hold workloads."
    ),
    codes.QUEUE_CYCLE: lambda r: (
        f"Queue {text_of(r.args, 'queue')} is its own ancestor; its parents form a cycle."
    ),
    codes.NOT_READY: _not_ready,
    codes.TOO_FEW_PODS: _too_few_pods,
    codes.BIND_BACKOFF: _backoff,
    codes.PREEMPTION_DELAY: _delay,
    codes.HOPELESS: _task,
    codes.TASK_NOT_PLACED: _task,
    codes.GANG_NOT_PLACED: _task,
    codes.SUB_GROUP_NOT_PLACED: _task,
    codes.WAITS_FOR_POD: lambda r: (
        f"It could be placed; it waits for pod {text_of(r.args, 'pod')}, which could not."
    ),
    codes.TOPOLOGY_MISSING: lambda r: f"Topology {text_of(r.args, 'topology')} does not exist.",
    codes.TOPOLOGY_UNSATISFIED: _topology,
    codes.TOPOLOGY_NO_LEVEL: lambda r: (
        f"Its constraint on topology {text_of(r.args, 'topology')} names no level; name a required "
        "or a preferred one."
    ),
    codes.TOPOLOGY_LEVEL_UNKNOWN: lambda r: (
        f"Topology {text_of(r.args, 'topology')} has no level {text_of(r.args, 'level')} at or "
        f"below the required one, which its constraint names as the {text_of(r.args, 'kind')} one."
    ),
    codes.DOMAIN_TOO_SMALL: _domain,
    codes.DOMAIN_PODS: _domain,
    codes.CANNOT_RECLAIM: lambda r: f"It may not reclaim: {text_of(r.args, 'why')}.",
    codes.VICTIMS_REFUSED: lambda r: _by_action(r, f"no fair victims, {text_of(r.args, 'why')}."),
    codes.NO_VICTIMS: lambda r: _by_action(r, "there is no workload that could give way."),
    codes.SEARCH_EXHAUSTED: lambda r: _by_action(r, "no set of victims makes enough room."),
    codes.SEARCH_CUT: lambda r: _by_action(
        r, "the search for victims reached its budget; it goes on in the next cycle."
    ),
    codes.NOT_YET_SUPPORTED: lambda r: f"It needs {text_of(r.args, 'feature')}.",
    codes.NOT_TRIED: lambda _r: "It has not been tried in this cycle.",
    codes.LARGER_THAN_ANY_NODE: _larger,
    codes.MISSING_CONFIG_MAPS: lambda r: (
        f"Config maps are missing: {text_of(r.args, 'names').replace(' ', ', ')}."
    ),
    codes.CLAIM: lambda r: f"Its claims on devices: {text_of(r.args, 'text')}.",
    codes.VOLUME: lambda r: f"A volume is not available: {text_of(r.args, 'text')}.",
    codes.UNKNOWN_SUB_GROUP: lambda r: (
        f"Its sub-group {text_of(r.args, 'sub_group')} does not exist in pod group "
        f"{text_of(r.args, 'group')}."
    ),
    codes.NO_NODE_FITS: _no_node_fits,
}

_NODE_WORDS: Final[Mapping[str, Callable[[Reason], str]]] = {
    codes.NOT_ENOUGH: lambda r: f"too little free {_resource(text_of(r.args, 'resource'))}",
    codes.NOT_ENOUGH_MIG: lambda r: f"no free {text_of(r.args, 'resource')}",
    codes.DEVICE_TOO_SMALL: lambda _r: "devices with less memory than asked for",
    codes.NO_FREE_DEVICE: lambda _r: "no device with enough room",
    codes.NODE_NOT_READY: lambda r: f"not ready ({text_of(r.args, 'problems')})",
    codes.GPU_MEMORY_UNKNOWN: lambda _r: "GPU memory not known",
    codes.TAINT: lambda r: f"a taint that the pod does not tolerate ({text_of(r.args, 'key')})",
    codes.NODE_AFFINITY: lambda _r: "no match for the pod's node selector or affinity",
    codes.POD_AFFINITY: lambda _r: "not near the pods that the pod must be near",
    codes.POD_ANTI_AFFINITY: lambda _r: "near pods that the pod must be apart from",
    codes.POD_UNWANTED: lambda _r: "near pods that must be apart from the pod",
    codes.HOST_PORTS: lambda _r: "the host's ports that the pod wants are taken",
    codes.NODE_VOLUME: lambda r: f"no volume for the pod ({text_of(r.args, 'text')})",
    codes.NUMA: lambda _r: "the NUMA zones left cannot serve the pod as the kubelet wants it",
    codes.GPU_TASK_ON_CPU_NODE: lambda _r: "not for GPU workloads",
    codes.CPU_TASK_ON_GPU_NODE: lambda _r: "not for CPU workloads",
    codes.LEGACY_MIG: lambda _r: "no place for the old form of MIG request",
    codes.MIG_ON_OTHER_NODE: lambda _r: "no MIG devices",
    codes.MIG_BESIDE_LEGACY: lambda _r: "in use by pods with the old form of MIG request",
    codes.MIG_STRATEGY_SINGLE: lambda _r: "for whole GPUs only (MIG strategy single)",
    codes.MIG_STRATEGY_MIXED: lambda _r: "for MIG requests only (MIG strategy mixed)",
    codes.NODE_OVER_CAPACITY: lambda r: (
        f"too much for the queue: {_uncapital(plain(r.parts[0])).rstrip('.')}"
        if r.parts
        else "too much for the queue"
    ),
    codes.POD_SLOTS: lambda _r: "no free pod slot",
    codes.CLAIM_UNMET: lambda r: f"no devices for its claims ({text_of(r.args, 'error')})",
    codes.CLAIM_ELSEWHERE: lambda r: (
        f"claim {text_of(r.args, 'claim')} has its devices on another node"
    ),
    codes.SHARE_ON_DRA_NODE: lambda _r: "GPUs that only claims can use, not shares of them",
    codes.GPUS_NOT_SERVED: lambda _r: (
        "GPUs that only claims can use, and no device class serves the pod's request"
    ),
}
