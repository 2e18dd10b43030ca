"""Bind requests of an installed KAI: nothing is decided while one of them may still be executed.

A BindRequest object that nobody has executed is an order to a binder that may be alive. As long as
there are any, whoever made them, the gate is closed: their pods and the room they were promised
could be given away twice. Such an order ends when its pod is bound, ends or goes, or when its
scheduler takes it back. One that is older than any binder's attempt can be is taken back here: the
pod loses the labels of shared GPUs that the attempt has left, then the object is deleted, and the
pod is scheduled like any other. Objects that only mirror our own requests do not count.

Reference: pkg/binder/controllers (binder.md §6, §10.3); docs/migration.md.
"""

import logging
from collections.abc import Mapping
from typing import Any, Final

from kai_es.intake import metrics
from kai_es.kube.labels import GPU_GROUP_LABEL, GPU_GROUPS_PREFIX
from kai_es.kube.times import time_ms
from kai_es.ports.clock import Clock
from kai_es.ports.cluster import BIND_REQUESTS, PODS, ClusterWrites, foreign_requests
from kai_es.ports.errors import AnswerError, ConflictError, GoneError, RefusedError

Object = dict[str, Any]

SUPERSEDED_MS: Final = 180_000
"""An attempt waits 40 s for a reservation pod and 120 s for volumes at most."""
BUSY_S: Final = 2.0
"""Between looks while there are any; the next sign of life of the informer tells of it."""
IDLE_S: Final = 60.0
"""Between looks while there are none: a look reads all of them, the mirrored ones too."""
PODS_MAX: Final = 200
"""Pods looked at at a time; of the rest it is assumed that they wait."""
NAMED: Final = 3
_ENDED: Final = ("Succeeded", "Failed")

logger = logging.getLogger(__name__)


class Takeover:
    """Looks for open bind requests of others.

    open: how many there were at the last look; at least one while looking is not allowed.
    problem: what people have to know, "" = nothing.
    """

    def __init__(self, cluster: ClusterWrites, clock: Clock) -> None:
        self._cluster = cluster
        self._clock = clock
        self.open = 0
        self.problem = ""

    def pause_s(self) -> float:
        """How long until the next look."""
        return BUSY_S if self.open else IDLE_S

    async def look(self) -> None:
        """Count them, and take back those that are too old.

        Raises:
            UnavailableError: the API server does not say.
        """
        try:
            found = await foreign_requests(self._cluster)
            unfinished = [one for one in found if _phase(one) != "Succeeded"]
            waiting = [one for one in unfinished[:PODS_MAX] if await self._is_open(one)]
        except AnswerError as exc:  # whether there are any nobody knows: as if there were one
            self.open = max(self.open, 1)
            metrics.FOREIGN_REQUESTS.set(self.open)
            self.problem = (
                "BindRequests of another scheduler cannot be looked for, so nothing is decided: "
                f"{exc}"
            )
            return
        self.open = len(waiting) + len(unfinished[PODS_MAX:])
        metrics.FOREIGN_REQUESTS.set(self.open)
        names = ", ".join(_name(one) for one in waiting[:NAMED])
        self.problem = (
            f"{self.open} open BindRequests of another scheduler, e.g. {names}: stop it; what it "
            f"left is taken back after {SUPERSEDED_MS // 1000} s (docs/migration.md)"
            if self.open
            else ""
        )

    async def _is_open(self, request: Object) -> bool:
        """Whether a request can still be executed."""
        meta, pod_name = request["metadata"], (request.get("spec") or {}).get("podName")
        try:
            pod = await self._cluster.get(PODS, meta["namespace"], pod_name or meta["name"])
        except GoneError:
            return False
        if not _is_for(request, pod) or not _can_be_bound(pod):
            return False
        made_ms = time_ms(meta.get("creationTimestamp"), what=_name(request), field="created")
        if self._clock.now_ms() - made_ms < SUPERSEDED_MS:
            return True
        return not await self._take_back(request, pod)

    async def _take_back(self, request: Object, pod: Object) -> bool:
        """Whether nobody can execute a request any more."""
        meta, pod_meta = request["metadata"], pod["metadata"]
        space = meta["namespace"]
        try:
            if labels := {key: None for key in pod_meta.get("labels") or {} if _is_group(key)}:
                await self._cluster.patch(
                    PODS,
                    space,
                    pod_meta["name"],
                    {"metadata": {"labels": labels}},
                    uid=pod_meta["uid"],
                    rv=int(pod_meta["resourceVersion"]),
                )
            uid, rv = meta["uid"], int(meta["resourceVersion"])
            await self._cluster.delete(BIND_REQUESTS, space, meta["name"], uid=uid, rv=rv)
        except GoneError:
            return True
        except ConflictError:
            return False
        except RefusedError as exc:
            logger.warning("not taken back", extra={"request": _name(request), "why": str(exc)})
            return False
        logger.info("taken back", extra={"request": _name(request)})
        return True


def _name(obj: Mapping[str, Any]) -> str:
    meta = obj["metadata"]
    return f"{meta.get('namespace', '')}/{meta['name']}"


def _phase(request: Mapping[str, Any]) -> str:
    return str((request.get("status") or {}).get("phase") or "")


def _is_for(request: Mapping[str, Any], pod: Mapping[str, Any]) -> bool:
    """Whether it is the pod that was meant, and not one made anew under its name.

    The binder of the reference does not look (race 4), so the request is open for that one too;
    but its garbage collector takes it away as soon as the first pod is gone.
    """
    owners = request["metadata"].get("ownerReferences") or ()
    uids = [one.get("uid") for one in owners if one.get("kind") == "Pod"]
    return not uids or pod["metadata"]["uid"] in uids


def _can_be_bound(pod: Mapping[str, Any]) -> bool:
    if (pod.get("spec") or {}).get("nodeName") or "deletionTimestamp" in pod["metadata"]:
        return False
    return (pod.get("status") or {}).get("phase") not in _ENDED


def _is_group(key: str) -> bool:
    return key == GPU_GROUP_LABEL or key.startswith(GPU_GROUPS_PREFIX)
