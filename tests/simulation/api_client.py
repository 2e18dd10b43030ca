"""A Kubernetes API server as the behaviour tests see it: the simulated one or a real one."""

import copy
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import urllib3
from kubernetes import client, config

JSON_PATCH = "application/json-patch+json"
MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_PATCH = "application/strategic-merge-patch+json"
PODS = "/api/v1/namespaces/{ns}/pods"
GROUPS = "/apis/scheduling.run.ai/v2alpha2/namespaces/{ns}/podgroups"


class Api:
    """Raw requests and the typed client on one kubeconfig; `{ns}` in a path is `namespace`.

    compact: makes the server forget its history.
    """

    def __init__(self, kubeconfig: str, namespace: str, compact: Callable[[], None]) -> None:
        self.client: Any = config.new_client_from_config(kubeconfig)
        self.core = client.CoreV1Api(self.client)
        self.namespace = namespace
        self.compact = compact
        configuration = self.client.configuration
        self.host = configuration.host
        self._token = configuration.get_api_key_with_prefix("BearerToken", "authorization")
        certificates = {"ca_certs": configuration.ssl_ca_cert} if configuration.ssl_ca_cert else {}
        self._pool = urllib3.PoolManager(retries=False, **certificates)

    def within(self, namespace: str, compact: Callable[[], None]) -> "Api":
        """The same client for another namespace; only the first is to be closed."""
        other = copy.copy(self)
        other.namespace, other.compact = namespace, compact
        return other

    def close(self) -> None:
        self._pool.clear()
        self.client.rest_client.pool_manager.clear()

    def open(self, method: str, path: str, body: Any = None, **headers: str) -> Any:
        sent = {"Authorization": self._token, "Content-Type": "application/json"}
        sent |= {name.replace("_", "-"): value for name, value in headers.items()}
        return self._pool.request(
            method,
            self.host + path.format(ns=self.namespace),
            body=body if isinstance(body, bytes | None) else json.dumps(body).encode(),
            headers={name: value for name, value in sent.items() if value},
            preload_content=False,
            timeout=urllib3.Timeout(30),
        )

    def call(self, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, Any]:
        """Status and decoded body."""
        response = self.open(method, path, body, **headers)
        text = response.read()
        response.release_conn()
        if "json" in response.headers.get("Content-Type", ""):
            return response.status, json.loads(text)
        return response.status, text.decode()

    def ok(self, method: str, path: str, body: Any = None, **headers: str) -> Any:
        """The decoded body of a request that must succeed."""
        status, answer = self.call(method, path, body, **headers)
        assert 200 <= status < 300, answer
        return answer

    def fails(self, code: int, method: str, path: str, body: Any = None, **headers: str) -> Any:
        """The Status of a request that must fail with `code`."""
        status, answer = self.call(method, path, body, **headers)
        assert status == code, answer
        assert answer["kind"] == "Status"
        assert answer["apiVersion"] == "v1"
        assert answer["status"] == "Failure"
        assert answer["code"] == code
        return answer

    def patch(self, path: str, patch: Any, kind: str = MERGE_PATCH) -> Any:
        return self.ok("PATCH", path, patch, Content_Type=kind)

    def pod(self, name: str, **spec: Any) -> Any:
        """A created pod."""
        return self.ok("POST", PODS, a_pod(name, **spec))

    def bound_pod(self, name: str, node: str = "node-1", **spec: Any) -> Any:
        """A created and bound pod."""
        self.pod(name, **spec)
        self.ok("POST", f"{PODS}/{name}/binding", a_binding(name, node))
        return self.ok("GET", f"{PODS}/{name}")

    @contextmanager
    def watch(self, path: str) -> Iterator[Iterator[Any]]:
        """Events of a watch; `path` may carry a query."""
        response = self.open("GET", path + ("&" if "?" in path else "?") + "watch=true")
        assert response.status == 200, response.read()
        try:
            yield _events(response)
        finally:
            response.close()


def _events(response: Any) -> Iterator[Any]:
    buffer = b""
    for chunk in response.stream(amt=None, decode_content=False):
        buffer += chunk
        *lines, buffer = buffer.split(b"\n")
        for line in lines:
            yield json.loads(line)
    assert not buffer, "the stream ends within a line"


def shown(event: Any) -> tuple[str, str]:
    """Type and object name of a watch event."""
    return event["type"], event["object"]["metadata"].get("name", "")


def a_pod(name: str, *, labels: Any = None, **spec: Any) -> Any:
    container = {"name": "main", "image": "image", "resources": {"limits": {"cpu": "1"}}}
    meta = {"name": name, "labels": labels or {}}
    return {"metadata": meta, "spec": {"containers": [container], **spec}}


def a_binding(name: str, node: str, **meta: Any) -> Any:
    return {"metadata": {"name": name, **meta}, "target": {"kind": "Node", "name": node}}


def a_group(name: str, **meta: Any) -> Any:
    return {
        "apiVersion": "scheduling.run.ai/v2alpha2",
        "kind": "PodGroup",
        "metadata": {"name": name, **meta},
        "spec": {"queue": "team-a", "minMember": 1},
    }
