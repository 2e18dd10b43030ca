"""All requests that anything can still depend on, by pod and by node."""

from collections.abc import Iterable, Iterator

from kai_es.events.decisions import Cycle
from kai_es.events.requests import Result
from kai_es.snapshot.errors import BrokenHistoryError
from kai_es.snapshot.lifecycle import UNKNOWN, Outcome, Request, Sighting, needed, requests_of


class Requests:
    """Requests by pod uid in their order, and results that came before their request.

    early:  by request id.
    doubted: those with `doubted_ms`, by id.
    n_late: results of requests no longer known, for metrics; not part of the state.
    """

    __slots__ = ("_by_id", "_by_node", "by_pod", "doubted", "early", "n_late")

    def __init__(self) -> None:
        self.by_pod: dict[str, list[Request]] = {}
        self.early: dict[str, Outcome] = {}
        self.doubted: dict[str, Request] = {}
        self.n_late = 0
        self._by_id: dict[str, Request] = {}
        self._by_node: dict[str, dict[str, Request]] = {}

    def add(self, request: Request) -> None:
        """Take up a request (from a cycle, or restored).

        Raises:
            BrokenHistoryError: it is there already; a cycle orders one thing of a pod.
        """
        if request.id in self._by_id:
            raise BrokenHistoryError(f"request {request.id} twice")
        requests = self.by_pod.setdefault(request.pod_uid, [])
        requests.append(request)
        requests.sort(key=Request.order)
        self._by_id[request.id] = request
        if request.doubted_ms:
            self.doubted[request.id] = request
        if request.node_uid:
            self._by_node.setdefault(request.node_uid, {})[request.id] = request

    def fold_cycle(self, cycle: Cycle, *, incarnation: int) -> list[Request]:
        """Take up the requests of a cycle, with results that came before it."""
        found = []
        for request in requests_of(cycle, incarnation=incarnation):
            request.outcome = self.early.pop(request.id, UNKNOWN)
            self.add(request)
            found.append(request)
        return found

    def fold_result(self, result: Result, *, is_past: bool) -> Request | None:
        """Fold a result.

        Args:
            result: of any kind.
            is_past: whether the cycle of its request is folded already; then a request that is
                not known was dropped because nothing depends on it.

        Returns:
            The request it changed.
        """
        request = self._by_id.get(result.request_id)
        if request is None:
            if is_past:
                self.n_late += 1
            else:
                known = self.early.get(result.request_id, UNKNOWN)
                self.early[result.request_id] = known.with_result(result)
            return None
        request.outcome = request.outcome.with_result(result)
        return request

    def node_gone(self, node_uid: str) -> Iterator[str]:
        """The node's uid was deleted, which ends what is open there; yields the pod uids."""
        for request in self._by_node.get(node_uid, {}).values():
            request.node_gone = True
            yield request.pod_uid

    def node_back(self, node_uid: str) -> Iterator[str]:
        """A deleted node is there again (etcd was restored); yields the pod uids."""
        for request in self._by_node.get(node_uid, {}).values():
            request.node_gone = False
            yield request.pod_uid

    def doubt(self, request: Request, *, time_ms: int) -> None:
        """It is told in a later incarnation that it was done: before or after the restore?"""
        request.doubted_ms = time_ms
        self.doubted[request.id] = request

    def end_doubts(self, *, sure_ms: int) -> Iterator[str]:
        """What was told by a time is shown by now, or was forgotten; yields the pod uids."""
        for request in [r for r in self.doubted.values() if r.doubted_ms <= sure_ms]:
            request.doubted_ms = 0
            del self.doubted[request.id]
            yield request.pod_uid

    def of_pod(self, pod_uid: str) -> list[Request]:
        """Requests of one pod, by order."""
        return self.by_pod.get(pod_uid, [])

    def of_node(self, node_uid: str) -> list[Request]:
        """Requests that name a node's uid."""
        return list(self._by_node.get(node_uid, {}).values())

    def trim(self, pod_uid: str, seen: Sighting) -> None:
        """Drop a pod's requests on which nothing depends any more."""
        requests = self.by_pod.get(pod_uid)
        if requests is None:
            return
        keep = needed(requests, seen)
        if len(keep) != len(requests):
            kept = {request.id for request in keep}
            self._drop(request for request in requests if request.id not in kept)
            self._store(pod_uid, keep)

    def forget(self, pod_uid: str) -> None:
        """Drop all requests of a pod that is long gone."""
        self._drop(self.by_pod.pop(pod_uid, ()))

    def forget_ended(self, pod_uid: str, *, before_ms: int) -> None:
        """Drop a pod's requests that have their final result and were decided before a time."""
        requests = self.by_pod[pod_uid]
        old = [r for r in requests if r.outcome.final is not None and r.decided_ms < before_ms]
        if old:
            self._drop(old)
            self._store(pod_uid, [r for r in requests if r.id in self._by_id])

    def all(self) -> Iterator[Request]:
        """Every request, by pod uid and order."""
        for pod_uid in sorted(self.by_pod):
            yield from self.by_pod[pod_uid]

    def _store(self, pod_uid: str, requests: list[Request]) -> None:
        if requests:
            self.by_pod[pod_uid] = requests
        else:
            del self.by_pod[pod_uid]

    def _drop(self, requests: Iterable[Request]) -> None:
        for request in requests:
            del self._by_id[request.id]
            self.doubted.pop(request.id, None)
            if request.node_uid:
                of_node = self._by_node[request.node_uid]
                del of_node[request.id]
                if not of_node:
                    del self._by_node[request.node_uid]
