"""Pods near each other, in arrays and kept up by what changes = looking at every pod anew."""

import msgspec
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from kai_es.kube.objects import Namespace
from kai_es.scheduler.columns.pod_terms import terms_of
from kai_es.scheduler.columns.sharing import ABSENT, RELEASING
from kai_es.scheduler.framework.statement import Statement
from kai_es.scheduler.framework.statuses import IS_ACTIVE, PENDING
from kai_es.scheduler.solve.neighbours import Neighbours
from kai_es.scheduler.solve.port_rule import PortRule, clash
from kai_es.snapshot.status import TaskStatus
from tests.scheduler_world import World, a_spec

KEYS = ("zone", "host", "odd")
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"

SELECTORS = st.sampled_from(
    (
        {"matchLabels": {"app": "a"}},
        {"matchLabels": {"app": "b"}},
        {"matchExpressions": [{"key": "app", "operator": "In", "values": ["a", "b"]}]},
        {"matchExpressions": [{"key": "tier", "operator": "Exists"}]},
        {"matchExpressions": [{"key": "app", "operator": "NotIn", "values": ["a"]}]},
        {"matchExpressions": [{"key": "app", "operator": "Wrong"}]},
        {},
        None,
    )
)
SPACES = st.sampled_from(
    (
        {},
        {"namespaces": ["ns"]},
        {"namespaces": ["other", "third"]},
        {"namespaceSelector": {}},
        {"namespaceSelector": {"matchLabels": {"team": "x"}}},
        {"namespaces": ["ns"], "namespaceSelector": {"matchLabels": {"team": "x"}}},
    )
)
TERMS = st.builds(
    lambda key, selector, spaces: {"topologyKey": key, "labelSelector": selector, **spaces},
    st.sampled_from(KEYS),
    SELECTORS,
    SPACES,
)
WISHES = st.builds(lambda w, t: {"weight": w, "podAffinityTerm": t}, st.integers(1, 9), TERMS)
RULES = st.builds(
    lambda near, far, wish, dread: {
        "podAffinity": {REQUIRED: near, PREFERRED: wish},
        "podAntiAffinity": {REQUIRED: far, PREFERRED: dread},
    },
    *(st.lists(one, max_size=2) for one in (TERMS, TERMS, WISHES, WISHES)),
)
LABELS = st.dictionaries(st.sampled_from(("app", "tier")), st.sampled_from("abc"))
PORTS = st.lists(
    st.tuples(
        st.sampled_from(("TCP", "UDP")),
        st.sampled_from(("", "0.0.0.0", "10.0.0.1")),
        st.integers(1, 2),
    ),
    max_size=2,
).map(tuple)
PODS = st.lists(
    st.tuples(
        st.none() | st.integers(0, 1),  # node
        LABELS,
        st.none() | RULES,
        PORTS,
        st.booleans(),  # leaves
        st.sampled_from(("ns", "other")),
    ),
    min_size=3,
    max_size=7,
)
NODES = st.lists(
    st.fixed_dictionaries({}, optional={key: st.sampled_from("uv") for key in KEYS}),
    min_size=1,
    max_size=4,
)
STEPS = st.lists(
    st.tuples(st.sampled_from("peeper"), st.integers(0, 6), st.integers(0, 3)), max_size=8
)


def a_world(nodes, pods):
    world = World()
    world.queue("q")
    space = Namespace(uid="other", name="other", labels={"team": "x"})
    world.snapshot.set_object(space, rv=1)
    for n, labels in enumerate(nodes):
        world.node(f"n{n}", labels=labels)
    for number, (node, labels, rules, ports, leaves, space) in enumerate(pods):
        name = f"p{number}"
        at = f"n{node}" if node is not None and node < len(nodes) else ""
        spec = a_spec(0, affinity=rules, host_ports=ports)
        status = TaskStatus.RELEASING if at and leaves else None
        world.group(name, queue="q")
        world.pod(name, name, at, spec=spec, labels=labels, status=status)
        if space != "ns":  # a pod that no group of ours holds
            row = world.snapshot.pods[name]
            pod = msgspec.structs.replace(row.pod, namespace=space)
            world.snapshot.set_pod(pod, rv=2, task=row.state)
    return world


