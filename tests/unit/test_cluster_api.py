"""The HTTP adapter against a scripted server: what goes out, what comes back."""

import asyncio
import inspect
import json
import ssl

import aiohttp
import pytest
import yaml
from aiohttp import web
from aiohttp.test_utils import TestServer
from kubernetes.client import Configuration

from kai_es.cluster import answers
from kai_es.cluster.api import ApiServer
from kai_es.cluster.endpoint import Endpoint, found, from_kubeconfig
from kai_es.ports.cluster import PODS, Resource
from kai_es.ports.errors import (
    ConfigError,
    ConflictError,
    DeniedError,
    GoneError,
    RefusedError,
    UnavailableError,
)

QUEUES = Resource("Queue", "scheduling.run.ai/v2", "queues")


class Script:
    """A server that notes requests and gives the prepared answers in turn."""

    def __init__(self):
        self.answers = []
        self.seen = []

    async def handle(self, request):
        self.seen.append((request, await request.text()))
        answer = self.answers.pop(0)
        if callable(answer):
            return await answer(request)
        status, body, *headers = answer
        text = body if isinstance(body, str) else json.dumps(body)
        return web.Response(status=status, text=text, headers=headers[0] if headers else None)


@pytest.fixture
async def script():
    return Script()


@pytest.fixture
async def api(script):
    app = web.Application()
    app.router.add_route("*", "/{tail:.*}", script.handle)
    async with TestServer(app) as server:
        settings = Configuration(host=str(server.make_url("")))
        settings.api_key = {"authorization": "Bearer t0"}
        async with ApiServer(Endpoint(settings)) as api:
            yield api


async def collect(watch):
    return [item async for batch in watch for item in batch]


def streaming(*chunks, then=None):
    async def answer(request):
        response = web.StreamResponse()
        await response.prepare(request)
        for chunk in chunks:
            await response.write(chunk)
            await asyncio.sleep(0)
        if then:
            await then(request)
        return response

    return answer


async def test_list_is_paged_and_consistent(api, script):
    script.answers = [
        (200, {"metadata": {"resourceVersion": "7", "continue": "c1"}, "items": [{"a": 1}]}),
        (200, {"metadata": {"resourceVersion": "7"}, "items": None}),
    ]
    page = await api.list_page(QUEUES, limit=500, token="")
    assert page == ([{"a": 1}], 7, "c1")
    assert await api.list_page(QUEUES, limit=500, token="c1") == ((), 7, "")
    first, second = (request for request, _ in script.seen)
    assert first.path == "/apis/scheduling.run.ai/v2/queues"
    assert dict(first.query) == {"limit": "500"}
    assert second.query["continue"] == "c1"
    assert first.headers["Authorization"] == "Bearer t0"


async def test_watch_joins_lines_and_ends_with_the_server(api, script):
    script.answers = [
        streaming(
            b'{"type":"ADDED","object":{"n":1}}\n{"type":"MODI',
            b'FIED","object":{"n":2}}\n\n',
            b'{"type":"BOOKMARK","object":{}}\n',
        )
    ]
    items = await collect(api.watch(PODS, rv=5, silence_s=5))
    assert [item.type for item in items] == ["ADDED", "MODIFIED", "BOOKMARK"]
    assert items[1].object == {"n": 2}
    query = script.seen[0][0].query
    assert (query["resourceVersion"], query["allowWatchBookmarks"]) == ("5", "true")


