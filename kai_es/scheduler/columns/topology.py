"""A topology over the nodes of a shard: a tree of domains, in arrays.

Domains are numbered in the order of a walk from the root, children by id, so that the nodes below
a domain are one piece of `order` and sums over domains are differences of running sums.

Reference: pkg/scheduler/plugins/topology/topology_structs.go (plugins §6.2).
"""

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from kai_es.scheduler.columns.labels import LabelColumns

ROOT: Final = 0
ROOT_ID: Final = "root"
NO_DOMAIN: Final = -1
ROOT_LEVEL: Final = -1

Amounts = NDArray[np.int64]
Rows = NDArray[np.int32]
Mask = NDArray[np.bool_]


class TopologyTree:
    """D domains, L levels, N nodes, M of them with every level's label.

    name:   of the topology.
    levels: node labels, widest first.
    ids:    length D, label values from the top level down, joined by dots.
    level:  int32 [D], position in `levels`, ROOT_LEVEL of the root.
    parent: int32 [D], NO_DOMAIN of the root.
    start, end: int32 [D], nodes of a domain are order[start:end].
    order:  int32 [M], node rows.
    domain: int32 [L, N], each node's domain by level, NO_DOMAIN of a node that lacks a label.
    member: bool [N].
    """

    __slots__ = (
        "domain",
        "end",
        "ids",
        "level",
        "levels",
        "member",
        "name",
        "order",
        "parent",
        "start",
    )

    def __init__(
        self,
        name: str,
        levels: Sequence[str],
        *,
        ids: Sequence[str],
        level: Sequence[int],
        parent: Sequence[int],
        bounds: Sequence[tuple[int, int]],
        order: Rows,
        n_nodes: int,
    ) -> None:
        self.name = name
        self.levels = tuple(levels)
        self.ids = list(ids)
        self.level = np.array(level, np.int32)
        self.parent = np.array(parent, np.int32)
        self.start = np.array([start for start, _ in bounds], np.int32)
        self.end = np.array([end for _, end in bounds], np.int32)
        self.order = order
        self.domain = np.full((len(self.levels), n_nodes), NO_DOMAIN, np.int32)
        for d, (start, end) in enumerate(bounds):
            if level[d] != ROOT_LEVEL:
                self.domain[level[d], order[start:end]] = d
        self.member = np.zeros(n_nodes, np.bool_)
        self.member[order] = True

    def __len__(self) -> int:
        return len(self.ids)

    def level_of(self, label: str) -> int | None:
        """Position of a level, None = the topology has no such level."""
        return self.levels.index(label) if label in self.levels else None

    def sums(self, amounts: Amounts) -> Amounts:
        """int64 [..., D], sums over the nodes of each domain of int64 [..., N]."""
        here = amounts[..., self.order]
        running = np.zeros((*here.shape[:-1], here.shape[-1] + 1), np.int64)
        np.cumsum(here, axis=-1, out=running[..., 1:])
        found: Amounts = running[..., self.end] - running[..., self.start]
        return found

    def below(self, domain: int) -> Mask:
        """Bool [D]: a domain and all that are in it."""
        found: Mask = self.level > self.level[domain]
        found &= (self.start >= self.start[domain]) & (self.end <= self.end[domain])
        found[domain] = True
        return found

    def nodes(self, domain: int) -> Mask:
        """Bool [N]: the nodes of a domain."""
        found = np.zeros(len(self.member), np.bool_)
        found[self.order[self.start[domain] : self.end[domain]]] = True
        return found


def build_tree(name: str, levels: Sequence[str], labels: LabelColumns) -> TopologyTree:
    """The tree of the nodes that carry the labels of all levels; an empty value is one too."""
    n_nodes = len(labels)
    member = np.ones(n_nodes, np.bool_)
    coded: list[Rows] = []
    values: list[list[str]] = []
    for label in levels:
        codes, names = labels.codes(label)
        by_name = sorted(range(len(names)), key=names.__getitem__)
        rank = np.empty(len(names) + 1, np.int32)
        rank[by_name] = np.arange(len(names), dtype=np.int32)
        rank[len(names)] = NO_DOMAIN
        coded.append(rank[codes])  # ABSENT is the last entry on purpose
        values.append([names[code] for code in by_name])
        member &= codes >= 0
    order = np.flatnonzero(member).astype(np.int32)
    ranks = np.array([ranks[order] for ranks in coded], np.int32).reshape(len(levels), -1)
    place = np.lexsort([order, *reversed(ranks)])
    return _numbered(name, levels, order[place], ranks[:, place], values, n_nodes)


def _numbered(
    name: str,
    levels: Sequence[str],
    order: Rows,
    ranks: Rows,
    values: Sequence[Sequence[str]],
    n_nodes: int,
) -> TopologyTree:
    """The tree of nodes in the order of a walk.

    Args:
        name: of the topology.
        levels: node labels, widest first.
        order: int32 [M], node rows.
        ranks: int32 [L, M], their values by level, as positions in `values`.
        values: label values by level.
        n_nodes: of the shard.
    """
    n_levels, n_members = ranks.shape
    begins = np.ones((n_members, n_levels), np.bool_)  # a domain of a level begins at a node
    begins[1:] = np.logical_or.accumulate(ranks[:, 1:] != ranks[:, :-1], axis=0).T
    number = np.cumsum(begins.ravel()).reshape(n_members, n_levels)  # 1 and up; 0 is the root
    number = np.maximum.accumulate(np.where(begins, number, ROOT), axis=0)
    at, level = begins.nonzero()
    parents = np.where(level > 0, number[at, level - 1], ROOT)
    bounds: list[tuple[int, int]] = [(0, n_members)] * (len(at) + 1)
    ids = [ROOT_ID] * (len(at) + 1)
    for i in range(n_levels):
        starts = at[level == i].tolist()
        ends = [*starts[1:], n_members][: len(starts)]
        domains = number[starts, i].tolist()
        for d, start, end, value in zip(
            domains, starts, ends, ranks[i, starts].tolist(), strict=True
        ):
            bounds[d] = (start, end)
            above = ids[parents[d - 1]] + "." if i else ""
            ids[d] = above + values[i][value]
    return TopologyTree(
        name,
        levels,
        ids=ids,
        level=[ROOT_LEVEL, *level.tolist()],
        parent=[NO_DOMAIN, *parents.tolist()],
        bounds=bounds,
        order=order,
        n_nodes=n_nodes,
    )
