"""The API server over HTTP: both cluster ports in one connection pool."""

from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from typing import Any, Final, NoReturn
from urllib.parse import quote

import aiohttp
import msgspec

from kai_es.cluster.answers import FOREIGN, Status, raise_answer, raise_foreign
from kai_es.cluster.endpoint import Endpoint
from kai_es.events.requests import Answer
from kai_es.ports.cluster import PODS, Page, Resource, WatchItem
from kai_es.ports.errors import UnavailableError

REQUEST_S: Final = 15.0  # a single object; longer than the API server's own slow writes
LIST_S: Final = 60.0  # a page; the API server's request timeout
PAGE: Final = 500  # objects of a page of a short list, as kubectl asks for
CONNECT_S: Final = 5.0
WATCH_S: Final = 290  # the server ends a watch after this, so that connections spread over servers
CONNECTIONS: Final = 256  # binds and statuses in flight, a watch per kind, single reads
USER_AGENT: Final = "kai-es"
_LINE_MAX: Final = 16 * 2**20  # an event: etcd objects reach 1.5 MiB, escaped several times that
_READ: Final = 2**16

_JSON: Final = "application/json"
_MERGE: Final = "application/merge-patch+json"
_STRATEGIC: Final = "application/strategic-merge-patch+json"


class _ListMeta(msgspec.Struct, rename="camel"):
    resource_version: str = "0"
    continue_: str | None = msgspec.field(default=None, name="continue")


class _List(msgspec.Struct):
    metadata: _ListMeta
    items: list[dict[str, Any]] | None = None


class _Event(msgspec.Struct):
    type: str
    object: dict[str, Any]


_list_decoder: Final = msgspec.json.Decoder(_List)
_event_decoder: Final = msgspec.json.Decoder(_Event)


