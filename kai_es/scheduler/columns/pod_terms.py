"""What pods demand of the pods near them, as values that can be compared and kept as keys.

Reference: Kubernetes' kube-scheduler/framework/types.go, plugins/interpodaffinity (plugins §3.4,
§4.6).
"""

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, Final, NamedTuple

from kai_es.kube.objects import PodSpec
from kai_es.scheduler.columns.selectors import Selector, selector_of

_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED: Final = "preferredDuringSchedulingIgnoredDuringExecution"

LabelsOfSpace = Callable[[str], Mapping[str, str]]


class Pods(NamedTuple):
    """Which pods are meant.

    spaces:   namespaces.
    selected: of further namespaces, None = of no others.
    selector: of the pods.
    """

    spaces: tuple[str, ...]
    selected: Selector | None
    selector: Selector

    def match(self, space: str, labels: Mapping[str, str], labels_of: LabelsOfSpace) -> bool:
        """Whether a pod of a namespace with these labels is meant."""
        if space not in self.spaces and not (
            self.selected is not None and self.selected.matches(labels_of(space))
        ):
            return False
        return self.selector.matches(labels)


Matcher = tuple[Pods, ...]
"""Pods that are meant by all of several."""


class PodTerm(NamedTuple):
    """Pods that are to be, or not to be, in the same domain of a node label."""

    key: str
    pods: Pods


class PodTerms(NamedTuple):
    """All that one pod demands.

    affinity: all must hold, by pods that all of them mean.
    anti:     none may hold.
    preferred: with weights, negative = rather not.
    """

    affinity: tuple[PodTerm, ...] = ()
    anti: tuple[PodTerm, ...] = ()
    preferred: tuple[tuple[PodTerm, int], ...] = ()

    @property
    def together(self) -> Matcher:
        """The pods that satisfy the affinity."""
        return tuple(term.pods for term in self.affinity)


NO_TERMS: Final = PodTerms()


def terms_of(spec: PodSpec, space: str) -> PodTerms:
    """What a pod with this spec in a namespace demands."""
    affinity = spec.affinity or {}
    near, far = affinity.get("podAffinity") or {}, affinity.get("podAntiAffinity") or {}
    if not near and not far:
        return NO_TERMS
    return PodTerms(
        affinity=tuple(_term(raw, space) for raw in near.get(_REQUIRED) or ()),
        anti=tuple(_term(raw, space) for raw in far.get(_REQUIRED) or ()),
        preferred=(
            *((_term(one["podAffinityTerm"], space), one["weight"]) for one in _wishes(near)),
            *((_term(one["podAffinityTerm"], space), -one["weight"]) for one in _wishes(far)),
        ),
    )


def _wishes(affinity: Mapping[str, Any]) -> Any:
    return affinity.get(_PREFERRED) or ()


def _term(raw: Mapping[str, Any], space: str) -> PodTerm:
    """A term; without namespaces it means those of the pod's own.

    `matchLabelKeys` are in the selector already: the API server merges them in.
    """
    names = tuple(sorted(raw.get("namespaces") or ()))
    selected = raw.get("namespaceSelector")
    if not names and selected is None:
        names = (space,)
    return PodTerm(
        raw["topologyKey"],
        Pods(
            names,
            None if selected is None else _interned(selector_of(selected)),
            _interned(selector_of(raw.get("labelSelector"))),
        ),
    )


@lru_cache(maxsize=4096)
def _interned(selector: Selector) -> Selector:
    """One object per equal selector: comparing keys then ends at identity."""
    return selector
