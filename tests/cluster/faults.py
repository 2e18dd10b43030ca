"""An informer and a snapshot stream behind a gate, users that never rest, and what goes wrong.

After each fault everything that lives has its uid and resourceVersion in the projection.
"""

import asyncio
import contextlib
import random
import signal
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import msgspec
import yaml

from kai_es.cluster.api import ApiServer
from kai_es.cluster.endpoint import from_kubeconfig
from kai_es.eventlog.sqlite import SqliteLog
from kai_es.eventlog.sqlite_lease import SqliteLeadership
from kai_es.intake.kinds import SOURCES
from kai_es.intake.service import Informer
from kai_es.ports.errors import AnswerError, UnavailableError
from kai_es.reader import View
from kai_es.runtime.clock import SystemClock
from kai_es.simulate.client import Client
from streams.snapshot import SnapshotStream
from tests.cluster.gate import Gate
from tests.simulation.api_client import a_group, a_pod
from tools.kubernetes import Kubernetes, compact

SETTLE_S = 90.0
"""On a busy machine; on a quiet one it takes seconds."""
REST_S = 0.01
NAMESPACE = "busy"
RBAC = "rbac.authorization.k8s.io"
BINDING = {
    "metadata": {"name": "other-is-admin"},
    "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": "cluster-admin"},
    "subjects": [{"apiGroup": RBAC, "kind": "User", "name": "other"}],
}
PATHS = {
    "pods": f"/api/v1/namespaces/{NAMESPACE}/pods",
    "podgroups": f"/apis/scheduling.run.ai/v2alpha2/namespaces/{NAMESPACE}/podgroups",
    "queues": "/apis/scheduling.run.ai/v2/queues",
}


class Counting(ApiServer):
    """The cluster ports; counts the answers that are no, and waits where a test wants it to.

    refused: (verb, status) -> times.
    after_page: called after a page of a list that goes on.
    may_watch: no watch begins while it is not set.
    """

    def __init__(self, endpoint) -> None:
        super().__init__(endpoint)
        self.refused: Counter = Counter()
        self.after_page = None
        self.may_watch = asyncio.Event()
        self.may_watch.set()

    async def list_page(self, resource, *, limit, token):
        try:
            page = await super().list_page(resource, limit=limit, token=token)
        except (AnswerError, UnavailableError) as exc:
            self.refused["list", getattr(exc, "status", 0)] += 1
            raise
        if page.token and limit > 1 and self.after_page is not None:
            await self.after_page()
        return page

    async def watch(self, resource, *, rv, silence_s):
        await self.may_watch.wait()
        try:
            async with contextlib.aclosing(
                super().watch(resource, rv=rv, silence_s=silence_s)
            ) as items:
                async for some in items:
                    yield some
        except (AnswerError, UnavailableError) as exc:
            self.refused["watch", getattr(exc, "status", 0)] += 1
            raise


class Users:
    """Create, change and delete pods, pod groups and queues until told to rest."""

    def __init__(self, client: Client, seed: int) -> None:
        self.client = client
        self.random = random.Random(seed)
        self.n_done = 0
        self._names = {kind: [] for kind in PATHS}
        self._n = 0

    async def work(self, times: int) -> None:
        """That many changes; those that a server which is away does not take are left out."""
        for _ in range(times):
            with contextlib.suppress(UnavailableError):
                await self._one()

    async def work_on(self) -> None:
        """Without an end."""
        while True:
            await self.work(1)
            await asyncio.sleep(REST_S)

    async def _one(self) -> None:
        kind = self.random.choice(list(PATHS))
        path, names = PATHS[kind], self._names[kind]
        what = self.random.choice(["create", "create", "change", "delete"])
        if what == "create" or not names:
            self._n += 1
            name = f"{kind[0]}{self._n}"
            status, _ = await self._call("POST", path, _body(kind, name))
            if status == 201:
                names.append(name)
        else:
            name = self.random.choice(names)
            if what == "change":
                label = {"metadata": {"labels": {"n": str(self._n)}}}
                status, _ = await self._call("PATCH", f"{path}/{name}", label)
            else:
                options = {"gracePeriodSeconds": 0}
                status, _ = await self._call("DELETE", f"{path}/{name}", options)
                names.remove(name)
        self.n_done += status < 300

    async def _call(self, method: str, path: str, body: object) -> tuple[int, bytes]:
        form = "application/merge-patch+json" if method == "PATCH" else "application/json"
        return await self.client.call(method, path, msgspec.json.encode(body), form)