async def test_watch_410_in_both_forms(api, script):
    gone = {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"}
    error = json.dumps({"type": "ERROR", "object": gone}).encode() + b"\n"
    script.answers = [(410, gone), streaming(error)]
    for _ in range(2):
        with pytest.raises(GoneError, match="too old") as caught:
            await collect(api.watch(PODS, rv=5, silence_s=5))
        assert caught.value.status == 410


async def test_silent_or_torn_watch_is_unavailable(api, script):
    async def silence(request):
        await asyncio.sleep(1)

    async def tear(request):
        request.transport.abort()

    script.answers = [
        streaming(b'{"type":"BOOKMARK","object":{}}\n', then=silence),
        streaming(b'{"type":', then=tear),
        streaming(b"<html>\n"),
        streaming(b'{"type":"ERROR","object":{"code":500}}\n'),
    ]
    for _ in range(4):
        with pytest.raises(UnavailableError, match="watch of pods"):
            await collect(api.watch(PODS, rv=5, silence_s=0.05))


async def test_cancelled_watch_closes_the_connection(api, script):
    closed = asyncio.Event()

    async def until_closed(request):
        try:
            await asyncio.sleep(5)
        finally:
            closed.set()

    script.answers = [streaming(b'{"type":"BOOKMARK","object":{}}\n', then=until_closed)]
    watch = api.watch(PODS, rv=5, silence_s=5)
    await anext(watch)
    await watch.aclose()
    await asyncio.wait_for(closed.wait(), 2)


async def test_bind_names_pod_uid_version_node_and_annotations(api, script):
    script.answers = [(201, {})]
    answer = await api.bind("ns", "p", uid="u", rv=9, node="n1", annotations={"a": "b"})
    request, body = script.seen[0]
    assert answer.status == 201
    assert (request.method, request.path) == ("POST", "/api/v1/namespaces/ns/pods/p/binding")
    body = json.loads(body)
    assert body["target"]["name"] == "n1"
    assert body["metadata"] == {
        "name": "p",
        "namespace": "ns",
        "uid": "u",
        "resourceVersion": "9",
        "annotations": {"a": "b"},
    }


async def test_delete_and_patch_carry_preconditions(api, script):
    script.answers = [(200, {}), (200, {"x": 1})]
    await api.delete(PODS, "ns", "p", uid="u", rv=9)
    changes = {"metadata": {"annotations": {"k": "v"}}}
    assert await api.patch(PODS, "ns", "p", changes, uid="u", rv=9) == {"x": 1}
    (_, deleted), (request, patched) = script.seen
    assert json.loads(deleted)["preconditions"] == {"uid": "u", "resourceVersion": "9"}
    assert request.headers["Content-Type"] == "application/merge-patch+json"
    assert json.loads(patched) == {
        "metadata": {"annotations": {"k": "v"}, "uid": "u", "resourceVersion": "9"}
    }


@pytest.mark.parametrize(
    ("status", "error"),
    [
        (400, RefusedError),
        (401, UnavailableError),
        (403, RefusedError),
        (404, GoneError),
        (409, ConflictError),
        (422, RefusedError),
        (429, UnavailableError),
        (500, UnavailableError),
        (503, UnavailableError),
        (504, UnavailableError),
        (302, RefusedError),
    ],
)
async def test_answers_become_errors_with_what_the_server_said(api, script, status, error):
    said = {"kind": "Status", "reason": "Because", "message": "of this"}
    script.answers = [(status, said, {"Retry-After": "3"})]
    with pytest.raises(error, match=r"GET /api/v1/namespaces/a%2Fb/pods/p.*of this") as caught:
        await api.get(PODS, "a/b", "p")
    assert (caught.value.status, caught.value.reason) == (status, "Because")
    if error is UnavailableError:
        assert caught.value.retry_after_s == 3


async def test_denied_names_the_rule_to_add(api, script):
    said = 'cannot create resource "pods/binding" in API group "" in the namespace "ns"'
    body = {"kind": "Status", "reason": "Forbidden", "message": f'User "x" {said}', "code": 403}
    script.answers = [(403, body)]
    with pytest.raises(DeniedError) as caught:
        await api.get(PODS, "ns", "a")
    rule = '{apiGroups: [""], resources: [pods/binding], verbs: [create]}'
    assert caught.value.message.endswith(rule)


async def test_unauthorized_looks_up_credentials_again(api, script):
    script.answers = [(401, {}), (200, {})]
    with pytest.raises(UnavailableError):
        await api.get(PODS, "n", "p")
    api._endpoint._settings.api_key = {"authorization": "Bearer t1"}
    await api.get(PODS, "n", "p")
    assert script.seen[1][0].headers["Authorization"] == "Bearer t1"


async def test_nobody_listening_is_unavailable():
    async with ApiServer(Endpoint(Configuration(host="http://127.0.0.1:9"))) as api:
        with pytest.raises(UnavailableError, match="GET /api/v1/namespaces/n/pods/p"):
            await api.get(PODS, "n", "p")


def test_every_transport_exception_is_mapped():
    raised = [
        cls
        for _, cls in inspect.getmembers(aiohttp.client_exceptions, inspect.isclass)
        if issubclass(cls, Exception) and not cls.__name__.startswith("WS")  # web sockets
    ]
    raised += [ssl.SSLError, ConnectionResetError, TimeoutError]
    assert len(raised) > 20
    for cls in raised:
        assert issubclass(cls, answers.FOREIGN), cls


@pytest.mark.parametrize(
    "content", [None, "", "{", "apiVersion: v1\nkind: Config\n", "clusters: 5\n"]
)
def test_unusable_kubeconfig_names_the_file(tmp_path, content):
    path = tmp_path / "config"
    if content is not None:
        path.write_text(content)
    with pytest.raises(ConfigError, match=str(path)):
        from_kubeconfig(str(path))


def test_kubeconfig_that_is_not_there_is_told_so(tmp_path):
    with pytest.raises(ConfigError, match=r"nofile: no such file; give --kubeconfig"):
        from_kubeconfig(str(tmp_path / "nofile"))


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (b"hello", "it is no kubeconfig; want YAML with clusters, users and contexts"),
        (b"", "it is no kubeconfig; want YAML"),
        (b"- a", "it is no kubeconfig; want YAML"),
        (b"{", "it is no kubeconfig; want YAML"),
        (bytes(range(256)), "it is no kubeconfig; want YAML"),
        (b"users: {u: 1}", "users is no list, so it is no kubeconfig"),
        (None, "it is a folder; give --kubeconfig a file in it"),
    ],
)
def test_a_kubeconfig_that_is_something_else_is_said_to_be_so(tmp_path, content, text):
    path = tmp_path / "config"
    if content is None:
        path.mkdir()
    else:
        path.write_bytes(content)
    with pytest.raises(ConfigError, match=f"^kubeconfig {path}: {text}"):
        from_kubeconfig(f"{tmp_path / 'nofile'}:{path}")


def test_files_that_are_listed_count_together(tmp_path):
    parts = {
        "clusters": [{"name": "k", "cluster": {"server": "http://127.0.0.1:1"}}],
        "users": [{"name": "u", "user": {"token": "secret"}}],
        "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
    }
    paths = [tmp_path / "nofile"]
    for name, part in parts.items():
        paths.append(tmp_path / name)
        paths[-1].write_text(yaml.safe_dump({"current-context": "c", name: part}))
    endpoint = from_kubeconfig(":".join(map(str, paths)))
    assert endpoint.url == "http://127.0.0.1:1"


def test_kubeconfig_gives_address_and_token(tmp_path):
    path = tmp_path / "config"
    path.write_text(
        yaml.safe_dump(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "current-context": "c",
                "clusters": [{"name": "k", "cluster": {"server": "http://127.0.0.1:1/x/"}}],
                "users": [{"name": "u", "user": {"token": "secret"}}],
                "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
            }
        )
    )
    endpoint = found(str(path))
    assert (endpoint.url, endpoint.tls) == ("http://127.0.0.1:1/x", None)
    assert asyncio.run(endpoint.headers()) == {"authorization": "Bearer secret"}