class Page:
    """The rules of Kubernetes, pod by pod."""

    def __init__(self, session, *, leaving):
        self.session = session
        self.nodes = [facts.node for facts in session.nodes.columns.facts]
        self.labels_of = session.columns.labels_of_space
        self.there = []  # (pod, node)
        for row in session.rows:
            if row is None:
                continue
            for n, node in enumerate(self.nodes):
                if session.columns.job_of[row.row] is not None:
                    entry = session.entry(row.row, n)
                    kind = ABSENT if entry is None else entry[0]
                elif row.state.node == node.name:
                    kind = RELEASING if row.state.status is TaskStatus.RELEASING else None
                else:
                    kind = ABSENT
                if kind != ABSENT and (leaving or kind != RELEASING):
                    self.there.append((row, node))

    def meant(self, term, pod):
        return term.pods.match(pod.namespace, pod.labels, self.labels_of)

    def terms(self, row):
        return terms_of(row.shape.spec, row.pod.namespace)

    def refused(self, row, node):
        terms, pod = self.terms(row), row.pod
        near = [
            (other, at)
            for other, at in self.there
            if all(self.meant(term, other.pod) for term in terms.affinity)
        ]
        if terms.affinity:
            if any(term.key not in node.labels for term in terms.affinity):
                return "unmet"
            exists = all(
                any(at.labels.get(term.key) == node.labels[term.key] for _, at in near)
                for term in terms.affinity
            )
            counted = any(term.key in at.labels for _, at in near for term in terms.affinity)
            first = not counted and all(self.meant(term, pod) for term in terms.affinity)
            if not exists and not first:
                return "unmet"
        for term in terms.anti:
            for other, at in self.there:
                if self.meant(term, other.pod) and self.same(term, node, at):
                    return "apart"
        for other, at in self.there:
            for term in self.terms(other).anti:
                if self.meant(term, pod) and self.same(term, node, at):
                    return "unwanted"
        return None

    @staticmethod
    def same(term, node, at):
        return term.key in node.labels and node.labels[term.key] == at.labels.get(term.key)

    def preference(self, row, node):
        total = 0
        for other, at in self.there:
            for term, weight in self.terms(row).preferred:
                total += weight * (self.meant(term, other.pod) and self.same(term, node, at))
            for term, weight in self.terms(other).preferred:
                total += weight * (self.meant(term, row.pod) and self.same(term, node, at))
        return total

    def ports_free(self, row, node):
        wanted = row.shape.spec.host_ports
        return not any(
            at is node and clash(wanted, other.shape.spec.host_ports) for other, at in self.there
        )


def compare(session, neighbours, ports):
    pages = {leaving: Page(session, leaving=leaving) for leaving in (True, False)}
    nodes = pages[True].nodes
    for row in session.rows:
        if row is None or session.columns.job_of[row.row] is None:
            continue
        if session.status[row.row] != PENDING:
            continue
        for leaving, page in pages.items():
            found = neighbours.refusals(row.row, leaving=leaving)
            for n, node in enumerate(nodes):
                got = next((name for name in found._fields if getattr(found, name)[n]), None)
                assert got == page.refused(row, node), (row.pod.name, node.name, leaving)
        free = neighbours.is_free(row.row)
        assert not free or not neighbours.refusals(row.row, leaving=True).any.any()
        liked = neighbours.preference(row.row)
        want = [pages[True].preference(row, node) for node in nodes]
        assert (np.zeros(len(nodes)) if liked is None else liked).tolist() == want
        mask = ports.mask(row.row)
        for n, node in enumerate(nodes):
            now = mask is None or bool(mask.now[n])
            later = mask is None or bool(mask.later[n])
            assert now == pages[True].ports_free(row, node)
            assert later == pages[False].ports_free(row, node)


@settings(max_examples=250)
@given(NODES, PODS, STEPS)
def test_neighbours_are_those_of_the_page(nodes, pods, steps):
    session = a_world(nodes, pods).session()
    neighbours, ports = Neighbours(session), PortRule(session)
    compare(session, neighbours, ports)
    statement = Statement(session)
    marks = [statement.checkpoint()]
    for kind, number, at in steps:
        row = session.columns.rows.pods[f"p{number % len(pods)}"]
        if kind == "r":
            statement.rollback(marks.pop() if len(marks) > 1 else marks[0])
        elif session.columns.job_of[row.row] is not None:
            marks.append(statement.checkpoint())
            if kind == "p" and session.status[row.row] == PENDING:
                statement.allocate(row.row, at % len(nodes))
            elif kind == "e" and session.status[row.row] in IS_ACTIVE:
                statement.evict(row.row)
        compare(session, neighbours, ports)


@settings(max_examples=60)
@given(NODES, PODS, st.lists(st.tuples(st.integers(0, 6), st.integers(0, 3)), max_size=4))
def test_counts_follow_the_rows(nodes, pods, moves):
    world = a_world(nodes, pods)
    compare_all(world)
    for number, n in moves:
        row = world.snapshot.pods.get(f"p{number}")
        if row is not None:
            at = f"n{n}" if n < len(nodes) else ""
            status = TaskStatus.RUNNING if at else TaskStatus.PENDING
            state = type(row.state)(status=status, node=at)
            world.snapshot.set_pod(row.pod, rv=3, task=state)
        compare_all(world)


def compare_all(world):
    session = world.session()
    compare(session, Neighbours(session), PortRule(session))
