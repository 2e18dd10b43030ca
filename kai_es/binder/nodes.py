"""Nodes by name, looked up and remembered for a moment."""

import asyncio
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from kai_es.ports.clock import Clock
from kai_es.ports.cluster import NODES, ClusterWrites
from kai_es.ports.errors import GoneError

FRESH_S: Final = 10.0  # a node that goes within it is found out by the pod's fate
AGAIN_S: Final = 0.5  # one that is another than asked for is looked up again so soon
NODES_MAX: Final = 20_000  # remembered at most; more than the largest clusters have


class NodeSeen(NamedTuple):
    """What is needed of a node."""

    uid: str
    labels: Mapping[str, str]


class Nodes:
    """Asks the API server once per node and `FRESH_S`, however many want to know."""

    def __init__(self, cluster: ClusterWrites, clock: Clock) -> None:
        self._cluster = cluster
        self._clock = clock
        self._asked: dict[str, tuple[float, asyncio.Future[NodeSeen | None]]] = {}

    async def node(self, name: str, *, uid: str = "") -> NodeSeen | None:
        """The node, None = there is no such node.

        Args:
            name: of the node.
            uid: that it should have, "" = any; nodes are made again under their names.

        Raises:
            UnavailableError, RefusedError: the API server does not say.
        """
        now_s = self._clock.monotonic_s()
        known = self._asked.get(name)
        if known is None or now_s - known[0] > (FRESH_S if _is_it(known[1], uid) else AGAIN_S):
            if len(self._asked) >= NODES_MAX:
                self._asked.clear()
            asking = asyncio.ensure_future(self._ask(name))
            known = self._asked[name] = (now_s, asking)
        try:
            return await asyncio.shield(known[1])
        except Exception:
            if self._asked.get(name) is known:
                del self._asked[name]
            raise

    async def _ask(self, name: str) -> NodeSeen | None:
        try:
            node: dict[str, Any] = await self._cluster.get(NODES, "", name)
        except GoneError:
            return None
        metadata = node["metadata"]
        assert isinstance(metadata["uid"], str), "uids are texts"
        return NodeSeen(metadata["uid"], metadata.get("labels") or {})


def _is_it(asked: "asyncio.Future[NodeSeen | None]", uid: str) -> bool:
    """Whether an answer is there and names this uid, or none is there yet."""
    if not asked.done() or asked.cancelled() or asked.exception() is not None:
        return True
    node = asked.result()
    return not uid or (node is not None and node.uid == uid)
