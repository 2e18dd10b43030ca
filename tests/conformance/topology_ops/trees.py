"""Building, walking, sorting and scoring trees of domains."""

from typing import Any

import numpy as np

from kai_es.kube.objects import Node
from kai_es.scheduler.columns.labels import LabelColumns
from kai_es.scheduler.columns.resources import GPU_ROW, ResourceIndex
from kai_es.scheduler.columns.topology import ROOT, ROOT_ID, ROOT_LEVEL, build_tree
from kai_es.scheduler.flags import PREFERRED_SCORES_COARSE, Flags
from kai_es.scheduler.plugins.topology import POINT
from kai_es.scheduler.solve.domain_choice import deepest_level
from kai_es.scheduler.solve.domains import (
    NOT_COUNTED,
    Need,
    Room,
    lowest_common,
    preferred_scores,
    ranked,
    ratios,
)
from tests.conformance import build
from tests.conformance.rows import amounts_of
from tests.conformance.topology_ops import Input, Run
from tests.conformance.topology_ops.given import depth_of, nested


def _labels(nodes: Any) -> LabelColumns:
    return LabelColumns([Node(uid=n["name"], name=n["name"], labels=n["labels"]) for n in nodes])


def build_trees(case: Input, flags: Flags) -> dict[str, Any]:
    names = [node["name"] for node in case["nodes"]]
    domains: dict[str, Any] = {}
    for topology in case["topologies"]:
        tree = build_tree(topology["name"], topology["levels"], _labels(case["nodes"]))
        levels: dict[str, Any] = {}
        for d, id_ in enumerate(tree.ids):
            label = ROOT_ID if tree.level[d] == ROOT_LEVEL else tree.levels[tree.level[d]]
            children = sorted(tree.ids[c] for c in range(len(tree)) if tree.parent[c] == d)
            nodes = sorted(names[n] for n in np.flatnonzero(tree.nodes(d)))
            levels.setdefault(label, {})[id_] = {"children": children, "nodes": nodes}
        domains[topology["name"]] = levels
    return {"domains": domains}


def node_in_topology(case: Input, flags: Flags) -> dict[str, Any]:
    tree = build_tree("t", case["levels"], _labels([{"name": "n", "labels": case["labels"]}]))
    return {"member": bool(tree.member[0])}


def lowest_common_domain(case: Input, flags: Flags) -> dict[str, Any]:
    nodes, raw = case["nodes"], case["topologyConstraint"]
    tree = build_tree("t", case["levels"], _labels(nodes))
    constraint = build.constraint_of({**raw, "topology": "t"})
    assert constraint is not None
    usable = np.ones(len(nodes), np.bool_)
    found = lowest_common(tree, usable, deepest_level(tree.levels, constraint, flags))
    level = int(tree.level[found])
    return {
        "domainId": tree.ids[found],
        "level": ROOT_ID if level == ROOT_LEVEL else tree.levels[level],
        "validNodes": sorted(
            node["name"] for node, is_in in zip(nodes, tree.member, strict=True) if is_in
        ),
    }


def reverse_level_order(case: Input, flags: Flags) -> dict[str, Any]:
    tree = nested(case["root"]).tree
    rows = ranked(tree, ROOT, np.zeros(len(tree)), len(tree.levels) - 1)
    return {"order": [tree.ids[d] for level in reversed(rows) for d in level]}


def level_domains(case: Input, flags: Flags) -> dict[str, Any]:
    tree = nested(case["root"]).tree
    depth = depth_of(case["root"], case["level"])
    rows = ranked(tree, ROOT, np.zeros(len(tree)), depth)
    return {"domains": [tree.ids[d] for d in rows[depth - ROOT_LEVEL]]}


def node_scores(case: Input, flags: Flags) -> dict[str, Any]:
    given = nested(case["root"])
    ids = [d["id"] for d in _at_level(case["root"], case["preferredLevel"])]
    domains = np.array([given.tree.ids.index(id_) for id_ in ids], np.intp)
    coarse = PREFERRED_SCORES_COARSE in flags
    scores = preferred_scores(given.tree, domains, coarse=coarse) * POINT
    return {"scores": {name: float(scores[n]) for name, n in given.rows.items()}}


def _at_level(domain: Input, level: str) -> list[Any]:
    if domain["level"] == level:
        return [domain]
    return [found for child in domain.get("children") or () for found in _at_level(child, level)]


def sort_tree(case: Input, flags: Flags) -> dict[str, Any]:
    root = case["root"]
    if root is None:
        return {"order": None}
    tree, domains, _ = nested(root)
    index = ResourceIndex()
    total = index.vector(amounts_of(case["tasksResources"]))
    free = np.array([index.vector(amounts_of(d.get("idleOrReleasing"))) for d in domains]).T
    need = Need(1, total, total)
    room = Room(free, np.full(len(tree), NOT_COUNTED), np.ones(len(tree), np.bool_))
    assert free.shape[0] > GPU_ROW
    deepest = depth_of(root, case["maxDepthLevel"]) if case["maxDepthLevel"] else ROOT_LEVEL
    place = {
        int(d): at
        for level in ranked(tree, ROOT, ratios(need, room), deepest)
        for at, d in enumerate(level)
    }

    def shown(domain: Any) -> dict[str, Any]:
        children = list(domain.get("children") or ())
        numbers = {child["id"]: tree.ids.index(child["id"]) for child in children}
        if all(number in place for number in numbers.values()):
            children.sort(key=lambda child: place[numbers[child["id"]]])
        return {"id": domain["id"], "children": [shown(child) for child in children]}

    return {"order": shown(root)}


OPS: dict[str, Run] = {
    "buildTree": build_trees,
    "nodeInTopology": node_in_topology,
    "lowestCommonDomain": lowest_common_domain,
    "reverseLevelOrder": reverse_level_order,
    "levelDomains": level_domains,
    "preferredScores": node_scores,
    "sortTree": sort_tree,
}
