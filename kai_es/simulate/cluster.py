"""A simulated cluster: the API server behind a socket, in this process or in one of its own."""

import asyncio
import contextlib
import fcntl
import os
import secrets
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import IO, Final, Self

import yaml
from aiohttp import web

from kai_es.ports.clock import Clock
from kai_es.ports.errors import UnavailableError
from kai_es.simulate import crds
from kai_es.simulate.api import INSIDE, Api
from kai_es.simulate.cluster_local import LocalCluster
from kai_es.simulate.controllers import Controllers
from kai_es.simulate.database import AccessRow, Database, read_ledger
from kai_es.simulate.kinds import KindTable
from kai_es.simulate.kubelet import Kubelet
from kai_es.simulate.kubelet_local import LocalApi
from kai_es.simulate.recreation import Recreator
from kai_es.simulate.runs import Run, RunLedger, read_runs
from kai_es.simulate.server import HttpServer
from kai_es.simulate.store import HISTORY_MAX, HISTORY_MS, Store
from kai_es.simulate.watches import BOOKMARK_S

USER: Final = "simulated-admin"
LISTEN: Final = "127.0.0.1:0"
ANY: Final = "0.0.0.0"
MAINTENANCE_S: Final = 10.0
"""How often old history is looked for; 10,000 changes at 1,000 writes/s."""
START_TIMEOUT_S: Final = 30.0
STOP_TIMEOUT_S: Final = 10.0
SHUTDOWN_S: Final = 1.0
"""How long open requests may go on when the server stops; watches never end by themselves."""


class WallClock:
    """Real time (`ports.clock.Clock`)."""

    def now_ms(self) -> int:
        """Wall clock, whole milliseconds."""
        return time.time_ns() // 1_000_000

    def monotonic_s(self) -> float:
        """Seconds that never fall."""
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        """Return after `seconds`."""
        await asyncio.sleep(seconds)


class SimulatedCluster:
    """The API server in this process; `async with SimulatedCluster(path) as cluster`.

    Files in `data`: apiserver.db (all state), kubeconfig, token, url. A second start finds its
    state, its token and, if it is still free, its port again.

    Args:
        data: directory, made if missing.
        listen: `host:port`, port 0 = that of the last start, or a free one; on 0.0.0.0 the
            kubeconfig names this host. None = no socket, for callers in this process
            (`cluster_local.LocalCluster` on `api`).
        clock: time of the store and the kubelet; watches time out by the event loop's.
        kubelet: bound pods run and end (`kubelet.py`), evicted ones that ask for it are made
            again, volumes and claims on devices are taken care of (`controllers.py`); its ledger
            is `data/kubelet.db`.
        seed: of the kubelet's latencies.
        bookmark_s: time between bookmarks of a watch.
        history_max, history_ms: what of the history is kept for watches and paged lists.

    Raises (start):
        BlockingIOError: another server runs on `data`.
    """

    def __init__(
        self,
        data: Path,
        *,
        listen: str | None = LISTEN,
        clock: Clock | None = None,
        kubelet: bool = True,
        seed: int = 0,
        bookmark_s: float = BOOKMARK_S,
        history_max: int = HISTORY_MAX,
        history_ms: int = HISTORY_MS,
    ) -> None:
        self.data = data
        self.kubeconfig = data / "kubeconfig"
        self.url = ""
        self.token = ""
        self.api: Api
        self.store: Store
        self._listen_on = listen
        self._clock = clock or WallClock()
        self._kubelet = kubelet
        self._seed = seed
        self._bookmark_s = bookmark_s
        self._history_max = history_max
        self._history_ms = history_ms
        self._stack = contextlib.AsyncExitStack()

    @property
    def headers(self) -> dict[str, str]:
        """What a plain HTTP request needs."""
        return {"Authorization": f"Bearer {self.token}"}

    def ledger(self) -> list[AccessRow]:
        """All writes that clients asked for, in order."""
        self.store.settle()
        return read_ledger(self.data / "apiserver.db")

    def runs(self) -> list[Run]:
        """What the kubelet has run."""
        return read_runs(self.data / "kubelet.db")

    async def __aenter__(self) -> Self:
        async with contextlib.AsyncExitStack() as stack:
            self.data.mkdir(parents=True, exist_ok=True)
            stack.enter_context(_lock(self.data / "lock"))
            database = Database(self.data / "apiserver.db")
            stack.callback(database.close)
            table, defined = KindTable(), crds.stored_kinds(database)
            self.store = Store(
                database,
                [*table.kinds, *defined],
                self._clock.now_ms,
                history_max=self._history_max,
                history_ms=self._history_ms,
            )
            stack.callback(self.store.settle)
            self.token = _token(self.data / "token")
            self.api = Api(self.store, table, defined=defined, bookmark_s=self._bookmark_s)
            if self._listen_on is not None:
                host, _, port = self._listen_on.rpartition(":")
                await self._listen(stack, host, int(port))
            ledger = RunLedger(self.data / "kubelet.db")
            stack.callback(ledger.close)
            tasks = await stack.enter_async_context(asyncio.TaskGroup())
            stack.callback(tasks.create_task(self._maintain()).cancel)
            if self._kubelet:
                kubelet = Kubelet(LocalApi(self.api), ledger, self._clock, seed=self._seed)
                stack.callback(tasks.create_task(kubelet.run()).cancel)
                stack.callback(tasks.create_task(Recreator(self.api).run()).cancel)
                inside = LocalCluster(self.api, INSIDE)
                controllers = Controllers(inside, inside, self._clock)
                stack.callback(tasks.create_task(controllers.run()).cancel)
            self._stack = stack.pop_all()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self._stack.aclose()

    async def _listen(self, stack: contextlib.AsyncExitStack, host: str, port: int) -> None:
        runner = web.ServerRunner(
            web.Server(
                HttpServer(self.api, {self.token: USER}).handle,
                access_log=None,
                handler_cancellation=True,  # or a watch whose client has gone would stay
            ),
            shutdown_timeout=SHUTDOWN_S,
        )
        await runner.setup()
        stack.push_async_callback(runner.cleanup)
        listener = _bind(host, port, self.data / "url")
        port = listener.getsockname()[1]
        await web.SockSite(runner, listener).start()
        known = socket.gethostname() if host == ANY else host
        self.url = f"http://{known}:{port}"
        _write_kubeconfig(self.kubeconfig, self.url, self.token)
        (self.data / "url").write_text(self.url + "\n")
        stack.callback(self._end_watches)

    def _end_watches(self) -> None:
        for stream in list(self.api.watches):
            stream.finish()

    async def _maintain(self) -> None:
        while True:
            await self._clock.sleep(MAINTENANCE_S)
            self.store.compact_old()


