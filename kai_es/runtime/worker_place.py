"""The name and the folder of a worker on its host, the same over restarts, nobody else's.

Faust's static membership goes by name: a worker that comes back under its old one need not wait for
its session to end, and two of one name would throw each other out for ever.
"""

import fcntl
import os
import socket
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Final, NamedTuple
from zlib import crc32

from kai_es.ports.errors import ConfigError

ENV_INSTANCE: Final = "KAI_ES_INSTANCE"
"""Name of a process; default the host's name and the first free number."""

PLACES_MAX: Final = 64
"""Workers of one part on one host; one of them works, so two are plenty."""


class Place(NamedTuple):
    """Held as long as `lock` is open.

    instance: name in the group.
    folder:   for the worker's own files.
    """

    instance: str
    folder: Path
    lock: IO[str]


def take_place(part: str, log: str, environ: Mapping[str, str] = os.environ) -> Place:
    """A place that no other process of this host has on the same log.

    Args:
        part: what runs there.
        log: which log it reads; several may be read on one host.
        environ: where the name may be given.

    Raises:
        ConfigError: the name that the environment gives is in use, or there is no free place.
    """
    given = environ.get(ENV_INSTANCE)
    names = [given] if given else [f"{socket.gethostname()}-{n}" for n in range(1, PLACES_MAX + 1)]
    for name in names:
        place = _taken(f"{name}-{part}", crc32(log.encode()))
        if place is not None:
            return place
    if given:
        raise ConfigError(
            f"{ENV_INSTANCE}={given} is the name of another process on this host that runs {part}: "
            "give each process a name of its own, or none"
        )
    raise ConfigError(
        f"no free folder for a worker in {tempfile.gettempdir()}: {PLACES_MAX} of {part} run, or "
        "the folders belong to others; set TMPDIR"
    )


def _taken(instance: str, log: int) -> Place | None:
    folder = Path(tempfile.gettempdir()) / f"kai-es-{log:08x}-{instance}"
    try:
        folder.mkdir(exist_ok=True)
        lock = (folder / "lock").open("a")
    except OSError:
        return None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        lock.close()
        return None
    return Place(instance, folder, lock)
