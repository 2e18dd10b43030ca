"""etcd and kube-apiserver, built by Go from its module proxy, once per version."""

import hashlib
import os
import re
import shutil
import sys
import time
from pathlib import Path
from typing import Final

from tools import process
from tools.cache import cached, locked

HOME: Final = Path(__file__).parent

_SOURCES: Final = ("go.mod", "go.sum", "etcd/main.go")
_LIBRARY: Final = "k8s.io/component-base/version"
_COMMANDS: Final = {"etcd": "./etcd", "kube-apiserver": "k8s.io/kubernetes/cmd/kube-apiserver"}

BUILD_S: Final = 1800.0
"""8 minutes on two busy cores; the first download comes on top."""
TOLD_S: Final = 15.0


def _pinned(module: str) -> str:
    found = re.search(rf"\s{re.escape(module)} v(\S+)", (HOME / "go.mod").read_text())
    assert found, f"go.mod does not name {module}"
    return found[1]


VERSION: Final = _pinned("k8s.io/kubernetes")


def binaries() -> Path:
    """The folder with `etcd` and `kube-apiserver`: the user's own, or built once per version.

    Raises:
        RuntimeError: `KUBEBUILDER_ASSETS` lacks one, there is no Go, or the build fails.
    """
    own = os.environ.get("KUBEBUILDER_ASSETS")
    if own:
        missing = [name for name in _COMMANDS if not (Path(own) / name).is_file()]
        if missing:
            raise RuntimeError(f"KUBEBUILDER_ASSETS={own} has no {' and no '.join(missing)}")
        return Path(own)
    return cached(f"kubernetes-{VERSION}-{_digest()}", _build)


def _digest() -> str:
    content = b"".join((HOME / name).read_bytes() for name in _SOURCES)
    return hashlib.sha256(content + " ".join(_flags()).encode()).hexdigest()[:12]


def _flags() -> list[str]:
    # Unstamped, the server reports a version that no client can parse.
    major, minor, _ = VERSION.split(".", 2)
    stamps = {"gitVersion": f"v{VERSION}", "gitMajor": major, "gitMinor": minor}
    stamp = " ".join(f"-X {_LIBRARY}.{name}={value}" for name, value in stamps.items())
    return ["-mod=readonly", "-trimpath", "-buildvcs=false", f"-ldflags=-s -w {stamp}"]


def _build(folder: Path) -> None:
    go = shutil.which("go")
    if go is None:
        raise RuntimeError(
            "the tests need `go` (1.26 or later) on the PATH to build etcd and kube-apiserver "
            f"{VERSION}; or set KUBEBUILDER_ASSETS to a folder with both"
        )
    _tell(
        f"building etcd and kube-apiserver {VERSION}: once, 4 to 8 minutes on two cores "
        "(KUBEBUILDER_ASSETS=FOLDER uses yours)"
    )
    start = time.monotonic()
    # Runs under other caches of this package's user would compile the same at the same time.
    with locked(folder.parent / "go-build.lock"):
        for name, package in _COMMANDS.items():
            command = [go, "build", "-v", *_flags(), "-o", str(folder / name), package]
            _run(command, log=folder / "build.log", start=start)
    (folder / "build.log").unlink()
    _tell(f"built in {time.monotonic() - start:.0f} s")


def _run(command: list[str], *, log: Path, start: float) -> None:
    """Run a build, telling every `TOLD_S` how far it is."""
    env = {**os.environ, "CGO_ENABLED": "0"}
    running = process.start(command, log=log, env=env, cwd=HOME)
    told = time.monotonic()
    while running.poll() is None:
        time.sleep(0.1)
        now = time.monotonic()
        if now - start > BUILD_S:
            process.stop(running)
            raise RuntimeError(f"{command[0]} build is not done after {BUILD_S:.0f} s\n{_end(log)}")
        if now - told > TOLD_S:
            told = now
            lines = log.read_text(errors="replace").splitlines()
            n_fetched = sum(line.startswith("go: downloading") for line in lines)
            _tell(
                f"{now - start:.0f} s: {n_fetched} modules fetched, "
                f"{len(lines) - n_fetched} packages compiled"
            )
    if running.returncode:
        raise RuntimeError(f"{' '.join(command)} failed:\n{_end(log)}")


def _end(log: Path) -> str:
    return log.read_text(errors="replace")[-3000:]


def _tell(text: str) -> None:
    print(f"kubernetes: {text}", file=sys.stderr, flush=True)