class ApiServer:
    """`ClusterWatch` and `ClusterWrites` over HTTP.

    Use as an async context manager, or call `close`. Belongs to one event loop.
    """

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> "ApiServer":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close all connections."""
        if self._session is not None:
            await self._session.close()

    # -- ClusterWatch

    async def list_page(self, resource: Resource, *, limit: int, token: str) -> Page:
        """See `ClusterWatch.list_page`."""
        return await self._page(resource, limit=str(limit), **{"continue": token})

    async def _page(self, resource: Resource, namespace: str = "", **params: str) -> Page:
        """A page of a list; parameters that are "" are left out."""
        body = await self._call(
            "GET",
            _path(resource, namespace),
            params={name: value for name, value in params.items() if value},
            timeout_s=LIST_S,
            accept=_accept(resource, "List"),
        )
        try:
            page = _list_decoder.decode(body)
            rv = int(page.metadata.resource_version)
        except (msgspec.DecodeError, ValueError) as exc:
            raise UnavailableError(f"list of {resource.plural}: no list: {exc}") from exc
        return Page(page.items or (), rv, page.metadata.continue_ or "")

    async def watch(
        self, resource: Resource, *, rv: int, silence_s: float
    ) -> AsyncGenerator[Sequence[WatchItem], None]:
        """See `ClusterWatch.watch`."""
        doing = f"watch of {resource.plural}"
        params = {
            "watch": "1",
            "resourceVersion": str(rv),
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(WATCH_S),
        }
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_S, sock_read=silence_s)
        try:
            response = await self._send(
                "GET", _path(resource), params=params, timeout=timeout, accept=_accept(resource)
            )
            async with response:
                if response.status != 200:
                    await self._refused(response, doing)
                async for lines in _lines(response.content):
                    yield [_item(line, doing) for line in lines if line]
        except FOREIGN as exc:
            raise_foreign(exc, doing=doing)

    # -- ClusterWrites

    async def get(self, resource: Resource, namespace: str, name: str) -> dict[str, Any]:
        """See `ClusterWrites.get`."""
        return _object(await self._call("GET", _path(resource, namespace, name)))

    async def list(
        self, resource: Resource, namespace: str = "", *, labels: str = "", fields: str = ""
    ) -> tuple[Sequence[dict[str, Any]], int]:
        """See `ClusterWrites.list`."""
        items: list[dict[str, Any]] = []
        token = ""
        while True:
            page = await self._page(
                resource,
                namespace,
                labelSelector=labels,
                fieldSelector=fields,
                limit=str(PAGE),
                **{"continue": token},
            )
            items += page.items
            token = page.token
            if not token:
                return items, page.rv

    async def create(
        self, resource: Resource, namespace: str, body: Mapping[str, Any]
    ) -> dict[str, Any]:
        """See `ClusterWrites.create`."""
        return _object(await self._call("POST", _path(resource, namespace), body=body))

    async def replace(
        self, resource: Resource, namespace: str, name: str, body: Mapping[str, Any]
    ) -> dict[str, Any]:
        """See `ClusterWrites.replace`."""
        return _object(await self._call("PUT", _path(resource, namespace, name), body=body))

    async def bind(
        self,
        namespace: str,
        pod: str,
        *,
        uid: str,
        rv: int,
        node: str,
        annotations: Mapping[str, str],
    ) -> Answer:
        """See `ClusterWrites.bind`."""
        binding = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {
                "name": pod,
                "namespace": namespace,
                "uid": uid,
                "resourceVersion": str(rv),
                "annotations": annotations,
            },
            "target": {"apiVersion": "v1", "kind": "Node", "name": node},
        }
        path = f"{_path(PODS, namespace, pod)}/binding"
        await self._call("POST", path, body=binding)
        return Answer(status=201)

    async def delete(
        self,
        resource: Resource,
        namespace: str,
        name: str,
        *,
        uid: str,
        rv: int,
        grace_s: int | None = None,
    ) -> Answer:
        """See `ClusterWrites.delete`."""
        options = {"apiVersion": "v1", "kind": "DeleteOptions", **_preconditions(uid, rv, grace_s)}
        await self._call("DELETE", _path(resource, namespace, name), body=options)
        return Answer(status=200)

    async def evict(self, namespace: str, pod: str, *, uid: str, rv: int) -> Answer:
        """See `ClusterWrites.evict`."""
        eviction = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": pod, "namespace": namespace},
            "deleteOptions": _preconditions(uid, rv, None),
        }
        await self._call("POST", f"{_path(PODS, namespace, pod)}/eviction", body=eviction)
        return Answer(status=201)

    async def patch(
        self,
        resource: Resource,
        namespace: str,
        name: str,
        changes: Mapping[str, Any],
        *,
        uid: str,
        rv: int,
        subresource: str = "",
    ) -> dict[str, Any]:
        """See `ClusterWrites.patch`."""
        metadata = {**changes.get("metadata", {}), "uid": uid, "resourceVersion": str(rv)}
        body = {**changes, "metadata": metadata}
        path = _path(resource, namespace, name) + (f"/{subresource}" if subresource else "")
        accept = _accept(resource)
        return _object(
            await self._call("PATCH", path, body=body, content_type=_MERGE, accept=accept)
        )

    async def set_conditions(
        self,
        namespace: str,
        pod: str,
        conditions: Sequence[Mapping[str, Any]],
        *,
        annotations: Mapping[str, str],
        uid: str,
        rv: int,
    ) -> dict[str, Any]:
        """See `ClusterWrites.set_conditions`."""
        metadata = {"uid": uid, "resourceVersion": str(rv), "annotations": annotations}
        body = {"metadata": metadata, "status": {"conditions": conditions}}
        path = f"{_path(PODS, namespace, pod)}/status"
        return _object(
            await self._call("PATCH", path, body=body, content_type=_STRATEGIC, accept=_names())
        )

    # -- transport

    async def _call(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, str] | None = None,
        body: object = None,
        content_type: str = _JSON,
        accept: str = _JSON,
        timeout_s: float = REQUEST_S,
    ) -> bytes:
        doing = f"{method} {path}"
        timeout = aiohttp.ClientTimeout(total=timeout_s, sock_connect=CONNECT_S)
        data = None if body is None else msgspec.json.encode(body)
        try:
            response = await self._send(
                method,
                path,
                params=params,
                timeout=timeout,
                data=data,
                content_type=content_type,
                accept=accept,
            )
            async with response:
                if response.status >= 300:
                    await self._refused(response, doing)
                return await response.read()
        except FOREIGN as exc:
            raise_foreign(exc, doing=doing)

    async def _send(
        self,
        method: str,
        path: str,
        *,
        timeout: aiohttp.ClientTimeout,
        params: Mapping[str, str] | None = None,
        data: bytes | None = None,
        content_type: str = _JSON,
        accept: str = _JSON,
    ) -> aiohttp.ClientResponse:
        endpoint = self._endpoint
        headers = {
            **await endpoint.headers(),
            "Accept": accept,
            "Content-Type": content_type,
        }
        if self._session is None:
            # no compression: it costs both sides more CPU than the network saves in a cluster
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=CONNECTIONS),
                headers={
                    "Accept-Encoding": "identity",
                    "User-Agent": USER_AGENT,
                },
                cookie_jar=aiohttp.DummyCookieJar(),
            )
        return await self._session.request(
            method,
            endpoint.url + path,
            params=params,
            data=data,
            headers=headers,
            timeout=timeout,
            allow_redirects=False,
            ssl=endpoint.tls if endpoint.tls is not None else True,
            server_hostname=endpoint.server_name,
            proxy=endpoint.proxy,
            proxy_headers=endpoint.proxy_headers or None,
        )

    async def _refused(self, response: aiohttp.ClientResponse, doing: str) -> NoReturn:
        if response.status == 401:
            self._endpoint.expire()
        body = await response.content.read(_READ)
        raise_answer(
            response.status, body, doing=doing, retry_after=response.headers.get("Retry-After")
        )


def _accept(resource: Resource, form: str = "") -> str:
    """What to ask for: only metadata, where that is enough."""
    return _names(form) if resource.names_only else _JSON


def _names(form: str = "") -> str:
    """Only metadata, if the server can."""
    return f"{_JSON};as=PartialObjectMetadata{form};g=meta.k8s.io;v=v1,{_JSON}"


def _preconditions(uid: str, rv: int, grace_s: int | None) -> dict[str, Any]:
    options: dict[str, Any] = {"preconditions": {"uid": uid, "resourceVersion": str(rv)}}
    return options if grace_s is None else options | {"gracePeriodSeconds": grace_s}


def _path(resource: Resource, namespace: str = "", name: str = "") -> str:
    root = "/apis" if "/" in resource.api_version else "/api"
    parts = [root, resource.api_version]
    if namespace:
        parts += ["namespaces", quote(namespace, safe="")]
    parts.append(resource.plural)
    if name:
        parts.append(quote(name, safe=""))
    return "/".join(parts)


def _object(body: bytes) -> dict[str, Any]:
    return msgspec.json.decode(body, type=dict[str, Any])


async def _lines(content: aiohttp.StreamReader) -> AsyncIterator[list[bytes]]:
    """The complete lines of a stream, as many at once as have come."""
    rest = b""
    while chunk := await content.readany():
        *lines, rest = (rest + chunk).split(b"\n")
        if len(rest) > _LINE_MAX:
            raise aiohttp.ClientPayloadError(f"an event of more than {_LINE_MAX} bytes")
        if lines:
            yield lines


def _item(line: bytes, doing: str) -> WatchItem:
    event = _event_decoder.decode(line)
    if event.type == "ERROR":  # HTTP 200 followed by one error: how a watch says 410
        status = msgspec.convert(event.object, Status)
        raise_answer(status.code or 500, msgspec.json.encode(status), doing=doing)
    return WatchItem(event.type, event.object)
