"""Which domains of a topology can take the pods of a (sub-)group, and in which order to try them.

Everything is worked out for all domains at once. The domain in which all usable nodes lie is the
start; what is outside it is not looked at.

Reference: pkg/scheduler/plugins/topology/{job_filtering,node_scoring,common}.go (plugins §7, §8).
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kai_es.kube.objects import TopologyConstraint
from kai_es.scheduler.columns.resources import PODS_ROW
from kai_es.scheduler.columns.topology import ROOT, ROOT_LEVEL, TopologyTree

NOT_COUNTED: Final = -1
"""Instead of a number of pods: the pods differ too much to be counted."""
NO_ROOM: Final = 1000.0
"""Ratio of a domain that has nothing of a resource that is asked for."""
TOP_SCORE: Final = 10.0

Amounts = NDArray[np.int64]
Ratios = NDArray[np.float64]
Mask = NDArray[np.bool_]
Rows = NDArray[np.intp]


class LevelError(ValueError):
    """A constraint that cannot be understood.

    level, kind: the unknown level and "required" or "preferred"; "" = no level is given at all.
    """

    def __init__(self, level: str = "", kind: str = "") -> None:
        super().__init__(level)
        self.level = level
        self.kind = kind


class Room(NamedTuple):
    """What the domains have for the pods.

    free:  int64 [R, D].
    pods:  int64 [D], pods of the largest shape that fit, NOT_COUNTED.
    known: bool [D], domains that were looked at; others have nothing.
    """

    free: Amounts
    pods: Amounts
    known: Mask


class Need(NamedTuple):
    """What the pods ask for together.

    n_tasks: how many they are.
    total:   int64 [R].
    largest: int64 [R], the most that one of them asks for.
    alike:   they differ in amounts only, so that they can be counted.
    shares:  one of them shares devices.
    absent:  resources that no node offers, with the amount.
    """

    n_tasks: int
    total: Amounts
    largest: Amounts
    alike: bool = True
    shares: bool = False
    absent: tuple[tuple[str, int], ...] = ()


def relevant_levels(
    levels: Sequence[str], constraint: TopologyConstraint
) -> tuple[list[int], int | None]:
    """Levels whose domains may be chosen, narrowest first, and the preferred one.

    Args:
        levels: node labels, widest first.
        constraint: with at least one level.

    Raises:
        LevelError: no level is given, one is unknown, or the preferred one is the wider.
    """
    required, preferred = constraint.required, constraint.preferred
    if not required and not preferred:
        raise LevelError
    for level, kind in ((required, "required"), (preferred, "preferred")):
        if level and level not in levels:
            raise LevelError(level, kind)
    top = levels.index(required) if required else ROOT_LEVEL
    low = levels.index(preferred) if preferred else top
    if low < top:
        raise LevelError(preferred, "preferred")
    return list(range(low, top - 1, -1)), low if preferred else None


def lowest_common(tree: TopologyTree, usable: Mask, deepest: int) -> int:
    """The narrowest domain that holds all usable nodes of the topology, down to a level.

    Args:
        tree: the topology.
        usable: bool [N].
        deepest: no narrower level is looked at.
    """
    found = ROOT
    nodes = (usable & tree.member).nonzero()[0]
    if len(nodes) == 0:
        return ROOT
    for level in range(min(deepest, len(tree.levels) - 1) + 1):
        domains = tree.domain[level, nodes]
        first = int(domains[0])
        if (domains != first).any():
            break
        found = first
    return found


def ratios(need: Need, room: Room) -> Ratios:
    """float64 [D]: the largest part of a domain's room that the pods would take; > 1 = too much."""
    found = np.full(room.free.shape[1], NO_ROOM if need.absent else 0.0, np.float64)
    for row, total in enumerate(need.total.tolist()):
        if total <= 0 or row == PODS_ROW:
            continue
        free = room.free[row]
        part = np.full(len(found), NO_ROOM, np.float64)
        np.divide(total, free, out=part, where=(free > 0) & room.known)
        np.maximum(found, part, out=found)
    return found


def fitting(need: Need, room: Room, ratio: Ratios) -> Mask:
    """Bool [D]: domains that have room for all pods, as far as sums can tell."""
    counted = room.pods != NOT_COUNTED
    return np.where(counted, room.pods >= need.n_tasks, ratio <= 1.0)


def ranked(tree: TopologyTree, start: int, ratio: Ratios, deepest: int) -> list[Rows]:
    """Domains below `start`, a list per level from its own on, the fullest first.

    A domain stands where its parent stands; among those of one parent the higher ratio comes
    first, then the id.

    Args:
        tree: the topology.
        start: domain to begin with.
        ratio: float64 [D].
        deepest: last level to rank.
    """
    rank = np.zeros(len(tree), np.int64)
    inside = tree.below(start)
    found: list[Rows] = [np.array([start], np.intp)]
    for level in range(int(tree.level[start]) + 1, deepest + 1):
        domains = (inside & (tree.level == level)).nonzero()[0]
        order = np.lexsort((domains, -ratio[domains], rank[tree.parent[domains]]))
        domains = domains[order]
        rank[domains] = np.arange(len(domains))
        found.append(domains)
    return found


def preferred_scores(tree: TopologyTree, domains: Rows, *, coarse: bool) -> Ratios:
    """float64 [N]: the nodes of the last domain score TOP_SCORE, those of the first least.

    Scores are whole points as long as those are enough to tell the domains apart.

    Args:
        tree: the topology.
        domains: of the preferred level, the fullest first.
        coarse: whole points even then, so that several of many domains are alike.
    """
    points = np.zeros(len(tree) + 1, np.float64)
    n_domains = len(domains)
    for i, domain in enumerate(domains.tolist(), 1):
        score = i / n_domains * TOP_SCORE
        points[domain] = float(int(score)) if coarse or n_domains <= TOP_SCORE else score
    if n_domains == 0:
        return np.zeros(len(tree.member), np.float64)
    level = int(tree.level[domains[0]])
    if level == ROOT_LEVEL:
        return np.where(tree.member, points[ROOT], 0.0)
    scores: Ratios = points[tree.domain[level]]  # NO_DOMAIN is the last entry on purpose
    return scores
