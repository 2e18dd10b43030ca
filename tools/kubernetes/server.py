"""One etcd and one kube-apiserver with their state in a folder."""

import json
import secrets
import shutil
import signal
import ssl
import subprocess
import urllib.request
from base64 import b64encode
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import yaml

from tools import process
from tools.kubernetes.binaries import binaries

START_S: Final = 90.0
"""4 s on an idle machine."""
REQUEST_S: Final = 5.0

ADMIN: Final = "admin"
USERS: Final = {ADMIN: "system:masters", "nobody": "nobodies", "other": "nobodies"}
"""User -> group. Others than the admin may do what a test's roles give them, else nothing."""

NO_CACHE: Final = "configmaps#0"
"""Kinds without a watch cache: the cache hides compactions, so tests of 410 need one without."""

_ETCD_URL: Final = "etcd.url"

_API_OPTIONS: Final = (
    "--bind-address=127.0.0.1",
    "--advertise-address=127.0.0.1",
    "--endpoint-reconciler-type=none",
    "--service-cluster-ip-range=10.0.0.0/24",
    "--service-account-issuer=https://kubernetes.default.svc.cluster.local",
    "--authorization-mode=RBAC",
    # Without a controller manager nobody makes default service accounts or calls nodes ready.
    # LimitRanger holds up the first pod of a namespace by 90 ms; no test sets limits.
    "--disable-admission-plugins=ServiceAccount,TaintNodesByCondition,LimitRanger",
    # Who names an owner that it blocks the deletion of must be allowed to.
    "--enable-admission-plugins=OwnerReferencesPermissionEnforcement",
    "--allow-privileged=true",
    "--etcd-compaction-interval=0",
)

_EC_KEY: Final = (bytes.fromhex("30310201010420"), bytes.fromhex("a00a06082a8648ce3d030107"))
"""What stands around the 32 bytes of a P-256 key (RFC 5915) without its public half."""


