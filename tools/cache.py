"""Things that are fetched or built once per version, outside the checkout."""

import fcntl
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path


def cache_dir() -> Path:
    """`$XDG_CACHE_HOME/kai-es`, by default `~/.cache/kai-es`; made if missing."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    path = Path(base) / "kai-es"
    path.mkdir(parents=True, exist_ok=True)
    return path


def cached(name: str, make: Callable[[Path], None]) -> Path:
    """The folder `name` of the cache, made by `make(folder)` if it is not there yet.

    It is there whole or not at all, also when several runs ask at once or one is killed.
    """
    path = cache_dir() / name
    if path.exists():
        return path
    with locked(cache_dir() / f"{name}.lock"):
        if not path.exists():
            partial = Path(tempfile.mkdtemp(prefix=f"{name}.", dir=cache_dir()))
            try:
                make(partial)
                partial.rename(path)
            finally:
                shutil.rmtree(partial, ignore_errors=True)
    return path


@contextmanager
def locked(path: Path, *, shared: bool = False) -> Iterator[None]:
    """Hold a lock between processes, alone or with all who share it; it ends with its holder."""
    with path.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_SH if shared else fcntl.LOCK_EX)
        yield
