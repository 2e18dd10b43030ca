"""How many pods that somebody asks about are on each node, kept up by what changes.

Only pods are counted that somebody has asked about. A pod is found through one of its labels, so
the work per changed node does not grow with the number of questions.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final, Generic, TypeVar

from kai_es.kube.objects import Pod
from kai_es.scheduler.columns.pod_terms import LabelsOfSpace, Matcher
from kai_es.snapshot.snapshot import PodRow, Snapshot
from kai_es.snapshot.status import ACTIVE_USED, TaskStatus

Count = tuple[int, int]
"""Now, and when all that leaves has left."""

QUESTIONS_MAX: Final = 8192
"""Questions that are kept; with more, those of pods long gone are the most: all are forgotten."""

StatusOf = Callable[[PodRow], TaskStatus]
_Place = tuple[str, str, str]
"""Namespace, label key, label value; "" = any."""


ItemT = TypeVar("ItemT")


class Lookup(Generic[ItemT]):
    """Things that concern certain pods, found from a pod without asking every one."""

    def __init__(self) -> None:
        self._by_place: dict[_Place, list[ItemT]] = {}

    def add(self, matcher: Matcher, item: ItemT) -> None:
        """Enter a thing that concerns the pods of `matcher`."""
        self._by_place.setdefault(_place(matcher), []).append(item)

    def near(self, pod: Pod) -> Iterator[ItemT]:
        """Things that may concern a pod, each as often as it was entered."""
        by_place = self._by_place
        for space in (pod.namespace, ""):
            yield from by_place.get((space, "", ""), ())
            for key, value in pod.labels.items():
                yield from by_place.get((space, key, value), ())


def _place(matcher: Matcher) -> _Place:
    """Where the pods of a question are looked for."""
    for pods in matcher:
        label = pods.selector.label or ("", "")
        one_space = pods.selected is None and len(pods.spaces) == 1
        if one_space or label != ("", ""):
            return (pods.spaces[0] if one_space else "", *label)
    return "", "", ""


class PodMatches:
    """Counts of pods in use by node name."""

    def __init__(self, rows: Snapshot, status_of: StatusOf, labels_of: LabelsOfSpace) -> None:
        self._rows = rows
        self._status_of = status_of
        self._labels_of = labels_of
        self._counts: dict[Matcher, dict[str, Count]] = {}
        self._lookup: Lookup[Matcher] = Lookup()
        self._on_node: dict[str, list[Matcher]] = {}

    def __len__(self) -> int:
        return len(self._counts)

    def of(self, matcher: Matcher) -> Mapping[str, Count]:
        """Pods that are meant, by name of their node; nodes without one are left out."""
        found = self._counts.get(matcher)
        if found is None:
            found = self._counts[matcher] = {}
            self._lookup.add(matcher, matcher)
            for name, pods in self._rows.pods_of_node.items():
                for row in pods.values():
                    self._count(name, row, (matcher,))
        return found

    def refresh(self, nodes: Iterable[str]) -> None:
        """The pods of these nodes changed."""
        if not self._counts:
            return
        for name in nodes:
            for matcher in self._on_node.pop(name, ()):
                self._counts[matcher].pop(name, None)
            for row in self._rows.pods_of_node.get(name, {}).values():
                self._count(name, row, self._lookup.near(row.pod))

    def _count(self, name: str, row: PodRow, matchers: Iterable[Matcher]) -> None:
        for matcher in matchers:
            if not self.meant(matcher, row.pod):
                continue
            status = self._status_of(row)
            if status not in ACTIVE_USED:
                return
            counts = self._counts[matcher]
            if name not in counts:
                self._on_node.setdefault(name, []).append(matcher)
            now, later = counts.get(name, (0, 0))
            counts[name] = (now + 1, later + (status is not TaskStatus.RELEASING))

    def meant(self, matcher: Matcher, pod: Pod) -> bool:
        """Whether a pod is meant."""
        for pods in matcher:  # noqa: SIM110 - half the time of all()
            if not pods.match(pod.namespace, pod.labels, self._labels_of):
                return False
        return True
