"""The choice of domains for one (sub-)group, or why there is none.

Reference: pkg/scheduler/plugins/topology/job_filtering.go (plugins §7.1, §7.8–7.10).
"""

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kai_es.events.decisions import Arg, Reason
from kai_es.kube.objects import TopologyConstraint
from kai_es.scheduler.columns.topology import NO_DOMAIN, ROOT, TopologyTree
from kai_es.scheduler.flags import REQUIRED_LEVEL_MISSED, Flags
from kai_es.scheduler.solve.domains import (
    NOT_COUNTED,
    Need,
    Room,
    fitting,
    lowest_common,
    ranked,
    ratios,
    relevant_levels,
)

DOMAINS_SHOWN: Final = 64
"""Domains of which a reason tells what they lack; a person looks at a few, a record has a size."""

Mask = NDArray[np.bool_]
Rows = NDArray[np.intp]


class Asking(NamedTuple):
    """Who asks, for reasons: job as `namespace/name`, and the name of the sub-group."""

    job: str
    sub_group: str


class Choice:
    """Domains of a topology for one (sub-)group.

    Args:
        tree: the topology.
        constraint: of the (sub-)group.
        usable: bool [N], nodes that it may use.
        flags: rule flags in force.

    start:  the domain in which all usable nodes lie; nothing outside it is looked at.
    ranked: domains from there on, a list per level, the fullest first; () before `choose`.

    Raises:
        LevelError: the constraint cannot be understood.
    """

    def __init__(
        self, tree: TopologyTree, constraint: TopologyConstraint, usable: Mask, flags: Flags
    ) -> None:
        self._tree = tree
        self._constraint = constraint
        self._levels, self._preferred = relevant_levels(tree.levels, constraint)
        self.start = lowest_common(tree, usable, deepest_level(tree.levels, constraint, flags))
        self.ranked: Sequence[Rows] = ()

    def choose(
        self, need: Need, room: Room, pinned: Iterable[int]
    ) -> tuple[list[int], list[int] | None]:
        """Domains to try, narrower ones first.

        Args:
            need: of the pods.
            room: of the domains.
            pinned: nodes where pods of the (sub-)group are already; they stay together with them.

        Returns:
            The domains, and if there are none those that were too small, None = already the one
            that holds all usable nodes is.
        """
        tree, levels = self._tree, self._levels
        ratio = ratios(need, room)
        fits = fitting(need, room, ratio)
        if not fits[self.start]:
            return [], None
        self.ranked = ranked(tree, self.start, ratio, levels[0])
        fits &= room.known
        allowed = self._allowed(pinned)
        fits &= allowed
        top = int(tree.level[self.start])
        found = [
            int(domain)
            for level in levels
            if level >= top
            for domain in self.ranked[level - top]
            if fits[domain]
        ]
        small = allowed & ~fits & (tree.level == levels[-1])
        return found, small.nonzero()[0].tolist()

    def _allowed(self, pinned: Iterable[int]) -> Mask:
        """Bool [D]: domains of the required level where pods are already, and those in them."""
        tree, required = self._tree, self._constraint.required
        nodes = sorted(pinned) if required else []
        if not nodes:
            return np.ones(len(tree), np.bool_)
        level = tree.levels.index(required)
        found = np.zeros(len(tree), np.bool_)
        for domain in sorted({int(tree.domain[level, n]) for n in nodes}):
            if domain != NO_DOMAIN:
                found |= tree.below(domain)
        return found

    def liked(self) -> Rows | None:
        """Domains of the preferred level, the fullest first; None = there is no such level."""
        if self._preferred is None:
            return None
        at = self._preferred - int(self._tree.level[self.start])
        return self.ranked[at] if at < len(self.ranked) else np.empty(0, np.intp)

    # -- why there is none

    def reasons(
        self,
        need: Need,
        room: Room,
        small: Sequence[int] | None,
        asking: Asking,
        names: Sequence[tuple[int, str]],
    ) -> tuple[Reason, ...]:
        """Why `choose` found nothing.

        Args:
            need: of the pods.
            room: of the domains.
            small: domains that were too small.
            asking: who asks.
            names: resource rows and names in the order of display.
        """
        args: dict[str, Arg] = {
            "topology": self._tree.name,
            "level": self._constraint.required,
            "job": asking.job,
            "sub_group": asking.sub_group,
        }
        if small is None:
            args["domain"] = "" if self.start == ROOT else self._tree.ids[self.start]
            return (Reason(code="topology-unsatisfied", args=args),)
        return (
            *(self._too_small(need, room, d, asking, names) for d in small[:DOMAINS_SHOWN]),
            Reason(code="topology-unsatisfied", args=args),
        )

    def _too_small(
        self,
        need: Need,
        room: Room,
        domain: int,
        asking: Asking,
        names: Sequence[tuple[int, str]],
    ) -> Reason:
        args: dict[str, Arg] = {"domain": self._tree.ids[domain], "sub_group": asking.sub_group}
        pods = int(room.pods[domain])
        if pods != NOT_COUNTED:
            args |= {"room": pods, "needed": need.n_tasks}
            return Reason(code="domain-pods", args=args)
        known = bool(room.known[domain])
        lacks = [
            (name, int(need.total[row]), int(room.free[row, domain]) if known else 0)
            for row, name in names
        ]
        lacks += [(name, amount, 0) for name, amount in need.absent]
        parts = tuple(
            Reason(
                code="not-enough",
                args={"resource": name, "requested": requested, "available": available},
            )
            for name, requested, available in lacks
            if requested > available
        )
        return Reason(code="domain-too-small", args=args, parts=parts)


def deepest_level(levels: Sequence[str], constraint: TopologyConstraint, flags: Flags) -> int:
    """The narrowest level at which the usable nodes are asked what they have in common."""
    if constraint.preferred:
        return levels.index(constraint.preferred)
    if constraint.required and REQUIRED_LEVEL_MISSED not in flags:
        return levels.index(constraint.required)
    return len(levels) - 1  # compat: common.go looks past the required level
