"""Cheap tests that tell, before a scenario is simulated, that it cannot work.

All three look at a scenario that only grows within one probe: the pending tasks are fixed, the
victims become more. Each victim counts once, by its uid. Amounts are integers (`gpu_micro`).

Reference: pkg/scheduler/actions/common/solvers/accumulated_scenario_filters/**
(scheduler-core §10.4).
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kai_es.scheduler.flags import TOPOLOGY_COUNTS_RUNNING, Flags
from kai_es.scheduler.jobs.tree import JobTree, Member, PodSet, leaves_below


class Freed(NamedTuple):
    """What one victim would free: its accepted GPU quota on its node (a row number)."""

    uid: str
    node: int
    gpus: int


class ScenarioShrankError(AssertionError):
    """A filter was shown a scenario that is not an extension of the last one."""


def greedy_fit(requirements: Iterable[int], capacities: Iterable[int]) -> bool:
    """Whether requirements fit holders, the largest on the largest room first.

    First fit in falling order: it may refuse what an exact packing would accept.
    """
    holders = sorted(capacities, reverse=True)
    left = list(holders)
    for need in sorted(requirements, reverse=True):
        if need <= 0:
            return True
        for at, capacity in enumerate(holders):
            if capacity < need:
                return False
            if left[at] >= need:
                left[at] -= need
                break
        else:
            return False
    return True


class IdleGpuFilter:
    """Whether the GPUs of the pending tasks can be matched to nodes.

    Args:
        room: int64 [N], idle plus releasing GPUs by node row; this object works on a copy.
        pending: requested GPUs by task uid; requests by GPU memory count 0.
        seen: uids of victims that `room` contains already.
    """

    def __init__(
        self, room: NDArray[np.int64], pending: Mapping[str, int], seen: Iterable[str] = ()
    ) -> None:
        self._room = room.copy()
        self._pending = dict(pending)
        self._needs = sorted(pending.values(), reverse=True)
        self._seen = set(seen)

    def possible(self, pending: Iterable[str], victims: Sequence[Freed]) -> bool:
        """Whether the scenario may work.

        Args:
            pending: uids of the scenario's pending tasks.
            victims: recorded and potential ones.

        Raises:
            ScenarioShrankError: a task or victim seen before is missing.
        """
        _add_unseen(self._room, self._seen, victims)
        if set(pending) != self._pending.keys():
            raise ScenarioShrankError("pending tasks changed within one probe")
        return greedy_fit(self._needs, _largest(self._room, len(self._needs)))


def _add_unseen(room: NDArray[np.int64], seen: set[str], victims: Sequence[Freed]) -> None:
    if not seen <= {victim.uid for victim in victims}:
        raise ScenarioShrankError("a victim seen before is missing")
    for victim in victims:
        if victim.uid not in seen:
            seen.add(victim.uid)
            room[victim.node] += victim.gpus


def _largest(room: NDArray[np.int64], n: int) -> list[int]:
    """At most n nodes matter: a task uses one."""
    if n < len(room):
        room = np.partition(room, len(room) - n)[len(room) - n :]
    return [int(gpus) for gpus in room]


class Level(NamedTuple):
    """A topology and the node label that names one of its levels."""

    topology: str
    label: str


def required_levels(
    tree: JobTree, pending: Sequence[int], running: Sequence[int], flags: Flags
) -> dict[Level, list[int]]:
    """The GPUs that each sub-group set with a required level needs within one domain.

    Constraints of pod sets are not looked at. A set below another of the same level shares that
    one's domain and is not counted again.

    Args:
        tree: of the partial job.
        pending: requested GPUs of its pending tasks, by leaf.
        running: GPU quota of its active-allocated tasks, by leaf.
        flags: rule flags in force.
    """
    counts = pending
    if TOPOLOGY_COUNTS_RUNNING in flags:  # compat: topology_aware_idle_gpus.go
        counts = [ours + theirs for ours, theirs in zip(pending, running, strict=True)]
    needs: dict[Level, list[int]] = {}
    _collect(tree.root, frozenset(), counts, needs)
    return needs


def _collect(
    member: Member, above: frozenset[Level], counts: Sequence[int], needs: dict[Level, list[int]]
) -> None:
    if isinstance(member, PodSet):
        return
    if member.topology is not None and member.topology.required:
        level = Level(member.topology.topology, member.topology.required)
        if level not in above:
            above |= {level}
            total = sum(counts[leaf.leaf] for leaf in leaves_below(member))
            needs.setdefault(level, []).append(total)
    for child in member.members:
        _collect(child, above, counts, needs)


class TopologyGpuFilter:
    """Whether the sub-group sets with a required level can each find a domain.

    Args:
        room: int64 [N], idle plus releasing GPUs by node row; this object works on a copy.
        domains: by level, int32 [N], number of each node's domain, negative = the node has none.
        needs: of `required_levels`; an empty one means the filter is not used.
    """

    def __init__(
        self,
        room: NDArray[np.int64],
        domains: Mapping[Level, NDArray[np.int32]],
        needs: Mapping[Level, Sequence[int]],
    ) -> None:
        self._room = room.copy()
        self._domains = domains
        self._needs = needs
        self._seen: set[str] = set()

    def possible(self, victims: Sequence[Freed]) -> bool:
        """Whether the scenario may work.

        Raises:
            ScenarioShrankError: a victim seen before is missing.
        """
        _add_unseen(self._room, self._seen, victims)
        for level in sorted(self._needs):
            domain = self._domains[level]
            known = domain >= 0
            capacity = np.zeros(int(domain.max(initial=-1)) + 1, np.int64)
            np.add.at(capacity, domain[known], self._room[known])
            if not greedy_fit(self._needs[level], [int(gpus) for gpus in capacity]):
                return False
        return True


class NodeAffinityFilter:
    """Whether every pending task that is bound to certain nodes finds one in the scenario.

    Args:
        matching: per such task, bool [N], the nodes its selector and required affinity allow;
            empty means the filter is not used.
        feasible: bool [N], nodes of the probe; this object works on a copy.
    """

    def __init__(self, matching: Sequence[NDArray[np.bool_]], feasible: NDArray[np.bool_]) -> None:
        self._matching = matching
        self._allowed = feasible.copy()

    def possible(self, victim_nodes: Iterable[int]) -> bool:
        """Whether the scenario may work.

        Args:
            victim_nodes: row of each victim's node.
        """
        for node in victim_nodes:
            self._allowed[node] = True
        return all(bool((allowed & self._allowed).any()) for allowed in self._matching)