def _body(kind: str, name: str) -> dict:
    if kind == "pods":
        return a_pod(name)
    if kind == "podgroups":
        return a_group(name)
    return {
        "apiVersion": "scheduling.run.ai/v2",
        "kind": "Queue",
        "metadata": {"name": name},
        "spec": {},
    }


class Trouble:
    """A server of our own, behind a gate; the informer behind it; users before it."""

    def __init__(self, server: Kubernetes, gate: Gate, port: Counting, view: View, users: Users):
        self.server, self.gate, self.port, self.view, self.users = server, gate, port, view, users
        self.admin = ApiServer(from_kubeconfig(server.address))

    async def forget(self) -> None:
        """Compact."""
        await asyncio.to_thread(compact, self.server.home)

    async def break_watches(self, *, changes: int) -> None:
        """Break all connections; changes happen and are compacted before watches go on."""
        self.port.may_watch.clear()
        await self.gate.shut()
        await self.gate.open()
        await self.users.work(changes)
        await self.forget()
        self.port.may_watch.set()

    async def restart_api(self, how: signal.Signals = signal.SIGKILL) -> None:
        """End the API server under the users' hands and start it again."""
        await asyncio.to_thread(self.server.stop_api, how)
        await asyncio.to_thread(self.server.start_api)

    async def restart_etcd(self, away_s: float = 0.0) -> None:
        """The same with etcd."""
        await asyncio.to_thread(self.server.stop_etcd, signal.SIGKILL)
        await asyncio.sleep(away_s)
        await asyncio.to_thread(self.server.start_etcd)

    async def settled(self) -> None:
        """Wait until the projection is what lives.

        Raises:
            AssertionError: it never is.
        """
        difference = "not looked at"
        try:
            async with asyncio.timeout(SETTLE_S):
                while difference:
                    try:
                        difference = await self._difference()
                    except (AnswerError, UnavailableError) as exc:
                        difference = str(exc)
                    await asyncio.sleep(0.1)
        except TimeoutError:
            raise AssertionError(f"after {SETTLE_S} s: {difference}") from None

    async def _difference(self) -> str:
        """Where projection and server differ first, "" = nowhere."""
        for source in SOURCES:
            try:
                items, _ = await self.admin.list(source.resource)
            except AnswerError as exc:
                if exc.status == 404:
                    continue
                raise
            lives = {o["metadata"]["uid"]: int(o["metadata"]["resourceVersion"]) for o in items}
            known = {
                uid: row.rv
                for uid, row in self.view.world.objects.live.get(source.kind, {}).items()
            }
            if source.heartbeats:  # versions that differ in nothing are not published
                lives, known = dict.fromkeys(lives, 0), dict.fromkeys(known, 0)
            if lives != known:
                wrong = sorted(lives.items() ^ known.items())
                return f"{source.kind}: {len(lives)} live, {len(known)} known, {wrong[:4]}"
        return ""


@asynccontextmanager
async def trouble(server: Kubernetes, folder: Path, seed: int = 0) -> AsyncIterator[Trouble]:
    """An informer (as the user `other`, so that the server may turn it away) at work."""
    log = SqliteLog(folder / "log.db")
    common = {
        "leadership": SqliteLeadership(log),
        "clock": SystemClock(),
        "holder": "test",
    }
    async with AsyncExitStack() as stack:
        stack.push_async_callback(log.close)
        gate = await stack.enter_async_context(Gate(int(server.url.rpartition(":")[2])))
        port = await stack.enter_async_context(Counting(_behind(gate, server, folder)))
        client = await stack.enter_async_context(Client(from_kubeconfig(server.address), "users"))
        for path, body in (
            ("/api/v1/namespaces", {"metadata": {"name": NAMESPACE}}),
            (f"/apis/{RBAC}/v1/clusterrolebindings", BINDING),
        ):
            status, answer = await client.call("POST", path, msgspec.json.encode(body))
            assert status == 201, answer
        informer = Informer(cluster=port, eventlog=log, configs=[], **common)
        stream = SnapshotStream(log=log, **common)
        view = View(log, SystemClock())
        made = Trouble(server, gate, port, view, Users(client, seed))
        stack.push_async_callback(made.admin.close)
        async with asyncio.TaskGroup() as tasks:
            running = [tasks.create_task(t.run()) for t in (informer, stream, view)]
            yield made
            for task in running:
                task.cancel()


def _behind(gate: Gate, server: Kubernetes, folder: Path):
    """The endpoint of the user `other` through the gate."""
    config = yaml.safe_load(server.kubeconfig("other").read_text())
    config["clusters"][0]["cluster"]["server"] = f"https://127.0.0.1:{gate.port}"
    path = folder / "gate.kubeconfig"
    path.write_text(yaml.safe_dump(config))
    return from_kubeconfig(str(path))
