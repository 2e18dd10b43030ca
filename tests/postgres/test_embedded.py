import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
import sqlalchemy

from kai_es.ports.errors import UnavailableError
from kai_es.storage.embedded import DATABASE, EmbeddedPostgres
from kai_es.storage.engine import connect_to

pytestmark = pytest.mark.postgres

OWNER = """
import sys, time
from pathlib import Path
from kai_es.storage.embedded import EmbeddedPostgres
server = EmbeddedPostgres(Path(sys.argv[1]), durable=False)
print(server.start(), flush=True)
print(server.pid, flush=True)
time.sleep(60)
"""


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "postgres"


def _value(url, statement):
    engine = connect_to(url)
    try:
        with engine.begin() as connection:
            result = connection.execute(sqlalchemy.text(statement))
            return result.scalar() if result.returns_rows else None
    finally:
        engine.dispose()


def _until(condition, seconds=10):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "did not happen in time"
        time.sleep(0.02)


def test_keeps_its_data_over_stop_and_start(folder):
    server = EmbeddedPostgres(folder, durable=False)
    url = server.start()
    assert server.owned
    _value(url, "CREATE TABLE kept AS SELECT 42 AS x")
    pid = server.pid
    server.stop()
    assert not psutil.pid_exists(pid)
    again = EmbeddedPostgres(folder, durable=False)
    try:
        assert _value(again.start(), "SELECT x FROM kept") == 42
    finally:
        again.stop()


def test_second_user_attaches_and_leaves_the_server_running(folder):
    owner, guest = EmbeddedPostgres(folder, durable=False), EmbeddedPostgres(folder)
    try:
        url = owner.start()
        assert guest.start() == url
        assert not guest.owned
        guest.stop()
        assert _value(url, "SELECT current_database()") == DATABASE
    finally:
        owner.stop()


def test_listens_on_its_socket_alone(folder):
    server = EmbeddedPostgres(folder, durable=False)
    try:
        url = server.start()
        assert _value(url, "SHOW listen_addresses") == ""
        processes = [psutil.Process(server.pid), *psutil.Process(server.pid).children()]
        assert [c for p in processes for c in _connections(p)] == []
        sockets = Path(_value(url, "SHOW unix_socket_directories"))  # elsewhere, if too long
        assert sockets.stat().st_mode & 0o777 == 0o700
    finally:
        server.stop()


def test_dies_with_its_owner_and_recovers(folder):
    owner = subprocess.Popen(
        [sys.executable, "-c", OWNER, str(folder)], stdout=subprocess.PIPE, text=True
    )
    url = owner.stdout.readline().strip()
    pid = int(owner.stdout.readline())
    _value(url, "CREATE TABLE kept AS SELECT 7 AS x")
    owner.send_signal(signal.SIGKILL)
    owner.wait()
    owner.stdout.close()
    _until(lambda: not _alive(pid))
    server = EmbeddedPostgres(folder, durable=False)
    try:
        assert _value(server.start(), "SELECT x FROM kept") == 7
        assert server.owned
    finally:
        server.stop()


def test_server_that_dies_comes_back_with_its_data(folder):
    server = EmbeddedPostgres(folder)
    try:
        url = server.start()
        _value(url, "CREATE TABLE kept AS SELECT 9 AS x")
        pid = server.pid
        os.kill(pid, signal.SIGKILL)
        _until(lambda: server.pid != pid and _answers(url))
        assert _value(url, "SELECT x FROM kept") == 9
    finally:
        server.stop()


def test_owner_can_be_waited_for(folder):
    first, second = EmbeddedPostgres(folder, durable=False), EmbeddedPostgres(folder, durable=False)
    first.start()
    try:
        with pytest.raises(UnavailableError, match="does not let go"):
            second.start(own=True, wait_s=0.2)
    finally:
        first.stop()
    try:
        second.start(own=True)
        assert second.owned
    finally:
        second.stop()


def test_long_folder_gets_a_short_socket(tmp_path):
    folder = tmp_path / ("x" * 60) / ("y" * 60) / "postgres"
    server = EmbeddedPostgres(folder, durable=False)
    try:
        url = server.start()
        assert _value(url, "SELECT 1") == 1
        assert str(folder) not in url
    finally:
        server.stop()
        Path(url.rpartition("=")[2]).rmdir()


def test_foreign_files_are_not_overwritten(folder):
    data = folder / "data"
    data.mkdir(parents=True)
    (data / "precious").write_text("mine")
    with pytest.raises(UnavailableError, match="is no database but holds precious"):
        EmbeddedPostgres(folder, durable=False).start()
    assert (data / "precious").read_text() == "mine"


def test_stale_pid_file_of_a_living_stranger_harms_nobody(folder):
    server = EmbeddedPostgres(folder, durable=False)
    server.start()
    server.stop()
    stranger = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    try:
        (folder / "data" / "postmaster.pid").write_text(f"{stranger.pid}\n{folder}/data\n")
        again = EmbeddedPostgres(folder, durable=False)
        try:
            again.start(wait_s=20)
            assert stranger.poll() is None
        finally:
            again.stop()
    finally:
        stranger.kill()
        stranger.wait()


def _alive(pid):
    return psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE


def _answers(url):
    try:
        return _value(url, "SELECT 1") == 1
    except sqlalchemy.exc.OperationalError:
        return False


def _connections(process):
    """Of a process; a worker of the server may end meanwhile."""
    try:
        return process.net_connections("inet")
    except psutil.NoSuchProcess:
        return []
