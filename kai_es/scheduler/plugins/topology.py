"""Pods of a (sub-)group go together into a domain of a topology.

A required level must hold all of them; a preferred one should, and inside a wider domain its
domains are filled one after another, the emptiest first.

Reference: pkg/scheduler/plugins/topology/*.go (plugins §6–8).
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from kai_es.events.decisions import Arg, Reason
from kai_es.kube.objects import TopologyConstraint
from kai_es.scheduler.columns.jobs import Job
from kai_es.scheduler.columns.nodes import NO_ROW
from kai_es.scheduler.columns.topology import TopologyTree
from kai_es.scheduler.flags import (
    DOMAINS_BY_ROOM_ALONE,
    LEVEL_ERRORS_HIDDEN,
    PINNED_BY_ASKING,
    PREFERRED_SCORES_COARSE,
)
from kai_es.scheduler.framework.extensions import Refused
from kai_es.scheduler.framework.fit import Fit, NodeSet
from kai_es.scheduler.framework.session import Session
from kai_es.scheduler.framework.statuses import IS_ACTIVE
from kai_es.scheduler.framework.work import Work
from kai_es.scheduler.jobs.tree import Member, PodSet, leaves_below
from kai_es.scheduler.solve.domain_choice import Asking, Choice
from kai_es.scheduler.solve.domain_room import need_of, room_of
from kai_es.scheduler.solve.domains import (
    LevelError,
    Need,
    fitting,
    preferred_scores,
    ratios,
)

POINT: Final = 100_000.0
"""One point of score: above shared devices and availability, as much as ten are one of affinity."""

Mask = NDArray[np.bool_]
Scores = NDArray[np.float64]


def open_topology(session: Session, arguments: Mapping[str, str]) -> None:
    """Register the choice of domains."""
    plugin = _Topology(session)
    session.ext.pre_job.append(plugin.begin)
    session.ext.subset_nodes.append(plugin.subsets)
    session.ext.scores.append(plugin.score)


class _Topology:
    """The plugin in one session.

    preferred: float64 [N] by name of a sub-group, what it prefers in this attempt.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self.preferred: dict[str, Scores] = {}
        self._names: dict[Job, list[tuple[str, ...]]] = {}

    def begin(self, work: Work) -> None:
        """A new attempt to place a job: what earlier ones preferred is of no account."""
        del work
        if self.preferred:
            self.preferred = {}

    # -- scores

    def score(self, _fit: Fit, _nodes: NodeSet, task: int) -> Scores | float:
        """What the nearest sub-group with a preferred level prefers."""
        if not self.preferred:
            return 0.0
        session = self._session
        for name in self._path(session.job(task))[session.columns.leaf_of[task]]:
            found = self.preferred.get(name)
            if found is not None:
                return found
        return 0.0

    def _path(self, job: Job) -> list[tuple[str, ...]]:
        """By leaf: names of the pod set and of all sets around it."""
        found = self._names.get(job)
        if found is None:
            found = self._names[job] = [()] * len(job.tree.leaves)
            _name_paths(job.tree.root, (), found)
        return found

    # -- sets of nodes

    def subsets(
        self,
        work: Work,
        member: Member,
        leaves: Sequence[PodSet],
        tasks: Sequence[int],
        nodes: NodeSet,
    ) -> Iterable[NodeSet] | Refused:
        """The nodes of each domain that may take the tasks, in the order to try them."""
        constraint = member.topology
        if constraint is None or not constraint.topology:
            return (nodes,)
        session = self._session
        tree = session.columns.topology(constraint.topology)
        if tree is None:
            name = constraint.topology
            return Refused((Reason(code="topology-missing", args={"topology": name}),))
        usable = tree.member if nodes.mask is None else tree.member & nodes.mask
        try:
            choice = Choice(tree, constraint, usable, session.flags)
        except LevelError as exc:
            return self._level_error(constraint, member, exc)
        need = need_of(session, tasks)
        room = room_of(session, tree, choice.start, need)
        if PINNED_BY_ASKING not in session.flags:
            leaves = tuple(leaves_below(member))
        domains, small = choice.choose(need, room, self._places(work, leaves))
        if (liked := choice.liked()) is not None and small is not None:
            coarse = PREFERRED_SCORES_COARSE in session.flags
            self.preferred[member.name] = preferred_scores(tree, liked, coarse=coarse) * POINT
        if len(domains) > 1 and DOMAINS_BY_ROOM_ALONE not in session.flags:
            domains = self._startable_first(tree, domains, choice.start, need)
        if domains:
            return _node_sets(tree, domains, usable, nodes)
        asking = Asking(f"{work.job.namespace}/{work.job.name}", member.name)
        index = session.columns.index
        names = [(row, index.names[row]) for row in index.order()]
        return Refused(choice.reasons(need, room, small, asking, names))

    def _startable_first(
        self, tree: TopologyTree, domains: Sequence[int], start: int, need: Need
    ) -> list[int]:
        """Of the domains of a level those first where all pods could start now."""
        state = self._session.nodes
        if np.array_equal(state.free, state.idle):
            return list(domains)
        now = room_of(self._session, tree, start, need, leaving=False)
        starts = fitting(need, now, ratios(need, now))
        return sorted(domains, key=lambda domain: (-int(tree.level[domain]), not starts[domain]))

    def _places(self, work: Work, leaves: Sequence[PodSet]) -> set[int]:
        """Nodes of the pods of a (sub-)group that are placed already."""
        session = self._session
        found = {
            session.node_of(task)
            for leaf in leaves
            for task in session.work_tasks(work, leaf.leaf)
            if session.status[task] in IS_ACTIVE
        }
        found.discard(NO_ROW)
        return found

    def _level_error(
        self, constraint: TopologyConstraint, member: Member, error: LevelError
    ) -> Refused:
        if LEVEL_ERRORS_HIDDEN in self._session.flags:
            return Refused(())
        args: dict[str, Arg] = {"topology": constraint.topology, "sub_group": member.name}
        if not error.kind:
            return Refused((Reason(code="topology-no-level", args=args),))
        args |= {"level": error.level, "kind": error.kind}
        return Refused((Reason(code="topology-level-unknown", args=args),))


def _name_paths(member: Member, above: tuple[str, ...], found: list[tuple[str, ...]]) -> None:
    path = (member.name, *above)
    if isinstance(member, PodSet):
        found[member.leaf] = path
        return
    for child in member.members:
        _name_paths(child, path, found)


def _node_sets(
    tree: TopologyTree, domains: Sequence[int], usable: Mask, nodes: NodeSet
) -> Iterator[NodeSet]:
    """The usable nodes of each domain; all of them are the set that was given."""
    n_given = nodes.count(len(usable))
    for domain in domains:
        mask = usable & tree.nodes(domain)
        yield nodes if int(mask.sum()) == n_given else NodeSet(mask)
