"""The cluster ports on a simulated API server of this process: no sockets, no bytes on a wire.

For simulations under virtual time. Errors, faults and the access ledger are those of the way over
HTTP (`kai_es.cluster.api`); one suite of tests holds both to the ports.
"""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from typing import Any, Final

import msgspec

from kai_es.cluster.answers import raise_answer
from kai_es.events.requests import Answer as Outcome
from kai_es.ports.cluster import PODS, Page, Resource, WatchItem
from kai_es.ports.errors import UnavailableError
from kai_es.simulate.answers import (
    MERGE_PATCH,
    STRATEGIC_PATCH,
    Answer,
    ApiError,
    no_such_path,
    no_such_resource,
)
from kai_es.simulate.api import Api, Call, CutError
from kai_es.simulate.verbs import Target

WATCH_S: Final = 290
"""As over HTTP."""


class LocalCluster:
    """`ClusterWatch` and `ClusterWrites` on an `Api`.

    client: what the access ledger and the faults know the caller by.
    """

    def __init__(self, api: Api, client: str = "kai-es") -> None:
        self._api = api
        self._client = client

    # -- ClusterWatch

    async def list_page(self, resource: Resource, *, limit: int, token: str) -> Page:
        """See `ClusterWatch.list_page`."""
        query = {"limit": str(limit), **({"continue": token} if token else {})}
        answer = await self._call("GET", resource, query=query)
        listed = msgspec.json.decode(answer.body)
        meta = listed["metadata"]
        return Page(listed["items"], int(meta["resourceVersion"]), meta.get("continue", ""))

    async def watch(
        self, resource: Resource, *, rv: int, silence_s: float
    ) -> AsyncGenerator[Sequence[WatchItem], None]:
        """See `ClusterWatch.watch`."""
        query = {
            "watch": "1",
            "resourceVersion": str(rv),
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(WATCH_S),
        }
        doing = f"watch of {resource.plural}"
        call = Call("GET", self._target(resource, doing), query, client=self._client)
        lines: asyncio.Queue[bytes | None] = asyncio.Queue(maxsize=1)
        streaming = asyncio.create_task(self._stream(call, lines))
        try:
            while True:
                try:
                    async with asyncio.timeout(silence_s):
                        chunk = await lines.get()
                except TimeoutError as error:
                    raise UnavailableError(f"{doing}: silent for {silence_s} s") from error
                if chunk is None:
                    break
                yield [_item(line, doing) for line in chunk.splitlines()]
            await _outcome(streaming, doing)
        finally:
            streaming.cancel()

    async def _stream(self, call: Call, lines: asyncio.Queue[bytes | None]) -> None:
        """Put what the watch says into the queue, and None at its end, whatever it is."""
        broken: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        async def begin() -> Callable[[bytes], Awaitable[None]]:
            return lines.put

        def cut() -> None:
            if not broken.done():
                broken.set_result(None)

        watching = asyncio.create_task(self._api.watch(call, begin, cut))
        try:
            await asyncio.wait([watching, broken], return_when=asyncio.FIRST_COMPLETED)
            if broken.done():
                raise CutError
            await watching
        finally:
            watching.cancel()
            with contextlib.suppress(asyncio.CancelledError, ApiError, CutError):
                await watching
            await lines.put(None)

    # -- ClusterWrites

    async def get(self, resource: Resource, namespace: str, name: str) -> dict[str, Any]:
        """See `ClusterWrites.get`."""
        return _object(await self._call("GET", resource, namespace, name))

    async def list(
        self, resource: Resource, namespace: str = "", *, labels: str = "", fields: str = ""
    ) -> tuple[Sequence[dict[str, Any]], int]:
        """See `ClusterWrites.list`."""
        query = {"labelSelector": labels, "fieldSelector": fields}
        answer = await self._call("GET", resource, namespace, query=query)
        listed = msgspec.json.decode(answer.body)
        return listed["items"], int(listed["metadata"]["resourceVersion"])

    async def create(
        self, resource: Resource, namespace: str, body: Mapping[str, Any]
    ) -> dict[str, Any]:
        """See `ClusterWrites.create`."""
        return _object(await self._call("POST", resource, namespace, body=body))

    async def replace(
        self, resource: Resource, namespace: str, name: str, body: Mapping[str, Any]
    ) -> dict[str, Any]:
        """See `ClusterWrites.replace`."""
        return _object(await self._call("PUT", resource, namespace, name, body=body))

    async def bind(
        self,
        namespace: str,
        pod: str,
        *,
        uid: str,
        rv: int,
        node: str,
        annotations: Mapping[str, str],
    ) -> Outcome:
        """See `ClusterWrites.bind`."""
        meta = {"name": pod, "uid": uid, "resourceVersion": str(rv), "annotations": annotations}
        binding = {"metadata": meta, "target": {"kind": "Node", "name": node}}
        await self._call("POST", PODS, namespace, pod, subresource="binding", body=binding)
        return Outcome(status=201)

    async def delete(
        self,
        resource: Resource,
        namespace: str,
        name: str,
        *,
        uid: str,
        rv: int,
        grace_s: int | None = None,
    ) -> Outcome:
        """See `ClusterWrites.delete`."""
        options = {
            "preconditions": {"uid": uid, "resourceVersion": str(rv)},
            "gracePeriodSeconds": grace_s,
        }
        await self._call("DELETE", resource, namespace, name, body=options)
        return Outcome(status=200)

    async def evict(self, namespace: str, pod: str, *, uid: str, rv: int) -> Outcome:
        """See `ClusterWrites.evict`."""
        options = {"preconditions": {"uid": uid, "resourceVersion": str(rv)}}
        eviction = {"metadata": {"name": pod, "namespace": namespace}, "deleteOptions": options}
        await self._call("POST", PODS, namespace, pod, subresource="eviction", body=eviction)
        return Outcome(status=201)

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
        meta = {**changes.get("metadata", {}), "uid": uid, "resourceVersion": str(rv)}
        body = {**changes, "metadata": meta}
        return _object(
            await self._call("PATCH", resource, namespace, name, subresource=subresource, body=body)
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
        answer = await self._call(
            "PATCH",
            PODS,
            namespace,
            pod,
            subresource="status",
            body=body,
            content_type=STRATEGIC_PATCH,
        )
        return _object(answer)

    # -- the call

    async def _call(
        self,
        method: str,
        resource: Resource,
        namespace: str = "",
        name: str = "",
        *,
        subresource: str = "",
        query: Mapping[str, str] | None = None,
        body: object = None,
        content_type: str = "",
    ) -> Answer:
        doing = f"{method} {resource.plural} {namespace}/{name}"
        kind = self._target(resource, doing).kind
        if subresource and not kind.serves(subresource):
            absent = no_such_resource().answer()
            raise_answer(absent.status, absent.body, doing=doing)
        target = Target(kind, namespace if kind.namespaced else "", name, subresource)
        data = b"" if body is None else msgspec.json.encode(body)
        content_type = content_type or (MERGE_PATCH if method == "PATCH" else "application/json")
        call = Call(method, target, query or {}, data, content_type, self._client)
        try:
            answer = await self._api.answer(call)
        except CutError as error:
            raise UnavailableError(f"{doing}: the connection was cut") from error
        if answer.status >= 300:
            retry_after = dict(answer.headers).get("Retry-After")
            raise_answer(answer.status, answer.body, doing=doing, retry_after=retry_after)
        return answer

    def _target(self, resource: Resource, doing: str) -> Target:
        """The collection of a resource, status included: `pods/status` is none."""
        group, _, version = resource.api_version.rpartition("/")
        kind = self._api.table.find(group, version, resource.plural)
        if kind is None:
            absent = no_such_path()
            raise_answer(absent.status, absent.body, doing=doing)
        return Target(kind)


async def _outcome(streaming: "asyncio.Task[None]", doing: str) -> None:
    """Nothing, or why the watch was refused or broke."""
    try:
        await streaming
    except ApiError as error:
        answer = error.answer()
        raise_answer(answer.status, answer.body, doing=doing)
    except CutError as error:
        raise UnavailableError(f"{doing}: the connection was cut") from error


def _object(answer: Answer) -> dict[str, Any]:
    return msgspec.json.decode(answer.body, type=dict[str, Any])


def _item(line: bytes, doing: str) -> WatchItem:
    event = msgspec.json.decode(line)
    if event["type"] == "ERROR":
        status = event["object"]
        raise_answer(status["code"], msgspec.json.encode(status), doing=doing)
    return WatchItem(event["type"], event["object"])