@contextlib.contextmanager
def _lock(path: Path) -> Iterator[None]:
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield


def _token(path: Path) -> str:
    if not path.exists():
        path.touch(mode=0o600)
        path.write_text(secrets.token_urlsafe(24) + "\n")
    return path.read_text().strip()


def _bind(host: str, port: int, last_url: Path) -> socket.socket:
    """A listening socket on `port`; for 0 on the port of the last start, else on a free one."""
    wanted = [port]
    if not port and last_url.exists():
        wanted = [int(last_url.read_text().strip().rpartition(":")[2]), 0]
    for number in wanted:
        listener = socket.socket()
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((host, number))
        except OSError:
            listener.close()
            if number == wanted[-1]:
                raise
        else:
            return listener
    raise AssertionError("unreachable: the last port binds or raises")


def _write_kubeconfig(path: Path, url: str, token: str) -> None:
    name = "simulated"
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": name, "cluster": {"server": url}}],
        "users": [{"name": USER, "user": {"token": token}}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": USER}}],
        "current-context": name,
    }
    path.touch(mode=0o600)
    path.write_text(yaml.safe_dump(config, sort_keys=False))


class ClusterProcess:
    """The API server in its own process; `with ClusterProcess(path) as cluster`.

    It ends with this process, however that ends: it reads a pipe of which we hold the other end.

    Args:
        data: directory of its state; its output goes to `data/apiserver.log`.
        options: further arguments of `python -m kai_es.simulate.apiserver`.
    """

    def __init__(self, data: Path, *options: str) -> None:
        self.data = data
        self.kubeconfig = data / "kubeconfig"
        self._options = options
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """Where it listens."""
        return (self.data / "url").read_text().strip()

    @property
    def token(self) -> str:
        """What a request must carry."""
        return (self.data / "token").read_text().strip()

    @property
    def headers(self) -> dict[str, str]:
        """What a plain HTTP request needs."""
        return {"Authorization": f"Bearer {self.token}"}

    @property
    def pid(self) -> int:
        """Its process id."""
        assert self._process is not None, "not started"
        return self._process.pid

    def ledger(self) -> list[AccessRow]:
        """All writes that clients asked for, in order; works while the server is down, too."""
        return read_ledger(self.data / "apiserver.db")

    def runs(self) -> list[Run]:
        """What the kubelet has run; works while the server is down, too."""
        return read_runs(self.data / "kubelet.db")

    def start(self) -> Self:
        """Start it and wait until it answers.

        Raises:
            UnavailableError: it ends at once or does not answer in time.
        """
        self.data.mkdir(parents=True, exist_ok=True)
        arguments = [sys.executable, "-m", "kai_es.simulate.apiserver", "--data", str(self.data)]
        with (self.data / "apiserver.log").open("ab") as log:
            self._process = subprocess.Popen(
                [*arguments, "--exit-with-stdin", *self._options],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                start_new_session=True,
            )
        assert self._process.stdout is not None, "it is a pipe"
        line = _first_line(self._process.stdout, START_TIMEOUT_S)
        if not line.startswith(b"http"):
            self.kill()
            raise UnavailableError(f"no API server: see {self.data / 'apiserver.log'}")
        return self

    def kill(self) -> None:
        """End it as a crash does (SIGKILL)."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """End it gracefully."""
        self._end(signal.SIGTERM)

    def _end(self, how: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.send_signal(how)
        try:
            process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                pipe.close()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()


def _first_line(pipe: IO[bytes], timeout_s: float) -> bytes:
    """The first line from a pipe, b"" if it is closed or says nothing in time."""
    ready, _, _ = select.select([pipe], [], [], timeout_s)
    return pipe.readline() if ready else b""


def exit_with_stdin(stop: asyncio.Event) -> None:
    """Set `stop` when standard input closes, that is when the parent has ended."""

    def read() -> None:
        if not os.read(0, 1024):
            loop.remove_reader(0)
            stop.set()

    loop = asyncio.get_running_loop()
    loop.add_reader(0, read)
