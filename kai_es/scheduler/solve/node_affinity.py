"""The nodes that a pod's selector and required node affinity allow.

Reference: Kubernetes' component-helpers/scheduling/corev1/nodeaffinity, which the reference calls
(plugins §3.1, scheduler-core §10.4).
"""

import operator
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from kai_es.kube.objects import PodSpec
from kai_es.scheduler.columns.labels import LabelColumns
from kai_es.scheduler.columns.selectors import TESTS

NAME_FIELD: Final = "metadata.name"


class RequiredNodes:
    """What a pod demands of its node.

    Args:
        selector: `spec.nodeSelector`.
        terms: node selector terms of which one must hold, None = no required affinity.
    """

    def __init__(
        self, selector: Mapping[str, str], terms: Sequence[Mapping[str, Any]] | None
    ) -> None:
        self._selector = sorted(selector.items())
        self._terms = terms

    def matches(self, name: str, labels: Mapping[str, str]) -> bool:
        """Whether a node of this name and these labels will do."""
        if any(labels.get(key) != value for key, value in self._selector):
            return False
        if self._terms is None:
            return True
        return any(_term_holds(term, name, labels) for term in self._terms)

    def mask(self, nodes: LabelColumns) -> NDArray[np.bool_]:
        """Bool [N]: `matches` of every node, tested once per distinct value of a label."""
        allowed = np.ones(len(nodes), np.bool_)
        for key, wanted in self._selector:
            allowed &= nodes.where(key, partial(operator.eq, wanted))
        if self._terms is not None:
            some = np.zeros(len(nodes), np.bool_)
            for term in self._terms:
                some |= _term_mask(term, nodes)
            allowed &= some
        return allowed


def required_nodes(spec: PodSpec) -> RequiredNodes | None:
    """What a pod demands of its node, None = nothing."""
    affinity = (spec.affinity or {}).get("nodeAffinity") or {}
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution")
    if required is None and not spec.node_selector:
        return None
    terms = None if required is None else required.get("nodeSelectorTerms") or ()
    return RequiredNodes(spec.node_selector, terms)


def _term_holds(term: Mapping[str, Any], name: str, labels: Mapping[str, str]) -> bool:
    expressions = term.get("matchExpressions") or ()
    fields = term.get("matchFields") or ()
    if not expressions and not fields:
        return False  # an empty term means no node, not every node
    return all(_holds(one, labels) for one in expressions) and all(
        _holds(one, {NAME_FIELD: name}) for one in fields
    )


def _term_mask(term: Mapping[str, Any], nodes: LabelColumns) -> NDArray[np.bool_]:
    expressions = term.get("matchExpressions") or ()
    fields = term.get("matchFields") or ()
    holds = np.full(len(nodes), bool(expressions or fields), np.bool_)
    for one in expressions:
        key = one.get("key", "")

        def test(value: str | None, one: Mapping[str, Any] = one, key: str = key) -> bool:
            return _holds(one, {} if value is None else {key: value})

        holds &= nodes.where(key, test)
    for one in fields:
        holds &= nodes.named(partial(_name_holds, one))
    return holds


def _name_holds(requirement: Mapping[str, Any], name: str) -> bool:
    return _holds(requirement, {NAME_FIELD: name})


def _holds(requirement: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    test = _TESTS.get(requirement.get("operator", ""))
    value = labels.get(requirement.get("key", ""))
    return test is not None and test(value, requirement.get("values") or ())


def _greater(value: str | None, bounds: Sequence[str]) -> bool:
    return (pair := _two_integers(value, bounds)) is not None and pair[0] > pair[1]


def _less(value: str | None, bounds: Sequence[str]) -> bool:
    return (pair := _two_integers(value, bounds)) is not None and pair[0] < pair[1]


def _two_integers(value: str | None, bounds: Sequence[str]) -> tuple[int, int] | None:
    if value is None or len(bounds) != 1:
        return None
    try:
        return int(value), int(bounds[0])
    except ValueError:
        return None


_TESTS: Final[Mapping[str, Callable[[str | None, Sequence[str]], bool]]] = {
    **TESTS,
    "Gt": _greater,
    "Lt": _less,
}
