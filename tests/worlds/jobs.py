"""The workload of a world: that of the demo, in some worlds on shared devices, or in several pools.

A shard has the nodes, queues and pod groups with its pool's label; the first one those without it.
"""

from dataclasses import replace

from kai_es.kube.labels import (
    GPU_FRACTION,
    GPU_FRACTION_DEVICES,
    GPU_MEMORY,
    NODE_POOL_LABEL,
    POD_GROUP_ANNOTATION,
    QUEUE_LABEL,
)
from kai_es.kube.sharing import prepared
from kai_es.simulate.workload import GPU_RESOURCE, Sizes, Workload, generate

POOLS = ("", "b", "c")
"""Values of the pool label, in order of the shards; "" = without the label."""

FRACTIONS = ("0.25", "0.3", "0.5", "0.7")
MEMORY_MIB = ("4000", "7000")
"""Fits any model of device that there is."""


def shard_name(pool):
    return f"pool-{pool}" if pool else "default"


def pool_of(obj):
    """Value of an object's pool label, "" = without it."""
    return obj["metadata"].get("labels", {}).get(NODE_POOL_LABEL, "")


def group_home(group):
    """Merge patches, in turn, that give a pod group back its pool, and its queue and priority."""
    spec = group["spec"]
    changes = {name: spec[name] for name in ("queue", "priorityClassName")}
    yield {"metadata": {"labels": {NODE_POOL_LABEL: pool_of(group) or None}}}
    yield {"spec": changes}


def make_workload(seed, chance, *, arrival_s):
    """(pools, workload) of a seed."""
    pools = POOLS[: chance.choices((1, 2, 3), weights=(70, 20, 10))[0]]
    share_rate = chance.choices((0.0, 0.4, 0.9), weights=(50, 30, 20))[0]
    parts = []
    for number, pool in enumerate(pools):
        sizes = Sizes(
            n_nodes=chance.randint(2, 5 if len(pools) == 1 else 3),
            n_jobs=chance.randint(5, 14) if len(pools) == 1 else chance.randint(3, 6),
            n_queues=chance.randint(2, 4),
            arrival_s=arrival_s,
        )
        part = generate(seed + 1_000_003 * number, sizes)
        part = replace(part, jobs=tuple(_shared(job, chance, share_rate) for job in part.jobs))
        parts.append(_in_pool(part, pool) if pool else part)
    jobs = sorted((job for part in parts for job in part.jobs), key=lambda job: job.at_ms)
    return pools, Workload(
        nodes=tuple(node for part in parts for node in part.nodes),
        queues=tuple(queue for part in parts for queue in part.queues),
        priority_classes=parts[0].priority_classes,
        jobs=tuple(jobs),
    )


def _shared(job, chance, rate):
    """The job with shares instead of whole devices; those that ask for one device can."""
    asks = _requests(job.pods[0]).get(GPU_RESOURCE)
    if asks not in ("1", "2") or chance.random() >= rate:
        return job
    notes = {GPU_FRACTION: chance.choice(FRACTIONS)}
    if asks == "2":
        notes[GPU_FRACTION_DEVICES] = "2"
    elif chance.random() < 0.2:
        notes = {GPU_MEMORY: chance.choice(MEMORY_MIB)}
    return replace(job, pods=tuple(_sharing(pod, notes) for pod in job.pods))


def _requests(pod):
    return pod["spec"]["containers"][0]["resources"]["requests"]


def _sharing(pod, notes):
    meta, spec = pod["metadata"], pod["spec"]
    requests = {k: v for k, v in _requests(pod).items() if k != GPU_RESOURCE}
    container = spec["containers"][0] | {"resources": {"requests": requests}}
    shared = pod | {
        "metadata": meta | {"annotations": meta["annotations"] | notes},
        "spec": spec | {"containers": [container]},
    }
    return prepared(shared, f"{meta['name']}-gpus")


def _in_pool(part, pool):
    """All objects under names of their own, with the label of the pool."""
    return replace(
        part,
        nodes=tuple(_named(node, pool) for node in part.nodes),
        queues=tuple(_queue(queue, pool) for queue in part.queues),
        jobs=tuple(
            replace(
                job,
                group=_group(job.group, pool),
                pods=tuple(_pod(pod, pool) for pod in job.pods),
            )
            for job in part.jobs
        ),
    )


def _named(obj, pool):
    meta = obj["metadata"]
    labels = meta.get("labels", {}) | {NODE_POOL_LABEL: pool}
    if QUEUE_LABEL in labels:
        labels[QUEUE_LABEL] = f"{pool}-{labels[QUEUE_LABEL]}"
    if obj["kind"] == "Node":
        labels["kubernetes.io/hostname"] = f"{pool}-{meta['name']}"
    named = meta | {"name": f"{pool}-{meta['name']}", "labels": labels}
    if "namespace" in meta:
        named["namespace"] = f"{pool}-{meta['namespace']}"
    return obj | {"metadata": named}


def _queue(queue, pool):
    spec = queue["spec"]
    if "parentQueue" in spec:
        spec = spec | {"parentQueue": f"{pool}-{spec['parentQueue']}"}
    return _named(queue, pool) | {"spec": spec}


def _group(group, pool):
    spec = group["spec"]
    return _named(group, pool) | {"spec": spec | {"queue": f"{pool}-{spec['queue']}"}}


def _pod(pod, pool):
    named = _named(pod, pool)
    notes = dict(named["metadata"]["annotations"])
    notes[POD_GROUP_ANNOTATION] = f"{pool}-{notes[POD_GROUP_ANNOTATION]}"
    return named | {"metadata": named["metadata"] | {"annotations": notes}}