class Kubernetes:
    """A cluster's API; it dies with this process.

    Args:
        home: the folder; its state survives `stop` and `kill`, and the address stays.
        options: more options of kube-apiserver, e.g. `--watch-cache=false`; those that are set
            later count from its next start.
    """

    def __init__(self, home: Path, options: Sequence[str] = ()) -> None:
        self.home = home
        self.log = home / "apiserver.log"
        self.etcd_log = home / "etcd.log"
        self.options = tuple(options)
        self._api_port, self._etcd_port = process.free_port(), process.free_port()
        self._peer_port = process.free_port()
        self._binaries = binaries()
        self._api: subprocess.Popen[bytes] | None = None
        self._etcd: subprocess.Popen[bytes] | None = None
        home.mkdir(parents=True, exist_ok=True)
        tokens = {user: secrets.token_urlsafe(24) for user in USERS}
        for user, token in tokens.items():
            write_kubeconfig(
                self.kubeconfig(user), url=self.url, certificate=self.certificate, token=token
            )
        _write_secret(home / "tokens.csv", _token_file(tokens))
        _write_key(home / "service-accounts.key")
        (home / _ETCD_URL).write_text(self._etcd_url)

    @property
    def address(self) -> str:
        """Path of the admin's kubeconfig."""
        return str(self.kubeconfig())

    @property
    def url(self) -> str:
        """Where the API server listens."""
        return f"https://127.0.0.1:{self._api_port}"

    @property
    def certificate(self) -> Path:
        """What clients must trust."""
        return self.home / "certs" / "apiserver.crt"

    def kubeconfig(self, user: str = ADMIN) -> Path:
        """A file with the credentials of one of `USERS`."""
        return self.home / f"{user}.kubeconfig"

    def start(self) -> None:
        """Start both and wait until they serve."""
        self.start_etcd()
        self.start_api()

    def stop(self) -> None:
        """Stop in order."""
        self.stop_api()
        self.stop_etcd()

    def kill(self) -> None:
        """End both as by kill -9."""
        self.stop_api(signal.SIGKILL)
        self.stop_etcd(signal.SIGKILL)

    def close(self) -> None:
        """End both as by kill -9 and remove all data."""
        self.kill()
        shutil.rmtree(self.home, ignore_errors=True)

    def alive(self) -> bool:
        """Whether both run."""
        return all(p is not None and p.poll() is None for p in (self._api, self._etcd))

    def pids(self) -> tuple[int, int]:
        """Of the API server and of etcd."""
        assert self._api is not None, "not started"
        assert self._etcd is not None, "not started"
        return self._api.pid, self._etcd.pid

    def start_etcd(self) -> None:
        """Start etcd alone and wait until it serves."""
        url, peer = self._etcd_url, f"http://127.0.0.1:{self._peer_port}"
        command = [
            str(self._binaries / "etcd"),
            "--name=default",
            f"--data-dir={self.home / 'etcd'}",
            f"--listen-client-urls={url}",
            f"--advertise-client-urls={url}",
            f"--listen-peer-urls={peer}",
            f"--initial-advertise-peer-urls={peer}",
            f"--initial-cluster=default={peer}",
            "--unsafe-no-fsync",  # throw-away data
            "--log-level=warn",
        ]
        self._etcd = process.start(command, log=self.etcd_log)
        process.wait_ready(self._etcd, self._etcd_serves, log=self.etcd_log, timeout_s=START_S)

    def start_api(self) -> None:
        """Start the API server alone and wait until it serves."""
        key = self.home / "service-accounts.key"
        command = [
            str(self._binaries / "kube-apiserver"),
            *_API_OPTIONS,
            f"--etcd-servers={self._etcd_url}",
            f"--secure-port={self._api_port}",
            f"--cert-dir={self.home / 'certs'}",
            f"--service-account-key-file={key}",
            f"--service-account-signing-key-file={key}",
            f"--token-auth-file={self.home / 'tokens.csv'}",
            f"--watch-cache-sizes={NO_CACHE}",
            *self.options,
        ]
        self._api = process.start(command, log=self.log)
        process.wait_ready(self._api, self._api_serves, log=self.log, timeout_s=START_S)

    def stop_etcd(self, how: signal.Signals = signal.SIGTERM) -> None:
        """End etcd; the API server answers with errors until it is back."""
        if self._etcd is not None:
            process.stop(self._etcd, how)

    def stop_api(self, how: signal.Signals = signal.SIGTERM) -> None:
        """End the API server."""
        if self._api is not None:
            process.stop(self._api, how)

    @property
    def _etcd_url(self) -> str:
        return f"http://127.0.0.1:{self._etcd_port}"

    def _etcd_serves(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self._etcd_url}/health", timeout=REQUEST_S) as answer:
                return b'"true"' in answer.read()
        except OSError:
            return False

    def _api_serves(self) -> bool:
        try:
            tls = ssl.create_default_context(cafile=str(self.certificate))
            ready = f"{self.url}/readyz"
            with urllib.request.urlopen(ready, timeout=REQUEST_S, context=tls) as answer:
                return bool(answer.read() == b"ok")
        except OSError:
            return False


def compact(home: Path) -> None:
    """Make the etcd of a server in `home` forget all history up to now."""
    url = (home / _ETCD_URL).read_text()
    revision = _etcd_call(url, "maintenance/status", {})["header"]["revision"]
    _etcd_call(url, "kv/compaction", {"revision": revision, "physical": True})


def _etcd_call(url: str, path: str, body: object) -> Any:
    request = urllib.request.Request(f"{url}/v3/{path}", data=json.dumps(body).encode())
    with urllib.request.urlopen(request, timeout=REQUEST_S) as answer:
        return json.load(answer)


def write_kubeconfig(path: Path, *, url: str, certificate: Path, token: str) -> None:
    """A kubeconfig of one user."""
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [
            {"name": "test", "cluster": {"server": url, "certificate-authority": str(certificate)}}
        ],
        "users": [{"name": "test", "user": {"token": token}}],
        "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
        "current-context": "test",
    }
    _write_secret(path, yaml.safe_dump(config, sort_keys=False))


def _token_file(tokens: dict[str, str]) -> str:
    return "".join(f'{token},{user},{user},"{USERS[user]}"\n' for user, token in tokens.items())


def _write_key(path: Path) -> None:
    """The key that signs tokens of service accounts."""
    before, after = _EC_KEY
    # The first bit is left out: every such number is below the order of the curve, and none is 0.
    number = bytes([secrets.randbelow(127) + 1]) + secrets.token_bytes(31)
    text = b64encode(before + number + after).decode()
    lines = "\n".join(text[at : at + 64] for at in range(0, len(text), 64))
    _write_secret(path, f"-----BEGIN EC PRIVATE KEY-----\n{lines}\n-----END EC PRIVATE KEY-----\n")


def _write_secret(path: Path, text: str) -> None:
    path.touch(mode=0o600)
    path.write_text(text)
