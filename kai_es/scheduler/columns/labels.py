"""Labels and taints of the nodes as codes, so that a demand is tested once per distinct value."""

from collections.abc import Callable, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from kai_es.kube.objects import Node, Taint

Mask = NDArray[np.bool_]
Codes = NDArray[np.int32]

ABSENT: Final = -1


class LabelColumns:
    """Labels of a fixed list of nodes, one row each. N nodes."""

    def __init__(self, nodes: Sequence[Node]) -> None:
        self._nodes = nodes
        self._labels: dict[str, tuple[Codes, list[str]]] = {}
        self._taints: tuple[Codes, list[tuple[Taint, ...]]] | None = None

    def __len__(self) -> int:
        return len(self._nodes)

    def codes(self, key: str) -> tuple[Codes, list[str]]:
        """int32 [N], position of each node's value in the list of values, ABSENT without it."""
        found = self._labels.get(key)
        if found is None:
            values: dict[str, int] = {}
            codes = np.full(len(self._nodes), ABSENT, np.int32)
            for n, node in enumerate(self._nodes):
                value = node.labels.get(key)
                if value is not None:
                    codes[n] = values.setdefault(value, len(values))
            found = self._labels[key] = (codes, list(values))
        return found

    def where(self, key: str, test: Callable[[str | None], bool]) -> Mask:
        """Bool [N]: the test holds for the node's value of a label, None = it has none."""
        codes, values = self.codes(key)
        verdict = np.array([*(test(value) for value in values), test(None)], np.bool_)
        return verdict[codes]  # ABSENT is the last entry on purpose

    def named(self, test: Callable[[str], bool]) -> Mask:
        """Bool [N]: the test holds for the node's name."""
        return np.array([test(node.name) for node in self._nodes], np.bool_)

    def tolerated(self, test: Callable[[tuple[Taint, ...]], bool]) -> Mask:
        """Bool [N]: the test holds for the node's taints."""
        if self._taints is None:
            sets: dict[tuple[Taint, ...], int] = {}
            codes = np.empty(len(self._nodes), np.int32)
            for n, node in enumerate(self._nodes):
                codes[n] = sets.setdefault(node.taints, len(sets))
            self._taints = (codes, list(sets))
        codes, found = self._taints
        if not found:
            return np.ones(0, np.bool_)
        return np.array([test(taints) for taints in found], np.bool_)[codes]
