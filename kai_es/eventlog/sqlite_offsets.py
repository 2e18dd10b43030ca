"""Consumers' marks in the log's own SQLite file."""

from collections.abc import Mapping

from kai_es.eventlog.sqlite import SqliteLog
from kai_es.ports.eventlog import Mark, Position


class SqliteOffsets:
    """Offsets of the processes that share a log file."""

    def __init__(self, log: SqliteLog) -> None:
        self._log = log

    async def load(self, consumer: str, topic: str) -> Mapping[int, Mark]:
        """See the port."""
        rows = await self._log.look(
            lambda file: file.db.execute(
                "SELECT partition, position, note FROM mark WHERE consumer = ? AND topic = ?",
                (consumer, topic),
            ).fetchall()
        )
        return {
            partition: Mark(Position(position), note.decode()) for partition, position, note in rows
        }

    async def store(self, consumer: str, topic: str, marks: Mapping[int, Mark]) -> None:
        """See the port."""
        rows = [
            (consumer, topic, partition, mark.position, mark.note)
            for partition, mark in marks.items()
        ]
        await self._log.write(
            lambda file: file.db.executemany("INSERT OR REPLACE INTO mark VALUES (?,?,?,?,?)", rows)
        )
