"""The scheduling signature: jobs that fail alike have it in common.

Only equality within one cycle matters. Requests, claims of devices, labels, queue and namespace
are not in it: what a job asks for is compared by `minimal`.

Reference: pkg/scheduler/api/pod_info/scheduling_constraints_signature.go,
pkg/scheduler/api/podgroup_info/subgroup_info/podset.go (scheduler-core §5.15).
"""

import hashlib
from collections.abc import Mapping, Sequence

import msgspec

from kai_es.kube.objects import PodSpec, TopologyConstraint
from kai_es.scheduler.jobs.tree import JobTree, Member, PodSet

_encode = msgspec.msgpack.Encoder(order="deterministic").encode


def pod_signature(spec: PodSpec) -> bytes:
    """What of a pod decides on which nodes it may run, as a digest. Replicas share their spec."""
    parts = (
        spec.claims,
        spec.volumes,
        spec.node_selector,
        spec.affinity,
        spec.tolerations,
        spec.priority_class,
        spec.priority,
        spec.topology_spread,
        spec.host_ports,
        spec.start_host_ports,
    )
    return hashlib.sha256(_encode(parts)).digest()


def labels_signature(namespace: str, labels: Mapping[str, str]) -> bytes:
    """What of a pod decides which other pods keep it away, as a digest."""
    return hashlib.sha256(_encode((namespace, labels))).digest()


def alignment_signature(spec: PodSpec) -> bytes:
    """What of a pod decides how the NUMA zones of nodes treat it, as a digest."""
    parts = (spec.requests, spec.containers, spec.overhead, spec.guaranteed)
    return hashlib.sha256(_encode(parts)).digest()


def job_signature(tree: JobTree, pods: Sequence[Sequence[bytes]]) -> bytes:
    """The signature of a job.

    Args:
        tree: of the job, aliases of topology levels resolved.
        pods: by leaf, the signatures of its tasks that are not active-allocated.
    """
    found: list[bytes] = []
    _collect(tree.root, (), pods, found)
    return hashlib.sha256(_encode(sorted(found))).digest()


def _collect(
    member: Member,
    above: tuple[TopologyConstraint | None, ...],
    pods: Sequence[Sequence[bytes]],
    found: list[bytes],
) -> None:
    path = (*above, member.topology)
    if not isinstance(member, PodSet):
        for child in member.members:
            _collect(child, path, pods, found)
    elif pods[member.leaf]:
        found.append(hashlib.sha256(_encode((path, sorted(pods[member.leaf])))).digest())
