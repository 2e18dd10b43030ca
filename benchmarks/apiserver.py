"""Shape `apiserver`: writes per second of the simulated API server, and its memory.

2,000 nodes and 50,000 pods are created through eight connections while four watches read along,
then 10,000 pods are bound and get a status. The server has one core for itself; `peak_mb` is its.
"""

import os
import socket
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import psutil

from kai_es.simulate.cluster import ClusterProcess

N_NODES = 2_000
N_PODS = 50_000
N_BOUND = 10_000
N_CONNECTIONS = 8
N_WATCHES = 4


class Connection:
    """One keep-alive connection, with as little work of its own as possible."""

    def __init__(self, address: tuple[str, int], token: str) -> None:
        self._socket = socket.create_connection(address)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._token = token

    def send(self, method: str, path: str, body: bytes, content_type: str) -> None:
        """Send a request."""
        head = (
            f"{method} {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {self._token}\r\n"
            f"Content-Type: {content_type}\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        self._socket.sendall(head.encode() + body)

    def answer(self) -> int:
        """Read an answer; its status."""
        data = b""
        while (end := data.find(b"\r\n\r\n")) < 0:
            data += self._socket.recv(65_536)
        head = data[:end].lower()
        start = head.index(b"content-length:") + 15
        length = int(head[start : head.find(b"\r\n", start) % (len(head) + 1)])
        missing = end + 4 + length - len(data)
        while missing > 0:
            missing -= len(self._socket.recv(min(missing, 1 << 20)))
        return int(head[9:12])

    def drain(self) -> None:
        """Read until the other end closes."""
        while self._socket.recv(1 << 20):
            pass


def _node(i: int) -> dict[str, Any]:
    amounts = {"cpu": "128", "memory": "1024Gi", "nvidia.com/gpu": "8", "pods": "110"}
    labels = {"kubernetes.io/hostname": f"node-{i:05d}", "nvidia.com/gpu.count": "8"}
    conditions = [{"type": "Ready", "status": "True", "reason": "KubeletReady"}]
    status = {"allocatable": amounts, "capacity": amounts, "conditions": conditions}
    return {"metadata": {"name": f"node-{i:05d}", "labels": labels}, "status": status}


def _pod(i: int) -> dict[str, Any]:
    requests = {"cpu": "1", "memory": "1Gi", "nvidia.com/gpu": "1"}
    container = {
        "name": "main",
        "image": "registry.example/train:1",
        "env": [{"name": f"NAME_{n}", "value": "value"} for n in range(8)],
        "resources": {"requests": requests, "limits": {"nvidia.com/gpu": "1"}},
    }
    meta = {
        "name": f"pod-{i:06d}",
        "labels": {"kai.scheduler/queue": f"team-{i % 4}", "app": "train"},
        "annotations": {"pod-group-name": f"group-{i:06d}"},
    }
    return {"metadata": meta, "spec": {"schedulerName": "kai-scheduler", "containers": [container]}}


Request = tuple[str, str, bytes, str]
PODS = "/api/v1/namespaces/default/pods"
JSON = "application/json"


def _creates() -> Iterator[Request]:
    for i in range(N_NODES):
        yield "POST", "/api/v1/nodes", msgspec.json.encode(_node(i)), JSON
    for i in range(N_PODS):
        yield "POST", PODS, msgspec.json.encode(_pod(i)), JSON


def _binds() -> Iterator[Request]:
    for i in range(N_BOUND):
        name = f"pod-{i:06d}"
        binding = {"metadata": {"name": name}, "target": {"name": f"node-{i % N_NODES:05d}"}}
        yield "POST", f"{PODS}/{name}/binding", msgspec.json.encode(binding), JSON


def _statuses() -> Iterator[Request]:
    patch = {"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}}
    body = msgspec.json.encode(patch)
    for i in range(N_BOUND):
        path = f"{PODS}/pod-{i:06d}/status"
        yield "PATCH", path, body, "application/strategic-merge-patch+json"


def _drive(connections: list[Connection], requests: Iterable[Request]) -> int:
    """Send all requests, one at a time per connection; how many there were."""
    lock, shared, counts = threading.Lock(), iter(requests), [0] * len(connections)

    def work(number: int) -> None:
        connection = connections[number]
        while True:
            with lock:
                request = next(shared, None)
            if request is None:
                return
            connection.send(*request)
            status = connection.answer()
            assert 200 <= status < 300, (status, request[:2])
            counts[number] += 1

    threads = [threading.Thread(target=work, args=(n,)) for n in range(len(connections))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(counts)


def _follow(address: tuple[str, int], token: str) -> None:
    for n in range(N_WATCHES):
        watch = Connection(address, token)
        kind = "nodes" if n == 0 else "pods"
        watch.send("GET", f"/api/v1/{kind}?watch=true&resourceVersion=1", b"", JSON)
        threading.Thread(target=watch.drain, daemon=True).start()


def run() -> dict[str, object]:
    """Rates over all three phases, CPU of the server per write, and a list of everything."""
    with tempfile.TemporaryDirectory() as directory, ClusterProcess(Path(directory)) as cluster:
        server = psutil.Process(cluster.pid)
        cores = sorted(os.sched_getaffinity(0))
        server.cpu_affinity(cores[:1])
        host, _, port = cluster.url.removeprefix("http://").partition(":")
        address = (host, int(port))
        _follow(address, cluster.token)
        connections = [Connection(address, cluster.token) for _ in range(N_CONNECTIONS)]
        out: dict[str, object] = {}
        writes, began, cpu = 0, time.perf_counter(), sum(server.cpu_times()[:2])
        for phase, requests in (
            ("create", _creates()),
            ("bind", _binds()),
            ("status", _statuses()),
        ):
            start = time.perf_counter()
            n = _drive(connections, requests)
            out[f"{phase}_per_s"] = round(n / (time.perf_counter() - start))
            writes += n
        took = time.perf_counter() - began
        cpu = sum(server.cpu_times()[:2]) - cpu
        start = time.perf_counter()
        connections[0].send("GET", "/api/v1/pods", b"", JSON)
        assert connections[0].answer() == 200
        return {
            "wall_ms": round(took * 1000),
            "per_s": round(writes / took),
            "cpu_us_per_write": round(cpu / writes * 1e6),
            **out,
            "list_50k_ms": round((time.perf_counter() - start) * 1000),
            "peak_mb": _peak_mb(cluster.pid),
            "result": f"{writes} writes",
        }


def _peak_mb(pid: int) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) // 1024
    return 0
