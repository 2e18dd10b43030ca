"""Trees of domains as cases give them, as `TopologyTree`."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from kai_es.scheduler.columns.topology import NO_DOMAIN, ROOT, ROOT_LEVEL, TopologyTree

Domain = Mapping[str, Any]


class Given(NamedTuple):
    """A tree, with its domains in the order of their numbers.

    domains: as the case has them; the first is the root.
    rows:    node name → row.
    """

    tree: TopologyTree
    domains: list[Domain]
    rows: dict[str, int]


def nested(root: Domain, levels: Sequence[str] = (), name: str = "") -> Given:
    """A domain with its children; children are taken in order of their ids."""
    found: list[tuple[Domain, int, int]] = []

    def visit(domain: Domain, parent: int, depth: int) -> None:
        number = len(found)
        found.append((domain, parent, depth))
        for child in sorted(domain.get("children") or (), key=lambda child: child["id"]):
            visit(child, number, depth + 1)

    visit(root, NO_DOMAIN, ROOT_LEVEL)
    depth = max(depth for _, _, depth in found) + 1
    names = levels or tuple(f"level-{i}" for i in range(depth))
    return _given([d for d, _, _ in found], [p for _, p, _ in found], [i for *_, i in found], names)


def flat(domains: Mapping[str, Mapping[str, Domain]], levels: Sequence[str]) -> Given:
    """Domains by level; the root is added, what is in what is not told."""
    found: list[Domain] = [{"id": "root"}]
    level = [ROOT_LEVEL]
    for i, label in enumerate(levels):
        for key in sorted(domains.get(label) or {}):
            found.append(domains[label][key])
            level.append(i)
    parents = [NO_DOMAIN, *[ROOT] * (len(found) - 1)]
    return _given(found, parents, level, levels)


def _given(
    domains: list[Domain], parents: list[int], level: list[int], levels: Sequence[str]
) -> Given:
    rows = {name: n for n, name in enumerate(sorted({n for d in domains for n in _nodes(d)}))}
    order: list[int] = []
    bounds: list[tuple[int, int]] = [(0, 0)] * len(domains)
    has_child = set(parents)

    def lay_out(number: int) -> None:
        start = len(order)
        children = [child for child, parent in enumerate(parents) if parent == number]
        for child in children:
            lay_out(child)
        if number not in has_child:
            order.extend(rows[name] for name in _nodes(domains[number]))
        bounds[number] = (start, len(order))

    lay_out(ROOT)
    tree = TopologyTree(
        "test-topology",
        levels,
        ids=[domain["id"] for domain in domains],
        level=level,
        parent=parents,
        bounds=bounds,
        order=np.array(order, np.int32),
        n_nodes=len(rows),
    )
    return Given(tree, domains, rows)


def _nodes(domain: Domain) -> Iterator[str]:
    yield from domain.get("nodes") or ()


def depth_of(root: Domain, level: str) -> int:
    """Depth of a level's domains below a nested root, as `TopologyTree.level` counts."""
    if root.get("level") == level or not root.get("children"):
        return ROOT_LEVEL
    return 1 + max(depth_of(child, level) for child in root["children"])
