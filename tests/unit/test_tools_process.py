"""Ports of servers that tests start, stop and start again."""

import socket

import pytest

from tools import process


def test_no_connection_is_given_the_port_of_a_server():
    fixed = {process.free_port() for _ in range(50)}
    given = set()
    for _ in range(50):
        with socket.socket() as sock:
            sock.bind(("127.0.0.1", 0))
            given.add(sock.getsockname()[1])
    if min(given) < 20480:
        pytest.skip("this system gives almost all ports to connections")
    assert max(fixed) < min(given)


def test_port_of_another_is_not_free(monkeypatch):
    taken = process.free_port()
    with socket.socket() as other:
        other.bind(("127.0.0.1", taken))
        other.listen()
        free = process.free_port()
        monkeypatch.setattr(process, "_PORTS", [taken, taken, taken, free])
        assert {process.free_port() for _ in range(20)} == {free}
