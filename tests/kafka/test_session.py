"""Shared servers of a test run: one for all its processes, none after it, however it ends."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tools import process, session

WAIT_S = 10


class Sleeper:
    """A server that only exists; its address is the pid of its process."""

    def __init__(self, home):
        home.mkdir()
        self.home = home

    def start(self):
        self.process = process.start(["sleep", "600"], log=self.home / "log")
        self.address = str(self.process.pid)

    def alive(self):
        return self.process.poll() is None

    def close(self):
        process.stop(self.process)


KIND = f"{__name__}:Sleeper"
USER = f"""
import sys
from tools import session
print(session.use({KIND!r}, sys.argv[1]), flush=True)
sys.stdin.read()
"""


@pytest.fixture
def run(run_name):
    return f"test-{run_name[:8]}-{os.getpid()}-{time.monotonic_ns()}"


def a_user(run):
    user = subprocess.Popen(
        [sys.executable, "-c", USER, run],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    return user, user.stdout.readline().strip()


def ends(pid):
    """Whether a process is gone before long. Killed ones may be zombies for a moment."""
    deadline = time.monotonic() + WAIT_S
    stat = Path(f"/proc/{pid}/stat")
    while stat.exists() and stat.read_text().split()[2] != "Z":
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


def end(user, how):
    user.send_signal(how)
    user.communicate()


def test_users_share_a_server_until_the_last_is_killed(run):
    one, address = a_user(run)
    other, same = a_user(run)
    assert address == same
    end(one, signal.SIGKILL)
    time.sleep(3 * session.WATCH_S)
    assert Path(f"/proc/{address}").exists(), "the other still uses it"
    end(other, signal.SIGKILL)
    assert ends(address)


def test_a_killed_guard_takes_its_server_along(run):
    user, address = a_user(run)
    home = session._ROOT / f"{run}-test_session"
    guard = int((home / "guard").read_text())
    os.kill(guard, signal.SIGKILL)
    assert ends(address)
    assert ends(guard), "its server goes with one of its threads, before it has given up its memory"
    end(user, signal.SIGKILL)
    session.use(KIND, f"{run}-next")
    assert not home.exists(), "the next run removes what was left behind"
    session.leave(KIND, f"{run}-next")
    assert not (session._ROOT / f"{run}-next-test_session").exists()
