"""Child processes that never outlive their parent, and what servers need to start."""

import contextlib
import ctypes
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Final

STOP_S: Final = 10.0
"""A server that was asked to stop is killed after this."""

_PR_SET_PDEATHSIG: Final = 1

_FIRST_PORT: Final = 10240
_FIRST_GIVEN: Final = 32768  # where the system does not say; macOS begins at 49152

_parent = ThreadPoolExecutor(1, "parent-of-servers")
"""Linux sends the death signal when the *thread* that started the child ends, so that must be one
that lives as long as the process, not a thread of some event loop's pool."""


def free_port() -> int:
    """A port of 127.0.0.1 that nobody listens on, and that no connection will be given.

    A server that starts again must find its port free. One that the system gives to connections
    may be the near end of somebody's by then, even of a client's that calls the server itself.
    """
    while True:
        port = secrets.choice(_PORTS)
        with socket.socket() as sock, contextlib.suppress(OSError):
            sock.bind(("127.0.0.1", port))
            return port


def _fixed_ports() -> range:
    """Below those that the system gives to connections."""
    given = Path("/proc/sys/net/ipv4/ip_local_port_range")
    first = int(given.read_text().split()[0]) if given.exists() else _FIRST_GIVEN
    return range(_FIRST_PORT, max(first, 2 * _FIRST_PORT))


_PORTS: Final = _fixed_ports()


def start(
    command: Sequence[str],
    *,
    log: Path,
    user: int | None = None,
    death: signal.Signals = signal.SIGKILL,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
) -> subprocess.Popen[bytes]:
    """Start a server that gets `death` when this process ends, however that happens.

    On systems without parent-death signals it would live on after a kill -9 of its parent; the
    next run removes it (`tools.session`).
    """
    parent = os.getpid()
    libc = ctypes.CDLL(None) if sys.platform == "linux" else None

    def die_with_parent() -> None:
        if libc is not None:
            libc.prctl(_PR_SET_PDEATHSIG, death)
            if os.getppid() != parent:
                os.kill(os.getpid(), signal.SIGKILL)

    with log.open("ab") as output:
        popen = partial(
            subprocess.Popen,
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            user=user,
            group=user,
            extra_groups=None if user is None else [],
            preexec_fn=die_with_parent,  # two system calls, no locks
            env=None if env is None else dict(env),
            cwd=cwd,
        )
        return _parent.submit(popen).result()


def wait_ready(
    process: subprocess.Popen[bytes], ready: Callable[[], bool], *, log: Path, timeout_s: float
) -> None:
    """Wait until `ready` says so.

    Raises:
        RuntimeError: the process ended or the time is over; carries the end of its log.
    """
    deadline = time.monotonic() + timeout_s
    while not ready():
        ended = process.poll()
        if ended is not None or time.monotonic() > deadline:
            why = f"is not ready after {timeout_s:.0f} s" if ended is None else f"ended: {ended}"
            tail = log.read_text(errors="replace")[-3000:]
            raise RuntimeError(f"{process.args!r} {why}; its log {log} ends in:\n{tail}")
        time.sleep(0.05)


def stop(process: subprocess.Popen[bytes], how: signal.Signals = signal.SIGTERM) -> None:
    """Signal a server and wait for its end; kill it when it takes too long."""
    if process.poll() is None:
        process.send_signal(how)
        try:
            process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
