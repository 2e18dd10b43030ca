"""Where the API server is and who we are: the `kubernetes` package reads it, we connect.

That package resolves kubeconfig files, exec plugins, token refresh and certificates. Requests then
go through aiohttp on the event loop, which takes a third of the CPU of its urllib3 transport in
threads (0.16 against 0.5 to 0.7 ms for a small POST, 32 in flight).
"""

import asyncio
import os
import ssl
from pathlib import Path
from time import monotonic
from typing import Any, Final, cast

import yaml
from kubernetes import config as kube_config
from kubernetes.client import Configuration
from kubernetes.client.rest import is_socks_proxy_url, should_bypass_proxies

from kai_es.ports.errors import ConfigError, UnavailableError

# the package walks the file's YAML as it finds it, so a wrong form ends in any of these
_UNUSABLE: Final = (
    kube_config.ConfigException,
    yaml.YAMLError,
    OSError,
    ValueError,
    TypeError,
    LookupError,
    AttributeError,
)
REFRESH_S: Final = 10.0  # how often credentials are looked at; in-cluster tokens change hourly


class Endpoint:
    """An API server with credentials.

    url:         `https://host:port[/path]`, no slash at the end.
    tls:         context, None for plain HTTP.
    server_name: name that the certificate must have, None = the host's.
    proxy:       HTTP proxy, None = direct.
    """

    def __init__(self, settings: Configuration) -> None:
        self.url: str = settings.host.rstrip("/")
        self.tls = _tls(settings) if self.url.startswith("https:") else None
        self.server_name: str | None = settings.tls_server_name or None
        if isinstance(settings.assert_hostname, str):
            self.server_name = settings.assert_hostname
        self.proxy: str | None = _proxy(settings)
        self.proxy_headers: dict[str, str] = dict(settings.proxy_headers or {})
        self._settings = settings
        self._headers: dict[str, str] = {}
        self._looked_s = float("-inf")
        self._lock = asyncio.Lock()

    async def headers(self) -> dict[str, str]:
        """Authentication headers; looked up in a thread, a plugin may take its time.

        Raises:
            UnavailableError: no credentials to be had now.
        """
        if monotonic() - self._looked_s < REFRESH_S:
            return self._headers
        async with self._lock:
            if monotonic() - self._looked_s >= REFRESH_S:
                self._headers = await asyncio.to_thread(self._look)
                self._looked_s = monotonic()
        return self._headers

    def expire(self) -> None:
        """The server did not take the credentials: look again before the next request."""
        self._looked_s = float("-inf")

    def _look(self) -> dict[str, str]:
        try:
            settings = cast("dict[str, dict[str, Any]]", self._settings.auth_settings())
        except (kube_config.ConfigException, OSError, ValueError) as exc:
            raise UnavailableError(f"no credentials for {self.url}: {exc}") from exc
        return {
            str(one["key"]): str(one["value"])
            for one in settings.values()
            if one["in"] == "header" and one["value"]
        }


def from_kubeconfig(path: str, *, context: str | None = None) -> Endpoint:
    """The API server of a kubeconfig file, or of several, as `KUBECONFIG` lists them.

    Raises:
        ConfigError: the file, the context or what it refers to cannot be used.
    """
    _check_files(path)
    settings = Configuration()
    try:
        kube_config.load_kube_config(  # type: ignore[no-untyped-call]
            config_file=path, context=context, client_configuration=settings
        )
        return Endpoint(settings)
    except _UNUSABLE as exc:
        raise ConfigError(
            f"kubeconfig {path}: {exc}; check the file with kubectl --kubeconfig {path} get nodes"
        ) from exc


def _check_files(path: str) -> None:
    """What the package would say in words of Python, or not at all."""
    found = [file for one in path.split(os.pathsep) if (file := Path(one).expanduser()).exists()]
    if not found:
        raise ConfigError(f"kubeconfig {path}: no such file; give --kubeconfig one that is there")
    for file in found:
        if file.is_dir():
            raise ConfigError(f"kubeconfig {file}: it is a folder; give --kubeconfig a file in it")
        if not file.is_file():
            continue  # a pipe is read once
        try:
            content = yaml.safe_load(file.read_text())
        except OSError as exc:
            raise ConfigError(f"kubeconfig {file}: {exc.strerror}") from exc
        except (yaml.YAMLError, ValueError):  # text that is none is a ValueError
            content = None
        if not isinstance(content, dict):
            raise ConfigError(
                f"kubeconfig {file}: it is no kubeconfig; want YAML with clusters, users and "
                "contexts, as `kubectl config view --raw` prints it"
            )
        for part in ("clusters", "users", "contexts"):
            if not isinstance(content.get(part) or [], list):
                raise ConfigError(f"kubeconfig {file}: {part} is no list, so it is no kubeconfig")


def in_cluster() -> Endpoint:
    """The API server of the pod that we run in.

    Raises:
        ConfigError: this is no pod, or it has no service account token.
    """
    settings = Configuration()
    try:
        kube_config.load_incluster_config(  # type: ignore[no-untyped-call]
            client_configuration=settings
        )
        return Endpoint(settings)
    except (kube_config.ConfigException, OSError, ValueError) as exc:
        raise ConfigError(f"not in a cluster ({exc}): give --kubeconfig FILE") from exc


def found(kubeconfig: str | None) -> Endpoint:
    """The given kubeconfig; else in-cluster; else the user's default file.

    Raises:
        ConfigError: none of them works.
    """
    if kubeconfig:
        return from_kubeconfig(kubeconfig)
    if Path("/var/run/secrets/kubernetes.io/serviceaccount/token").exists():
        return in_cluster()
    return from_kubeconfig(str(kube_config.KUBE_CONFIG_DEFAULT_LOCATION))


def _tls(settings: Configuration) -> ssl.SSLContext:
    context = ssl.create_default_context(
        cafile=settings.ssl_ca_cert or None, cadata=settings.ca_cert_data or None
    )
    if settings.cert_file:
        context.load_cert_chain(settings.cert_file, settings.key_file)
    if not settings.verify_ssl or settings.assert_hostname is False:
        context.check_hostname = False
    if not settings.verify_ssl:
        context.verify_mode = ssl.CERT_NONE
    return context


def _proxy(settings: Configuration) -> str | None:
    proxy: str | None = settings.proxy
    if not proxy or should_bypass_proxies(settings.host, settings.no_proxy or ""):
        return None
    if is_socks_proxy_url(proxy):  # type: ignore[no-untyped-call]
        raise ConfigError(f"proxy {proxy}: SOCKS is not supported, use an HTTP proxy")
    return proxy
