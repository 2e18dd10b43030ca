"""Scores of devices, for the files `gpupack` and `gpuspread`."""

from collections.abc import Callable
from typing import Any

from kai_es.scheduler.flags import Flags
from tests.conformance.node_info_ops import Input, Run

WHOLE = "-2"
"""A whole device in lists of devices of a case."""


def scorer(score: Callable[[int | None, int], float | None]) -> Run:
    """Runner of `gpuScore` with the score of one plugin."""

    def run(case: Input, flags: Flags) -> dict[str, Any]:
        del flags
        node, device = case["node"], case["gpu"]
        used = node["gpuSharing"]["usedSharedGpusMemory"]
        found = score(None if device == WHOLE else used[device], node["gpuMemoryMiB"])
        if found is None:
            return {"error": f"node <{node['name']}> has invalid GPU memory"}
        return {"score": found}

    return run
