"""Devices that tasks share: which nodes with one come first, and which device of a node.

Reference: pkg/scheduler/plugins/{gpusharingorder,gpupack,gpuspread} (plugins §4.4, §5.5).
"""

from collections.abc import Mapping
from typing import Final

import numpy as np
from numpy.typing import NDArray

from kai_es.scheduler.framework.fit import Fit, NodeSet
from kai_es.scheduler.framework.session import Session

GPU_SHARING: Final = 10_000.0
MEMORY_MIN_MIB: Final = 100
"""Of one device; with less, the memory label is wrong and shares of it mean nothing."""

_Arguments = Mapping[str, str]
_Scores = NDArray[np.float64]


def open_gpusharingorder(session: Session, arguments: _Arguments) -> None:
    """Nodes with a shared device that has room; a task without GPUs fits any (plugins §4.4).

    So CPU-only pods fill nodes whose GPUs are shared; without that, fewer pods fit in all.
    """

    def score(fit: Fit, _nodes: NodeSet, _task: int) -> _Scores | float:
        if not session.nodes.sharing:
            return 0.0
        return np.where(fit.joins(), GPU_SHARING, 0.0)

    session.ext.scores.append(score)


def open_gpupack(session: Session, arguments: _Arguments) -> None:
    """The fullest shared device first, whole ones last."""
    session.ext.gpu_scores.append(pack_score)


def open_gpuspread(session: Session, arguments: _Arguments) -> None:
    """Whole devices first, then the emptiest shared one."""
    session.ext.gpu_scores.append(spread_score)


def pack_score(used: int | None, capacity: int) -> float | None:
    """Used share of a device, 0 for a whole one.

    Args:
        used: MiB used of a shared device, None = a whole one.
        capacity: MiB of each device.

    Returns:
        None if the device must not be offered.
    """
    if used is None:
        return 0.0
    return used / capacity if capacity >= MEMORY_MIN_MIB else None


def spread_score(used: int | None, capacity: int) -> float | None:
    """Free share of a device, 1 for a whole one; as `pack_score`."""
    if used is None:
        return 1.0
    return 1.0 - used / capacity if capacity >= MEMORY_MIN_MIB else None
