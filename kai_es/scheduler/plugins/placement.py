"""Which node: scores of nodes; those of devices are in `sharing`.

Magnitudes act lexicographically: density 0…9, resource type 10, availability 1,000, shared device
10,000, nominated node 10,000,000.

Reference: pkg/scheduler/plugins/{nodeplacement,nodeavailability,resourcetype,nominatednode,scores}
(plugins §2, §4).
"""

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Final

import numpy as np
from numpy.typing import NDArray

from kai_es.kube.labels import GPU_MICRO
from kai_es.scheduler.columns.resources import CPU_ROW, GPU_ROW
from kai_es.scheduler.framework.fit import Fit, NodeSet
from kai_es.scheduler.framework.session import Session
from kai_es.scheduler.solve.neighbours import neighbours_of

HIGH_DENSITY: Final = 9.0
RESOURCE_TYPE: Final = 10.0
AVAILABILITY: Final = 1_000.0
POD_AFFINITY: Final = 1_000_000.0
NOMINATED_NODE: Final = 10_000_000.0

_Arguments = Mapping[str, str]
_Scores = NDArray[np.float64]
_Amounts = NDArray[np.int64]


def open_nodeavailability(session: Session, arguments: _Arguments) -> None:
    """Nodes where the task could start now."""
    session.ext.scores.append(lambda fit, _nodes, _task: fit.idle_ok * AVAILABILITY)


def open_resourcetype(session: Session, arguments: _Arguments) -> None:
    """CPU-only tasks onto CPU-only nodes."""
    cpu_only = np.array([f.cpu_only for f in session.nodes.columns.facts], np.float64)
    cpu_only *= RESOURCE_TYPE

    def score(fit: Fit, _nodes: NodeSet, _task: int) -> _Scores | float:
        return 0.0 if fit.shape.needs_gpu else cpu_only

    if cpu_only.any():
        session.ext.scores.append(score)


def open_nominatednode(session: Session, arguments: _Arguments) -> None:
    """The node that the pod is nominated for."""

    def score(_fit: Fit, _nodes: NodeSet, task: int) -> _Scores | float:
        name = session.row(task).pod.nominated_node
        n = session.nodes.columns.row.get(name) if name else None
        if n is None:
            return 0.0
        scores = np.zeros(len(session.nodes))
        scores[n] = NOMINATED_NODE
        return scores

    session.ext.scores.append(score)


def open_podaffinity(session: Session, arguments: _Arguments) -> None:
    """Nodes near pods that the task prefers, or that prefer it."""
    neighbours = neighbours_of(session)
    if neighbours is None:
        return

    def score(_fit: Fit, _nodes: NodeSet, task: int) -> _Scores | float:
        found = neighbours.preference(task)
        return 0.0 if found is None else found.astype(np.float64) * POD_AFFINITY

    session.ext.scores.append(score)


def open_nodeplacement(session: Session, arguments: _Arguments) -> None:
    """Fullest nodes first (binpack), or emptiest (spread), by GPUs or for others by CPU."""
    strategies = {
        row: _spread(session, row) if arguments.get(name) == "spread" else Packing(session, row)
        for row, name in ((GPU_ROW, "gpu"), (CPU_ROW, "cpu"))
    }

    def score(fit: Fit, nodes: NodeSet, _task: int) -> _Scores | float:
        return strategies[GPU_ROW if fit.shape.needs_gpu else CPU_ROW](nodes)

    session.ext.scores.append(score)


def _spread(session: Session, row: int) -> Callable[[NodeSet], _Scores | float]:
    columns = session.nodes.columns
    if row == GPU_ROW:
        total = np.array([f.gpu_count * GPU_MICRO for f in columns.facts], np.int64)
    else:
        total = columns.allocatable[row]
    some = total != 0

    def score(_nodes: NodeSet) -> _Scores:
        scores = np.zeros(len(total))
        np.divide(session.nodes.free[row], total, out=scores, where=some)
        return scores

    return score


class Packing:
    """Score 9 on the nodes with the least free amount of the set, 0 on those with the most."""

    def __init__(self, session: Session, row: int) -> None:
        self._session = session
        self._row = row
        self._offers = session.nodes.columns.allocatable[row] > 0
        self._all_offer = bool(self._offers.all())
        self._whole: _WholePacking | None = None

    def __call__(self, nodes: NodeSet) -> _Scores | float:
        """Scores over all nodes; those outside the set are of no account. Do not change them."""
        if nodes.mask is None and self._all_offer:
            if self._whole is None:
                self._whole = _WholePacking(self._session, self._row)
            return self._whole.scores()
        free = self._session.nodes.free[self._row]
        here = self._offers if nodes.mask is None else self._offers & nodes.mask
        compared = free[here]
        if len(compared) == 0:
            return 0.0
        scores = _packed(free, int(compared.min()), max(int(compared.max()), 0))
        return scores if isinstance(scores, float) else np.where(self._offers, scores, 0.0)


def _packed(free: _Amounts, least: int, most: int) -> _Scores | float:
    if most == 0:
        return 0.0
    if least == most:
        return np.full(len(free), HIGH_DENSITY)
    return HIGH_DENSITY * (1.0 - (free - least) / (most - least))


class _WholePacking:
    """The scores over all nodes, kept up: as long as the extremes stay, a node has its own."""

    def __init__(self, session: Session, row: int) -> None:
        self._state = session.nodes
        self._row = row
        self._values: list[int] = self._state.free[row].tolist()
        self._counts = Counter(self._values)
        self._seen = len(self._state.changes)
        self._extremes = self._find_extremes()
        self._scores = _packed(self._state.free[row], *self._extremes)

    def _find_extremes(self) -> tuple[int, int]:
        return min(self._counts, default=0), max(max(self._counts, default=0), 0)

    def scores(self) -> _Scores | float:
        changes = self._state.changes
        if len(changes) == self._seen:
            return self._scores
        rows = set(changes[self._seen :])
        self._seen = len(changes)
        free, values, counts = self._state.free[self._row], self._values, self._counts
        for n in rows:
            before, now = values[n], int(free[n])
            if before == now:
                continue
            values[n] = now
            counts[now] += 1
            if counts[before] == 1:
                del counts[before]
            else:
                counts[before] -= 1
        extremes = self._find_extremes()
        if extremes != self._extremes or isinstance(self._scores, float):
            self._extremes = extremes
            self._scores = _packed(free, *extremes)
        else:
            least, most = extremes
            for n in rows:
                self._scores[n] = (
                    HIGH_DENSITY
                    if least == most
                    else HIGH_DENSITY * (1.0 - (values[n] - least) / (most - least))
                )
        return self._scores
