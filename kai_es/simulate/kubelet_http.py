"""The kubelet's way to any API server, over HTTP.

Also a program: `python -m kai_es.simulate.kubelet_http --kubeconfig FILE --data DIR` runs the
kubelets of all nodes of a cluster that has none, and the controllers of volumes and claims on
devices. `DIR/kubelet.db` is the kubelets' ledger.
"""

import argparse
import asyncio
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path
from typing import Final

import msgspec

from kai_es.cluster.api import ApiServer
from kai_es.cluster.endpoint import from_kubeconfig
from kai_es.ports.clock import Clock
from kai_es.ports.cluster import NODES, PODS, ClusterWatch, Resource, WatchItem
from kai_es.ports.errors import ConfigError, GoneError, UnavailableError
from kai_es.simulate.answers import STRATEGIC_PATCH
from kai_es.simulate.client import Client
from kai_es.simulate.cluster import WallClock
from kai_es.simulate.controllers import Controllers
from kai_es.simulate.kubelet import Kubelet, Object, PodRef, Seen
from kai_es.simulate.runs import RunLedger

USER_AGENT: Final = "simulated-kubelet"
PAGE: Final = 500
SILENCE_S: Final = 75.0
"""A watch that is silent for longer, bookmarks included, is taken up anew."""
RETRY_S: Final = 0.2


class HttpApi:
    """`kubelet.NodeApi` on an API server elsewhere. Rides out restarts, 410 and 429."""

    def __init__(self, reader: ClusterWatch, client: Client, clock: Clock) -> None:
        self._reader = reader
        self._client = client
        self._clock = clock
        self._known: dict[str, dict[str, Object]] = {"Node": {}, "Pod": {}}
        self._inbox: asyncio.Queue[Sequence[Seen]] = asyncio.Queue()

    async def follow(self) -> AsyncIterator[Sequence[Seen]]:
        """First all there is, then every change."""
        nodes, nodes_rv = await self._list(NODES)
        pods, pods_rv = await self._list(PODS)
        yield [*nodes, *pods]
        async with asyncio.TaskGroup() as tasks:
            watches = [
                tasks.create_task(self._watch(NODES, nodes_rv)),
                tasks.create_task(self._watch(PODS, pods_rv)),
            ]
            try:
                while True:
                    yield await self._inbox.get()
            finally:
                for watch in watches:
                    watch.cancel()

    async def _list(self, resource: Resource) -> tuple[list[Seen], int]:
        """Everything, and what has gone since the last list; with its resourceVersion."""
        while True:
            try:
                objects, rv = await self._pages(resource)
                break
            except (UnavailableError, GoneError):
                await self._clock.sleep(RETRY_S)
        known = self._known[resource.kind]
        alive = {obj["metadata"]["uid"] for obj in objects}
        gone = [obj for uid, obj in known.items() if uid not in alive]
        seen = [Seen(resource.kind, deleted=True, object=obj) for obj in gone]
        for obj in gone:
            del known[obj["metadata"]["uid"]]
        for obj in objects:
            seen += self._note(resource, obj, deleted=False)
        return seen, rv

    async def _pages(self, resource: Resource) -> tuple[list[Object], int]:
        objects: list[Object] = []
        token = ""
        while True:
            page = await self._reader.list_page(resource, limit=PAGE, token=token)
            objects += page.items
            token = page.token
            if not token:
                return objects, page.rv

    async def _watch(self, resource: Resource, rv: int) -> None:
        while True:
            try:
                async for items in self._reader.watch(resource, rv=rv, silence_s=SILENCE_S):
                    rv = int(items[-1].object["metadata"]["resourceVersion"])
                    await self._inbox.put([s for i in items for s in self._seen(resource, i)])
            except GoneError:
                seen, rv = await self._list(resource)
                await self._inbox.put(seen)
            except UnavailableError:
                await self._clock.sleep(RETRY_S)

    def _seen(self, resource: Resource, item: WatchItem) -> list[Seen]:
        if item.type == "BOOKMARK":
            return []
        return self._note(resource, item.object, deleted=item.type == "DELETED")

    def _note(self, resource: Resource, obj: Object, *, deleted: bool) -> list[Seen]:
        if resource is PODS and not obj["spec"].get("nodeName"):
            return []
        known, uid = self._known[resource.kind], obj["metadata"]["uid"]
        if deleted:
            known.pop(uid, None)
        else:
            known[uid] = obj
        return [Seen(resource.kind, deleted, obj)]

    async def report(self, pod: PodRef, patch: Object) -> bool:
        """Patch the status."""
        meta = patch.get("metadata", {}) | {"uid": pod.uid}
        body = msgspec.json.encode(patch | {"metadata": meta})
        path = _path(pod) + "/status"
        return await self._done(lambda: self._client.call("PATCH", path, body, STRATEGIC_PATCH))

    async def remove(self, pod: PodRef) -> bool:
        """Delete without grace."""
        options = {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "gracePeriodSeconds": 0,
            "preconditions": {"uid": pod.uid},
        }
        body = msgspec.json.encode(options)
        return await self._done(lambda: self._client.call("DELETE", _path(pod), body))

    async def _done(self, call: Callable[[], Awaitable[tuple[int, bytes]]]) -> bool:
        """Repeat until the server has said yes or no."""
        while True:
            try:
                status, _ = await call()
            except UnavailableError:
                status = 503
            if status < 500 and status != 429:
                return status == 200
            await self._clock.sleep(RETRY_S)


def _path(pod: PodRef) -> str:
    return f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}"


async def serve(kubeconfig: str, data: Path, *, seed: int = 0) -> None:
    """Run kubelets and controllers until cancelled.

    Raises:
        ConfigError: the kubeconfig cannot be used.
    """
    endpoint, clock = from_kubeconfig(kubeconfig), WallClock()
    data.mkdir(parents=True, exist_ok=True)
    ledger = RunLedger(data / "kubelet.db")
    try:
        async with (
            ApiServer(endpoint) as server,
            Client(endpoint, USER_AGENT) as client,
            asyncio.TaskGroup() as tasks,
        ):
            kubelet = Kubelet(HttpApi(server, client, clock), ledger, clock, seed=seed)
            tasks.create_task(kubelet.run())
            tasks.create_task(Controllers(server, server, clock).run())
    finally:
        ledger.close()


async def _until_told(kubeconfig: str, data: Path, seed: int) -> None:
    task = asyncio.create_task(serve(kubeconfig, data, seed=seed))
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, task.cancel)
    await asyncio.wait([task])
    if not task.cancelled():
        await task


def main(arguments: Sequence[str] | None = None) -> int:
    """Run; exit code 0 after a signal, 2 if it cannot start."""
    parser = argparse.ArgumentParser(prog="kai_es.simulate.kubelet_http", description=__doc__)
    parser.add_argument("--kubeconfig", required=True, help="how to reach the API server")
    parser.add_argument("--data", type=Path, required=True, help="directory of the ledger")
    parser.add_argument("--seed", type=int, default=0, help="of the latencies")
    options = parser.parse_args(arguments)
    try:
        asyncio.run(_until_told(options.kubeconfig, options.data, options.seed))
    except ConfigError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
