"""Leadership by a lease row per role in the log's own SQLite file.

A lease row alone would keep a role empty for a whole lease after its holder was killed. So the
holder also keeps a lock on a file beside the log, which the system takes from it with its life; a
standby that finds the lock free need not wait for the end of the lease.
"""

import asyncio
import contextlib
import fcntl
import os
from collections.abc import Callable
from pathlib import Path

from kai_es.eventlog.lease import LEASE_S, RETRY_S, RenewedLease
from kai_es.eventlog.sqlite import SqliteLog
from kai_es.eventlog.sqlite_file import LogFile


class SqliteLeadership:
    """Leadership among the processes that share a log file.

    Lease ends are wall-clock times, since a monotonic clock does not survive a reboot; a clock set
    back frees a role, set forward ends it early. Either way two leaders are harmless: appends of
    the older one are fenced.
    """

    def __init__(self, log: SqliteLog, *, lease_s: float = LEASE_S) -> None:
        self._log = log
        self._lease_s = lease_s

    async def acquire(
        self, role: str, holder: str, waits: Callable[[], None] = lambda: None
    ) -> RenewedLease:
        """See the port."""
        while True:
            number = await self._log.write(lambda file: self._take(file, role, holder))
            if number is not None:
                return self._lease(role, number)
            waits()
            await asyncio.sleep(RETRY_S)

    def _lease(self, role: str, number: int) -> RenewedLease:
        sign = SignOfLife(self._sign_path(role, number))

        async def renew() -> bool:
            return await self._log.write(
                lambda file: _set_end(file, role, number, self._log.now_ms() + self._lease_ms)
            )

        async def release() -> None:
            await self._log.write(lambda file: _set_end(file, role, number, 0))

        return RenewedLease(role, renew, release, lease_s=self._lease_s, ended=sign.close)

    @property
    def _lease_ms(self) -> int:
        return round(self._lease_s * 1000)

    def _sign_path(self, role: str, number: int) -> Path:
        return self._log.path.with_name(f"{self._log.path.name}-lease-{role}-{number}")

    def _take(self, file: LogFile, role: str, holder: str) -> int | None:
        """The new lease's number, None while somebody else holds the role."""
        now_ms = self._log.now_ms()
        row = file.db.execute("SELECT number, until FROM lease WHERE role = ?", (role,)).fetchone()
        number, until = row or (0, 0)
        # An end further away than a whole term was written before the clock was set back.
        in_force = now_ms < until <= now_ms + self._lease_ms
        former = self._sign_path(role, number)
        if in_force and not is_dead(former):
            return None
        former.unlink(missing_ok=True)
        file.db.execute(
            "INSERT OR REPLACE INTO lease VALUES (?, ?, ?, ?)",
            (role, number + 1, holder, now_ms + self._lease_ms),
        )
        return int(number) + 1


class SignOfLife:
    """A locked file; the lock ends with `close` or with this process."""

    def __init__(self, path: Path) -> None:
        self._path = path
        partial = path.with_name(f"{path.name}.new")
        self._file = os.open(partial, os.O_RDWR | os.O_CREAT, 0o600)
        fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        partial.rename(path)  # it never stands there unlocked while its holder lives

    def close(self) -> None:
        """End the sign."""
        self._path.unlink(missing_ok=True)
        os.close(self._file)


def is_dead(path: Path) -> bool:
    """Whether a sign of life was left behind by a dead process; False when there is none."""
    with contextlib.suppress(FileNotFoundError, BlockingIOError), path.open() as file:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        return True
    return False


def _set_end(file: LogFile, role: str, number: int, until_ms: int) -> bool:
    """Move the end of a lease; False when the role has passed to another."""
    changed = file.db.execute(
        "UPDATE lease SET until = ? WHERE role = ? AND number = ?", (until_ms, role, number)
    )
    return changed.rowcount == 1
