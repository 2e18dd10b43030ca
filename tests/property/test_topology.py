"""Domains in arrays = domains as sets of nodes; the choice of domains = the rules of the page."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from kai_es.kube.objects import Node, TopologyConstraint
from kai_es.scheduler.columns.labels import LabelColumns
from kai_es.scheduler.columns.topology import ROOT, ROOT_LEVEL, build_tree
from kai_es.scheduler.flags import NONE
from kai_es.scheduler.solve.domain_choice import Choice
from kai_es.scheduler.solve.domains import NOT_COUNTED, Need, Room

LEVELS = ("a", "b", "c")
VALUES = st.sampled_from(("", "x", "y", "z"))
NODES = st.lists(st.dictionaries(st.sampled_from(LEVELS), VALUES), max_size=12)


def a_tree(nodes, levels=LEVELS):
    objects = [Node(uid=str(n), name=str(n), labels=labels) for n, labels in enumerate(nodes)]
    return build_tree("t", levels, LabelColumns(objects))


def paths(nodes, levels=LEVELS):
    """Node rows by path of label values, () = root."""
    found = {(): set()}
    for n, labels in enumerate(nodes):
        if all(level in labels for level in levels):
            path = tuple(labels[level] for level in levels)
            for depth in range(len(levels) + 1):
                found.setdefault(path[:depth], set()).add(n)
    return found


@given(NODES, st.integers(1, 3))
def test_a_tree_holds_the_nodes_of_every_path(nodes, n_levels):
    levels = LEVELS[:n_levels]
    tree, domains = a_tree(nodes, levels), paths(nodes, levels)
    by_number = sorted(domains)
    assert [tuple(id_.split(".")) for id_ in tree.ids[1:]] == by_number[1:]
    for d, path in enumerate(by_number):
        assert set(np.flatnonzero(tree.nodes(d))) == domains[path]
        assert tree.level[d] == len(path) + ROOT_LEVEL
        assert path == () or tree.parent[d] == by_number.index(path[:-1])
        inside = {e for e, other in enumerate(by_number) if other[: len(path)] == path}
        assert set(np.flatnonzero(tree.below(d))) == inside
        for n in domains[path] if path else ():
            assert tree.domain[len(path) - 1, n] == d
    amounts = np.arange(2 * len(nodes), dtype=np.int64).reshape(2, -1)
    sums = [[sum(row[n] for n in domains[path]) for path in by_number] for row in amounts.tolist()]
    assert tree.sums(amounts).tolist() == sums


def page_choice(nodes, levels, required, preferred, gpus, need):
    """Plugins §7, word for word, for pods that differ too much to be counted."""
    domains = paths(nodes, levels)
    depths = {level: depth for depth, level in enumerate(levels, 1)}
    low = depths[preferred or required]
    top = depths[required] if required else 0
    start = ()
    everybody = domains[()]
    for path in sorted(domains, key=len):
        if everybody and len(path) <= low and domains[path] == everybody:
            start = path

    def ratio(path):
        free = sum(gpus[n] for n in domains[path])
        return 0.0 if need <= 0 else need / free if free > 0 else 1000.0

    if ratio(start) > 1:
        return None
    order, line = [], [start]
    while line:
        order.append(line)
        children = [
            sorted(
                (p for p in domains if len(p) == len(path) + 1 and p[: len(path)] == path),
                key=lambda p: (-ratio(p), p),
            )
            for path in line
        ]
        line = [p for group in children for p in group]
    found = [p for line in reversed(order) for p in line if top <= len(p) <= low]
    return [p for p in found if ratio(p) <= 1]


@settings(max_examples=200)
@given(NODES, st.sampled_from(("", *LEVELS)), st.sampled_from(("", *LEVELS)), st.data())
def test_the_choice_is_that_of_the_page(nodes, required, preferred, data):
    if not required and not preferred:
        return
    if required and preferred and LEVELS.index(preferred) < LEVELS.index(required):
        return
    tree = a_tree(nodes)
    gpus = data.draw(st.lists(st.integers(0, 4), min_size=len(nodes), max_size=len(nodes)))
    need = data.draw(st.integers(0, 12))
    constraint = TopologyConstraint(topology="t", required=required, preferred=preferred)
    choice = Choice(tree, constraint, np.ones(len(nodes), np.bool_), NONE)
    total = np.array([0, 0, need, 0], np.int64)
    free = np.zeros((4, len(nodes)), np.int64)
    free[2] = gpus
    known = tree.below(choice.start)
    room = Room(tree.sums(free), np.full(len(tree), NOT_COUNTED), known)
    found, small = choice.choose(Need(1, total, total), room, ())
    want = page_choice(nodes, LEVELS, required, preferred, gpus, need)
    if want is None:
        assert (found, small) == ([], None)
        return
    by_number = sorted(paths(nodes))
    assert [by_number[d] for d in found] == want
    assert by_number[ROOT] == ()
