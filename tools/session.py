"""Servers that all processes of one test run share.

The first process that needs one starts a guard (`python -m tools.session`), which starts the server
and watches its users; when none of them lives any more, it removes server and data. The guard's
server dies with the guard. So nothing is left behind, whoever gets killed.
"""

import importlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Final, Protocol

import psutil

from tools.cache import locked

WATCH_S: Final = 0.3
START_S: Final = 300.0
"""The first start fetches the server."""

LOCK_S: Final = 24 * 3600.0
"""No run lasts longer; an empty lock file of an older one can go."""

_ROOT: Final = Path(tempfile.gettempdir()) / f"kai-es-tests-{os.getuid()}"


def runtime_folder() -> str:
    """A folder that only this user can use, for programs that ask for `XDG_RUNTIME_DIR`."""
    folder = _ROOT / "run"
    _ROOT.mkdir(mode=0o711, parents=True, exist_ok=True)
    folder.mkdir(mode=0o700, exist_ok=True)
    return str(folder)


class Server(Protocol):
    """What a guard needs of a server."""

    address: str

    def start(self) -> None:
        """Start and wait until it serves."""

    def alive(self) -> bool:
        """Whether its process runs."""

    def close(self) -> None:
        """End it and remove its data."""


def use(kind: str, run: str, *, main: int | None = None) -> str:
    """The address of the run's server, started if need be, kept while this process lives.

    Args:
        kind: where its class is, `module:Class`; called with a folder for its state.
        run: a name that all processes of the run agree on.
        main: pid of the run's main process; a worker that outlives it counts no more.
    """
    _ROOT.mkdir(mode=0o711, parents=True, exist_ok=True)
    _remove_left_behind()
    home = _ROOT / f"{run}-{kind.partition(':')[0].rpartition('.')[2]}"
    with locked(_ROOT / f"{home.name}.lock"):
        (home / "users").mkdir(parents=True, exist_ok=True)
        (home / "users" / str(os.getpid())).write_text(str(main or os.getpid()))
        if not (home / "address").exists():
            _start_guard(kind, home)
        return (home / "address").read_text()


def leave(kind: str, run: str) -> None:
    """This process needs the server no more; the last one waits until it is gone."""
    home = _ROOT / f"{run}-{kind.partition(':')[0].rpartition('.')[2]}"
    (home / "users" / str(os.getpid())).unlink(missing_ok=True)
    deadline = time.monotonic() + 10
    while home.exists() and not _users(home) and time.monotonic() < deadline:
        time.sleep(0.05)


def _start_guard(kind: str, home: Path) -> None:
    with (home / "guard.log").open("ab") as log:
        guard = subprocess.Popen(
            [sys.executable, "-m", "tools.session", kind, str(home)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            cwd=Path(__file__).parent.parent,
        )
    (home / "guard").write_text(str(guard.pid))
    deadline = time.monotonic() + START_S
    while not (home / "address").exists():
        if guard.poll() is not None or time.monotonic() > deadline:
            guard.kill()
            raise RuntimeError(f"{kind} did not start:\n{(home / 'guard.log').read_text()}")
        time.sleep(0.05)


def guard(kind: str, home: Path) -> None:
    """Start the server and keep it as long as it has users."""
    module, _, name = kind.partition(":")
    server: Server = getattr(importlib.import_module(module), name)(home / "state")
    server.start()
    partial = home / "address.new"
    partial.write_text(server.address)
    partial.rename(home / "address")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())
    try:
        while server.alive():
            time.sleep(WATCH_S)
            if not _users(home):
                with locked(_ROOT / f"{home.name}.lock"):
                    if not _users(home):  # nobody came while we waited for the lock
                        _remove(server, home)
                        return
    except SystemExit:
        pass
    _remove(server, home)


def _remove(server: Server, home: Path) -> None:
    server.close()
    shutil.rmtree(home, ignore_errors=True)


def _users(home: Path) -> list[Path]:
    """Users that live."""
    users = home / "users"
    return [user for user in (users.iterdir() if users.exists() else ()) if _uses(user)]


def _uses(user: Path) -> bool:
    try:
        pids = (int(user.name), int(user.read_text()))
    except FileNotFoundError:
        return False
    except ValueError:
        return True  # it is just being written
    return all(_lives(pid) for pid in pids)


def _remove_left_behind() -> None:
    """What runs left whose guard was killed: its server died with it."""
    for home in _ROOT.iterdir():
        try:
            if home.suffix == ".lock":
                if time.time() - home.stat().st_mtime > LOCK_S:
                    home.unlink()
            elif not _lives(int((home / "guard").read_text())) and not _users(home):
                shutil.rmtree(home, ignore_errors=True)
        except (OSError, ValueError):
            continue  # it is just being made or removed


def _lives(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


if __name__ == "__main__":
    guard(sys.argv[1], Path(sys.argv[2]))
