"""What others do with GPUs: open requests of another scheduler, pods of a node autoscaler.

Both are small lists, asked for once in a while, however many want to know.
"""

from collections.abc import Sequence
from typing import Any, Final

from kai_es.binder.reservation import ENDED
from kai_es.ports.clock import Clock
from kai_es.ports.cluster import PODS, ClusterWrites, foreign_requests
from kai_es.ports.errors import AnswerError, UnavailableError

REQUESTS_FRESH_S: Final = 1.0  # a list without a group serves for so long
SCALE_FRESH_S: Final = 1.0  # between looks at the autoscaler's pods

Object = dict[str, Any]


class Foreign:
    """Others on the same cluster.

    scale_namespace: where the pods are with which an autoscaler is asked for GPUs.
    """

    def __init__(self, cluster: ClusterWrites, clock: Clock, scale_namespace: str) -> None:
        self._cluster = cluster
        self._clock = clock
        self._scale_namespace = scale_namespace
        self._requests: tuple[float, frozenset[str], str] = (float("-inf"), frozenset(), "")
        self._scaling: tuple[float, bool] = (float("-inf"), False)

    async def uses(self, group: str, *, since_s: float) -> tuple[bool, str]:
        """Whether an open bind request of another scheduler names a GPU group.

        The text says why that is not known, "" = it is: the group may be in use then.

        Args:
            group: of GPUs.
            since_s: a yes is not older: who was in the way has perhaps just been taken back.
        """
        now_s = self._clock.monotonic_s()
        asked_s, groups, unsure = self._requests
        says_no = not unsure and group not in groups
        if now_s - asked_s > REQUESTS_FRESH_S or (asked_s < since_s and not says_no):
            groups, unsure = await self._groups()
            self._requests = (now_s, groups, unsure)
        return group in groups, unsure

    async def _groups(self) -> tuple[frozenset[str], str]:
        try:
            found = await foreign_requests(self._cluster)
        except (AnswerError, UnavailableError) as exc:
            return frozenset(), f"open bind requests of other schedulers are not known: {exc}"
        return frozenset(group for one in found for group in _groups_if_open(one)), ""

    async def scales_up(self) -> bool:
        """Whether an autoscaler makes room for GPU pods; a look that fails says no (race 16)."""
        asked_s, scales = self._scaling
        if self._clock.monotonic_s() - asked_s > SCALE_FRESH_S:
            try:
                pods, _ = await self._cluster.list(PODS, self._scale_namespace)
            except (AnswerError, UnavailableError):
                pods = ()
            scales = any(map(_is_unscheduled, pods))
            self._scaling = (self._clock.monotonic_s(), scales)
        return scales


def _groups_if_open(request: Object) -> Sequence[str]:
    if (request.get("status") or {}).get("phase") in ENDED:
        return ()
    return (request.get("spec") or {}).get("selectedGPUGroups") or ()


def _is_unscheduled(pod: Object) -> bool:
    conditions = (pod.get("status") or {}).get("conditions") or ()
    return any(c["type"] == "PodScheduled" and c.get("status") != "True" for c in conditions)
