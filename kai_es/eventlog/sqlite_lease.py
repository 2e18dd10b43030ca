"""Leadership by a lease row per role in the log's own SQLite file."""

import asyncio

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

    async def acquire(self, role: str, holder: str) -> RenewedLease:
        """See the port."""
        while True:
            number = await self._log.write(lambda file: self._take(file, role, holder))
            if number is not None:
                return self._lease(role, number)
            await asyncio.sleep(RETRY_S)

    def _lease(self, role: str, number: int) -> RenewedLease:
        async def renew() -> bool:
            return await self._log.write(
                lambda file: _set_end(file, role, number, self._log.now_ms() + self._lease_ms)
            )

        async def release() -> None:
            await self._log.write(lambda file: _set_end(file, role, number, 0))

        return RenewedLease(role, renew, release, lease_s=self._lease_s)

    @property
    def _lease_ms(self) -> int:
        return round(self._lease_s * 1000)

    def _take(self, file: LogFile, role: str, holder: str) -> int | None:
        """The new lease's number, None while somebody else holds the role."""
        now_ms = self._log.now_ms()
        row = file.db.execute("SELECT number, until FROM lease WHERE role = ?", (role,)).fetchone()
        number, until = row or (0, 0)
        # An end further away than a whole term was written before the clock was set back.
        if now_ms < until <= now_ms + self._lease_ms:
            return None
        file.db.execute(
            "INSERT OR REPLACE INTO lease VALUES (?, ?, ?, ?)",
            (role, number + 1, holder, now_ms + self._lease_ms),
        )
        return int(number) + 1


def _set_end(file: LogFile, role: str, number: int, until_ms: int) -> bool:
    """Move the end of a lease; False when the role has passed to another."""
    changed = file.db.execute(
        "UPDATE lease SET until = ? WHERE role = ? AND number = ?", (until_ms, role, number)
    )
    return changed.rowcount == 1
