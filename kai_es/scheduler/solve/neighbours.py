"""Which pods are near which: pod affinity and anti-affinity, over all nodes at once.

Pods that leave are still there for a pod that starts now, and gone for one that waits.

Reference: Kubernetes' kube-scheduler/framework/plugins/interpodaffinity, which the reference calls
(plugins §3.4, §4.6).
"""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kai_es.kube.objects import Pod
from kai_es.scheduler.columns.labels import LabelColumns
from kai_es.scheduler.columns.matches import Lookup
from kai_es.scheduler.columns.pod_terms import Matcher, PodTerm, PodTerms, terms_of
from kai_es.scheduler.framework.session import Session
from kai_es.scheduler.framework.tally import Count, Tally
from kai_es.snapshot.shapes import Shape
from kai_es.snapshot.status import ACTIVE_USED, TaskStatus

Mask = NDArray[np.bool_]
Numbers = Mapping[int, int]

_RELEASING = TaskStatus.RELEASING
_Base = dict[PodTerm, dict[int, Count]]


class Refusals(NamedTuple):
    """Nodes that a rule leaves out, each for its first reason. Bool [N] each.

    unmet:    no pod that the task must be near.
    apart:    a pod that it must be apart from.
    unwanted: a pod that must be apart from it.
    """

    unmet: Mask
    apart: Mask
    unwanted: Mask

    @property
    def any(self) -> Mask:
        """Bool [N]: left out by one of them."""
        return self.unmet | self.apart | self.unwanted


class Neighbours:
    """The pods near each other in one session."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._labels: LabelColumns = session.columns.labels()
        self._matches = session.columns.matches()
        self._terms: dict[tuple[Shape, str], PodTerms] = {}
        self._near: dict[Matcher, Tally] = {}
        self._owners: dict[PodTerm, Tally] = {}
        self._wishers: dict[PodTerm, Tally] = {}
        self._owned: Lookup[PodTerm] = Lookup()
        self._wished: Lookup[PodTerm] = Lookup()
        self._read_owners()

    def _read_owners(self) -> None:
        """Rules of the pods that are on nodes."""
        columns = self._session.columns
        owners: _Base = {}
        wishers: _Base = {}
        for n, pods in enumerate(columns.nodes.special):
            for row in pods:
                status = columns.status_of(row)
                if not row.shape.social or status not in ACTIVE_USED:
                    continue
                later = status is not _RELEASING
                terms = self.terms(row.shape, row.pod.namespace)
                for term in terms.anti:
                    _add(owners, term, n, 1, later=later)
                for term, weight in terms.preferred:
                    _add(wishers, term, n, weight, later=later)
        for term, base in owners.items():
            self._own(term, base)
        for term, base in wishers.items():
            self._wish(term, base)

    def _own(self, term: PodTerm, base: Mapping[int, Count]) -> None:
        self._owned.add((term.pods,), term)
        self._owners[term] = Tally(
            self._session, base, lambda task: self._of(task).anti.count(term)
        )

    def _wish(self, term: PodTerm, base: Mapping[int, Count]) -> None:
        def weigh(task: int) -> int:
            return sum(weight for one, weight in self._of(task).preferred if one == term)

        self._wished.add((term.pods,), term)
        self._wishers[term] = Tally(self._session, base, weigh)

    def terms(self, shape: Shape, space: str) -> PodTerms:
        """What pods of a shape in a namespace demand."""
        key = (shape, space)
        found = self._terms.get(key)
        if found is None:
            found = self._terms[key] = terms_of(shape.spec, space)
        return found

    def _of(self, task: int) -> PodTerms:
        row = self._session.row(task)
        return self.terms(row.shape, row.pod.namespace)

    def _enter(self, terms: PodTerms) -> None:
        """Rules of a task that may be placed in this session."""
        for term in terms.anti:
            if term not in self._owners:
                self._own(term, {})
        for term, _ in terms.preferred:
            if term not in self._wishers:
                self._wish(term, {})

    def _near_by(self, matcher: Matcher) -> Tally:
        found = self._near.get(matcher)
        if found is None:
            session, matches = self._session, self._matches
            row = session.nodes.columns.row
            base = {row[name]: c for name, c in matches.of(matcher).items() if name in row}

            def weigh(task: int) -> int:
                return int(matches.meant(matcher, session.row(task).pod))

            found = self._near[matcher] = Tally(session, base, weigh)
        return found.update()

    # -- required

    def is_free(self, task: int) -> bool:
        """Whether nothing that is near or not bears on where a task may go."""
        row = self._session.row(task)
        terms = self.terms(row.shape, row.pod.namespace)
        return not terms.affinity and not terms.anti and not self._unwanting(row.pod)

    def _unwanting(self, pod: Pod) -> list[PodTerm]:
        """Rules of others that keep them apart from a pod."""
        meant = self._matches.meant
        return [term for term in self._owned.near(pod) if meant((term.pods,), pod)]

    def refusals(self, task: int, *, leaving: bool) -> Refusals:
        """Nodes that a task may not be on.

        Args:
            task: its row.
            leaving: pods that leave count as being there.
        """
        pod = self._session.row(task).pod
        terms = self._of(task)
        if terms.anti or terms.preferred:
            self._enter(terms)
        nothing = np.zeros(len(self._labels), np.bool_)
        unmet = self._unmet(terms, pod, leaving=leaving) if terms.affinity else nothing
        apart, unwanted = nothing, nothing
        for term in terms.anti:
            tally = self._near_by((term.pods,))
            apart = apart | self._domains(term.key, tally.now if leaving else tally.later)
        for term in self._unwanting(pod):
            tally = self._owners[term].update()
            unwanted = unwanted | self._domains(term.key, tally.now if leaving else tally.later)
        apart = apart & ~unmet
        return Refusals(unmet, apart, unwanted & ~unmet & ~apart)

    def _unmet(self, terms: PodTerms, pod: Pod, *, leaving: bool) -> Mask:
        tally = self._near_by(terms.together)
        near = tally.now if leaving else tally.later
        placed = np.ones(len(self._labels), np.bool_)
        met = np.ones(len(self._labels), np.bool_)
        any_near = False
        for term in terms.affinity:
            codes, _ = self._labels.codes(term.key)
            placed &= codes >= 0
            domains = self._domains(term.key, near)
            any_near = any_near or bool(domains.any())
            met &= domains
        if not any_near and self._matches.meant(terms.together, pod):
            return ~placed  # the first of a series that wants to be together
        return ~(met & placed)

    def _domains(self, key: str, nodes: Numbers) -> Mask:
        """Bool [N]: nodes that share a label's value with one of `nodes`."""
        codes, values = self._labels.codes(key)
        hit = np.zeros(len(values) + 1, np.bool_)
        rows = np.fromiter(nodes, np.intp, len(nodes))
        hit[codes[rows]] = True
        hit[len(values)] = False  # ABSENT is the last entry
        found: Mask = hit[codes]
        return found

    # -- preferred

    def preference(self, task: int) -> NDArray[np.int64] | None:
        """int64 [N]: sum of the weights that a node gains by what is near, None = no rule."""
        pod = self._session.row(task).pod
        terms = self._of(task)
        if terms.preferred:
            self._enter(terms)
        total: NDArray[np.int64] | None = None
        for term, weight in terms.preferred:
            total = self._weigh(total, term.key, self._near_by((term.pods,)).now, weight)
        meant = self._matches.meant
        for term in self._wished.near(pod):
            if meant((term.pods,), pod):
                total = self._weigh(total, term.key, self._wishers[term].update().now, 1)
        return total

    def _weigh(
        self, total: NDArray[np.int64] | None, key: str, nodes: Numbers, weight: int
    ) -> NDArray[np.int64] | None:
        if not nodes:
            return total
        codes, values = self._labels.codes(key)
        rows = np.fromiter(nodes, np.intp, len(nodes))
        amounts = np.fromiter(nodes.values(), np.int64, len(nodes)) * weight
        by_value = np.zeros(len(values) + 1, np.int64)
        np.add.at(by_value, codes[rows], amounts)
        by_value[len(values)] = 0  # ABSENT is the last entry
        found: NDArray[np.int64] = by_value[codes]
        return found if total is None else total + found


def _add(base: _Base, term: PodTerm, n: int, weight: int, *, later: bool) -> None:
    counts = base.setdefault(term, {})
    now, then = counts.get(n, (0, 0))
    counts[n] = (now + weight, then + weight * later)


def neighbours_of(session: Session) -> Neighbours | None:
    """The neighbours of a session, None = no pod has a rule about others."""
    if not session.columns.rows.has_pod_affinity:
        return None
    if not isinstance(session.neighbours, Neighbours):
        session.neighbours = Neighbours(session)
    return session.neighbours
